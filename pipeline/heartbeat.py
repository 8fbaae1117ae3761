"""How is a lease kept, and how does its holder learn that it is lost?

Two beats. `Heartbeat` lives in the worker's main process: one statement renews every lease that the worker is really
running, from a thread of its own, so that neither a busy stage nor a lost broker stops it. `Pulse` lives beside one
running stage: it writes that stage's progress and looks whether the fence is still the row's. A stage asks it with
`check()`, which raises `LeaseLost`. Whoever cannot ask Postgres for so long that others may have stopped waiting
counts itself as lost: then nobody ever works on the same unit twice at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from uuid import UUID

from pipeline import log
from pipeline.core.errors import DatabaseUnavailable, LeaseLost
from pipeline.core.job import Job
from pipeline.settings import Settings
from pipeline.store import leases, workers
from pipeline.store.engine import Database

logger = log.get("heartbeat")

WRITE_EVERY_S = 2.0  # progress in the row is never newer than that
CEILING = 99.0  # a hundred is what finalize says, when everything is verified


class Pulse:
    """Watches the lease of one running stage. Use it as a context manager."""

    def __init__(self, db: Database, job: Job, settings: Settings) -> None:
        assert job.fence is not None
        self._db, self._job_id, self._fence = db, job.id, job.fence
        self._every_s = settings.pulse_sec
        # Others may take over when the lease ends or the worker counts as dead: stop a little before either.
        self._patience_s = 0.8 * min(settings.default_lease_sec, settings.worker_offline_sec)
        self._percent: float | None = None
        self._value: float | None = None
        self._written: tuple[float | None, float | None] = (None, None)
        self._last_write = self._last_answer = time.monotonic()
        self._lost = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pulse", daemon=True)

    def progress(self, percent: float | None = None, value: float | None = None) -> None:
        """Remember how far the stage is: percent for people, value (bytes, media time, units) for the stall check."""
        if percent is not None:
            self._percent = min(max(percent, 0.0), CEILING)
        if value is not None:
            self._value = value

    def check(self) -> None:
        """Raise LeaseLost when somebody else has the job, or may have it."""
        if self._lost.is_set():
            raise LeaseLost

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._lost.is_set() and not self._stop.wait(self._every_s):
            if not self._beat():
                self._lost.set()

    def _beat(self) -> bool:
        """Ask Postgres; whether we may go on."""
        now = time.monotonic()
        seen = (self._percent, self._value)
        news = seen if seen != self._written and now - self._last_write >= WRITE_EVERY_S else None
        try:
            if news is None:
                held = leases.is_held(self._db, self._job_id, self._fence)
            else:
                held = leases.pulse(self._db, self._job_id, self._fence, *news)
                self._written, self._last_write = news, now
        except DatabaseUnavailable:
            return time.monotonic() - self._last_answer < self._patience_s
        self._last_answer = now
        return held


class Heartbeat:
    """The thread that keeps a worker and its leases alive."""

    def __init__(
        self, db: Callable[[], Database], worker: UUID, running: Callable[[], Sequence[str]], settings: Settings
    ) -> None:
        self._db, self._worker, self._running = db, worker, running
        self._every_s = settings.heartbeat_sec
        self._lease = timedelta(seconds=settings.default_lease_sec)
        self._failures = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop beating; the last beat that was under way is finished."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def beat(self) -> None:
        """Renew everything once."""
        running = self._running()
        if running:
            leases.renew(self._db(), str(self._worker), running, self._lease)
        workers.beat(self._db(), self._worker, busy=bool(running))

    def _live(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self.beat()
            except Exception:
                self._failures += 1
                if self._failures == 1:
                    logger.warning("heartbeat failed", exc_info=True)
                elif self._failures == 3:
                    logger.error("heartbeat degraded", extra={"code": "HEARTBEAT_DEGRADED"})
            else:
                if self._failures:
                    logger.info("heartbeat recovered", extra={"missed": self._failures})
                self._failures = 0
