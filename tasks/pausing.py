"""When does a worker take no new work, although it is well? While its machine has no room, or an operator says so.

What runs goes on, and the queues of upkeep are served all the time. Other workers get what this one leaves.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pipeline import log, pressure, settings
from pipeline.core.routing import WORK
from pipeline.repeat import Repeat
from pipeline.store import workers
from pipeline.store.engine import database

logger = log.get("worker")

LOOK_S = 2.0
DISABLED = "an operator has taken it out of service"


class Pausing:
    """Stops and resumes a worker's intake."""

    def __init__(self, worker: Any, who: UUID) -> None:
        self._control, self._hostname, self._who = worker.app.control, worker.hostname, who
        self._queues = sorted(set(worker.app.amqp.queues.consume_from) & WORK)
        self._paused: str | None = None

    def thread(self) -> Repeat:
        return Repeat("pausing", LOOK_S, self.look)

    def look(self) -> None:
        """Pause, or go on, if the machine or an operator's mind has changed."""
        why = pressure.reason(settings.current(), paused=self._paused is not None)
        if workers.is_disabled(database(), self._who):
            why = DISABLED
        if (why is None) == (self._paused is None):
            return
        # The remote control is the door to the consumer: it acts in the consumer's own thread.
        tell = self._control.cancel_consumer if why else self._control.add_consumer
        for queue in self._queues:
            tell(queue, destination=[self._hostname])
        workers.pause(database(), self._who, why)
        self._paused = why
        logger.warning("worker paused" if why else "worker goes on", extra={"reason": why})
