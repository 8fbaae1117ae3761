"""How is a call made that may hang? In a thread of its own, while its caller looks whether it still moves.

After each piece the work says how far it is and waits for the answer, so every callback runs in the caller's thread
and none of it is ever ahead of what the caller allowed. While it says nothing, the caller goes on asking whether it
may go on: a lost lease ends a transfer that hangs within moments, and one that stands still for too long is given up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from pipeline.files import Check

T = TypeVar("T")
Step = Callable[[int], None]  # how far the work is; raises when it must stop

POLL_S = 0.25
GRACE_S = 1.0  # for work that is told to stop to tidy up behind itself


class StoodStill(Exception):
    """The work did not move for as long as it may."""


class _Worker(threading.Thread, Generic[T]):
    def __init__(self, work: Callable[[Step], T]) -> None:
        super().__init__(name="delivery", daemon=True)
        self._work = work
        self._answers: SimpleQueue[None] = SimpleQueue()
        self._stopped_by: BaseException | None = None
        self.steps: SimpleQueue[int | None] = SimpleQueue()  # None: it has ended
        self.result: T
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._work(self._step)
        except BaseException as exc:
            self.error = exc
        finally:
            self.steps.put(None)

    def _step(self, done: int) -> None:
        if self._stopped_by is None:
            self.steps.put(done)
            self._answers.get()
        if self._stopped_by is not None:
            raise self._stopped_by

    def go_on(self) -> None:
        self._answers.put(None)

    def stop(self, why: BaseException) -> bool:
        """Tell it to stop; whether it did."""
        self._stopped_by = why
        self._answers.put(None)
        self.join(GRACE_S)
        return not self.is_alive()


def attended(
    work: Callable[[Step], T], *, check: Check, on_step: Step, patience_s: float, hang_up: Callable[[], None]
) -> T:
    """What the work returns or raises. StoodStill, or whatever a callback raised, as soon as it must stop; work that
    does not stop by itself then is cut off by `hang_up` and left behind."""
    worker = _Worker(work)
    worker.start()
    try:
        _follow(worker, check, on_step, patience_s)
    except BaseException as exc:
        if not worker.stop(exc):
            hang_up()
        raise
    if worker.error is not None:
        raise worker.error
    return worker.result


def _follow(worker: _Worker[T], check: Check, on_step: Step, patience_s: float) -> None:
    moved = time.monotonic()
    while True:
        try:
            done = worker.steps.get(timeout=POLL_S)
        except Empty:
            check()
            if time.monotonic() - moved > patience_s:
                raise StoodStill from None
            continue
        if done is None:
            return
        # The check comes last: what is lost while the last byte is told must not be published.
        on_step(done)
        check()
        worker.go_on()
        moved = time.monotonic()
