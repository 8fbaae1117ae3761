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

from pipeline import log, metrics, signals
from pipeline.core.errors import DatabaseUnavailable, LeaseLost
from pipeline.core.job import Job
from pipeline.settings import Settings
from pipeline.store import leases, upkeep, workers
from pipeline.store.engine import Database
from pipeline.store.jobs import Table

logger = log.get("heartbeat")

WRITE_EVERY_S = 2.0  # progress in the row is never newer than that
OUTAGE_BEATS = 3  # nobody of the whole fleet was heard for so many beats: the database was away
DEGRADED_AFTER = 3
HURRY_S = 0.2
CEILING = 99.0  # a hundred is what finalize says, when everything is verified


def margin_s(settings: Settings) -> float:
    """So long before others may take over, a holder that cannot ask Postgres has stopped."""
    return 0.2 * _wait_s(settings)


def patience_s(settings: Settings) -> float:
    """How long a holder may be without Postgres at the most."""
    return _wait_s(settings) - margin_s(settings)


def _wait_s(settings: Settings) -> float:
    return min(settings.default_lease_sec, settings.worker_offline_sec)


class Pulse:
    """Watches the lease of one running stage. Use it as a context manager."""

    def __init__(self, db: Database, job: Job, settings: Settings, table: Table = Table.JOBS) -> None:
        assert job.fence is not None
        self._table = table
        self._db, self._job_id, self._fence = db.hasty(), job.id, job.fence
        self._every_s = settings.pulse_sec
        self._silence = timedelta(seconds=settings.worker_offline_sec)
        self._margin_s = margin_s(settings)
        self._percent: float | None = None
        self._value: float | None = None
        self._written: tuple[float | None, float | None] = (None, None)
        self._last_write = time.monotonic()
        self._until = self._last_write + self._patience_s(patience_s(settings) - settings.heartbeat_sec)
        self._lost = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pulse", daemon=True)

    def progress(self, percent: float | None = None, value: float | None = None) -> None:
        """Remember how far the stage is: percent for people, value (bytes, media time, units) for the stall check."""
        if percent is not None:
            self._percent = min(max(float(percent), 0.0), CEILING)
        if value is not None:
            self._value = float(value)  # a number of numpy is none to Postgres

    def check(self) -> None:
        """Raise LeaseLost when somebody else has the job, or may have it."""
        if self._lost.is_set() or not self._in_time():  # a question may hang as long as the network likes
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
                left_s = leases.left_s(self._db, self._job_id, self._fence, self._silence, self._table)
            else:
                left_s = leases.pulse(self._db, self._job_id, self._fence, *news, self._silence, self._table)
                self._written, self._last_write = news, now
                signals.progressed(self._job_id, self._percent)
        except DatabaseUnavailable:
            return self._in_time()
        if left_s is not None:
            self._until = now + self._patience_s(left_s - self._margin_s)
        return left_s is not None

    def _patience_s(self, safe_s: float) -> float:
        """Whoever is late but not yet reaped may go on, as long as Postgres answers each question."""
        return max(safe_s, 2 * self._every_s)

    def _in_time(self) -> bool:
        return time.monotonic() < self._until


class Heartbeat:
    """The thread that keeps a worker and its leases alive."""

    def __init__(
        self, db: Callable[[], Database], worker: UUID, running: Callable[[], Sequence[str]], settings: Settings
    ) -> None:
        self._db, self._worker, self._running = db, worker, running
        self._every_s = settings.heartbeat_sec
        self._lease = timedelta(seconds=settings.default_lease_sec)
        self._outage = timedelta(seconds=OUTAGE_BEATS * settings.heartbeat_sec)
        self._slowest_s = _wait_s(settings) / 4
        self._failures = 0
        self._was_busy: bool | None = None
        self._kept: set[UUID] = set()
        self._ends = threading.Event()
        self._asked = self._answered = 0  # how often somebody wanted to know what is held
        self._next = threading.Event()
        self._thread = threading.Thread(target=self._live, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop beating; the last beat that was under way is finished."""
        self._ends.set()
        self._next.set()
        if self._thread.is_alive():
            self._thread.join()

    def hurry(self) -> None:
        """The worker is about to stop and waits for what it holds: look at once, and often."""
        self._asked += 1
        self._next.set()

    @property
    def holds(self) -> bool:
        """Whether any lease is this worker's, as far as a beat that began after `hurry` knows."""
        return self._answered < self._asked or bool(self._kept)

    def beat(self) -> None:
        """Renew everything once."""
        db, running, asked = self._db(), self._running(), self._asked
        upkeep.contact(db, self._outage)
        self._kept = leases.renew(db, str(self._worker), running, self._lease) if running else set()
        workers.beat(db, self._worker, busy=bool(running))
        if bool(running) != self._was_busy:
            self._was_busy = bool(running)
            signals.worker_is(self._worker, "busy" if running else "idle")
        metrics.count("worker_heartbeats_total")
        self._answered = asked

    def _live(self) -> None:
        while True:
            self._next.wait(self._pause_s())
            self._next.clear()
            if self._ends.is_set():
                return
            try:
                self.beat()
            except Exception as exc:
                self._failed(exc)
            else:
                if self._failures:
                    logger.info("heartbeat recovered", extra={"missed": self._failures})
                self._failures = 0

    def _pause_s(self) -> float:
        if self._asked:
            return HURRY_S
        # Who cannot reach Postgres asks less and less often, but in time for whoever is waiting to hear of it.
        return min(self._every_s * (1 << min(self._failures, 5)), max(self._every_s, self._slowest_s))

    def _failed(self, exc: Exception) -> None:
        self._failures += 1
        metrics.count("worker_heartbeat_failures_total")
        if self._failures == 1:
            logger.warning("heartbeat failed", exc_info=exc)
        elif self._failures == DEGRADED_AFTER:
            logger.error("heartbeat degraded", extra={"code": "HEARTBEAT_DEGRADED"})
