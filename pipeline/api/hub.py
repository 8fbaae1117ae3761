"""How do events reach everybody who watches?

One thread reads them from Postgres, once for all: it numbers what became visible, fetches what is new and hands it to
the event loop, which puts it into a bounded queue for each listener. Whoever reads too slowly is cut off and comes back
with the number of the last event that it saw. Redis only says that it is worth looking now; without it we look every
`POLL_S`.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pipeline import log
from pipeline.core.errors import DatabaseUnavailable
from pipeline.store import feed, keys
from pipeline.store.engine import TROUBLE, database
from pipeline.store.feed import Event

logger = log.get("api.live")

POLL_S = 1.0
PAUSE_S = 0.02  # between two looks, however many signals come
WAIT_S = 2.0  # after a read that failed
QUEUE = 1000  # events that a listener may be behind
RECENT = 2000  # events that are kept for those who come back
KEYS_EVERY_S = 2.0  # a key that was revoked hears for so long at most


@dataclass(frozen=True, slots=True)
class Shown:
    """Something to be sent: bytes made once for all listeners. `seq` is None for what is not replayed."""

    seq: int | None
    job: UUID
    account: str | None
    text: bytes


class Listener:
    """Somebody who watches all jobs, those of one account, or one job."""

    def __init__(self, key: UUID, *, job: UUID | None = None, account: str | None = None) -> None:
        self.key = key
        self.job = job
        self.account = account
        self.is_cut = False
        self._waiting: deque[Shown] = deque()
        self._something = asyncio.Event()

    def wants(self, shown: Shown) -> bool:
        return self.job in (None, shown.job) and self.account in (None, shown.account)

    def offer(self, shown: Shown) -> None:
        if len(self._waiting) >= QUEUE and not self.is_cut:
            logger.warning("listener cut", extra={"reason": "too slow", "key_id": str(self.key)})
            self.cut()
        elif not self.is_cut:
            self._waiting.append(shown)
            self._something.set()

    def cut(self) -> None:
        """No more for this one; it may come again."""
        self.is_cut = True
        self._waiting.clear()
        self._something.set()

    async def heard(self, patience_s: float) -> list[Shown]:
        """What came; nothing if nothing came in that time."""
        try:
            await asyncio.wait_for(self._something.wait(), patience_s)
        except TimeoutError:
            return []
        self._something.clear()
        came = list(self._waiting)
        self._waiting.clear()
        return came


class Hub:
    """The one reader of a process, and everybody who listens to it."""

    def __init__(self) -> None:
        self.position = 0  # everything up to here was offered
        self._read_up_to: int | None = None  # the reader's own: it is ahead of what the loop has offered
        self.recent: deque[Shown] = deque(maxlen=RECENT)
        self._listeners: set[Listener] = set()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._is_ready = asyncio.Event()
        self._progress: dict[UUID, tuple[str, float]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._read, name="feed", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self) -> None:
        """Stop reading and let every listener go."""
        self._stopping.set()
        self._wake.set()
        for listener in list(self._listeners):
            listener.cut()

    def wake(self) -> None:
        """It is worth looking now."""
        self._wake.set()

    async def ready(self, patience_s: float) -> bool:
        """Whether the reader knows where the feed stands; waits a while until it does."""
        try:
            await asyncio.wait_for(self._is_ready.wait(), patience_s)
        except TimeoutError:
            return False
        return True

    def join(self, listener: Listener) -> None:
        self._listeners.add(listener)
        self.wake()  # numbering may have slept while nobody listened

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    def __len__(self) -> int:
        return len(self._listeners)

    # -- in the reader's thread

    def _read(self) -> None:
        keys_at = time.monotonic() + KEYS_EVERY_S
        while not self._stopping.is_set():
            try:
                moved = self._look()
                if time.monotonic() >= keys_at:
                    self._check_keys()
                    keys_at = time.monotonic() + KEYS_EVERY_S
            except (DatabaseUnavailable, *TROUBLE) as exc:
                logger.warning("feed not read", extra={"error": type(exc).__name__})
                self._stopping.wait(WAIT_S)
                continue
            if not moved:
                self._wake.wait(POLL_S)
                self._stopping.wait(PAUSE_S)
                self._wake.clear()

    def _look(self) -> bool:
        """Read what is new and hand it over; whether there was a whole batch, so that more may be waiting."""
        db = database()
        if self._read_up_to is None:
            self._read_up_to = feed.last(db)
            self._call(self._begin, self._read_up_to)
        numbered = feed.relay(db)
        events = feed.after(db, self._read_up_to)
        shown = [of_event(event) for event in events]
        self._read_up_to = events[-1].seq if events else self._read_up_to
        progress = self._progressed(feed.running(db)) if self._listeners else []
        if shown or progress:
            self._call(self._offer, [*shown, *progress])
        return numbered >= feed.BATCH or len(events) >= feed.BATCH

    def _progressed(self, running: Iterable[dict[str, Any]]) -> list[Shown]:
        before, self._progress, told = self._progress, {}, []
        for row in running:
            state = self._progress[row["id"]] = (row["stage"], row["progress"])
            if before.get(row["id"]) != state:
                told.append(of_progress(row))
        return told

    def _check_keys(self) -> None:
        ids = {listener.key for listener in list(self._listeners)}
        gone = ids - keys.living(database(), list(ids)) if ids else set()
        if gone:
            self._call(self._cut, gone)

    def _call(self, what: Callable[..., None], *args: Any) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *args)

    # -- in the event loop

    def _begin(self, position: int) -> None:
        self.position = position
        self._is_ready.set()

    def _offer(self, shown: list[Shown]) -> None:
        for each in shown:
            if each.seq is not None:
                self.position = each.seq
                self.recent.append(each)
            for listener in self._listeners:
                if listener.wants(each):
                    listener.offer(each)

    def _cut(self, gone: set[UUID]) -> None:
        for listener in list(self._listeners):
            if listener.key in gone:
                logger.info("listener cut", extra={"reason": "key revoked", "key_id": str(listener.key)})
                listener.cut()


def of_event(event: Event) -> Shown:
    """An event as it is sent."""
    told = {
        "seq": event.seq,
        "event_id": event.event_id,
        "job_id": event.job_id,
        "table": event.table,
        "type": event.type,
        "stage": event.stage,
        "attempt": event.attempt,
        "data": event.data,
        "at": event.at.isoformat(),
    }
    text = f"id: {event.seq}\nevent: job\ndata: {_dumps(told)}\n\n".encode()
    return Shown(event.seq, event.job_id, event.account_id, text)


def of_progress(row: dict[str, Any]) -> Shown:
    """How far a job is, as it is sent: without a number, because it is not replayed."""
    told = {"job_id": row["id"], "stage": row["stage"], "progress": row["progress"]}
    return Shown(None, row["id"], row["account_id"], f"event: progress\ndata: {_dumps(told)}\n\n".encode())


def _dumps(value: dict[str, Any]) -> str:
    return json.dumps(value, default=str, separators=(",", ":"))
