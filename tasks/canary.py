"""How does a worker notice that it hears nothing any more? It sends itself messages.

After a broker's reconnect a consumer can be alive and deaf: the process runs, beats, and gets no work. So each worker
has a queue of its own, and sends a canary through it. One that does not come back while the broker takes messages and
a slot is free means that this consumer is deaf: then the worker stops in good order, and whoever keeps it running
starts it anew. A busy worker takes no message, canaries included: that proves nothing.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from celery import signals
from kombu.entity import Exchange, Queue

from pipeline import dispatch, log, settings
from pipeline.core.errors import BrokerUnavailable
from pipeline.repeat import Repeat
from pipeline.store import workers
from pipeline.store.engine import database

logger = log.get("worker")

DEAF_AFTER = 3  # canaries in a row


class Canary:
    """Sends and awaits a worker's messages to itself."""

    def __init__(self, worker: Any, who: UUID, running: Callable[[], list[str]]) -> None:
        self._who, self._running, self._slots = who, running, worker.concurrency
        self._queue = f"canary.{who}"
        self._heard_at = self._sent_at = time.monotonic()
        self._missed = 0
        self._rests = False
        # No exchange: a binding would stay in Redis for ever. RabbitMQ drops the queue when nobody has used it.
        worker.app.amqp.queues.select_add(Queue(self._queue, Exchange(""), routing_key=self._queue, expires=3600))
        signals.task_received.connect(self._hear, weak=False)

    def thread(self) -> Repeat:
        return Repeat("canary", settings.current().canary_sec, self.look)

    def rest(self) -> None:
        """The worker is stopping: from now on it hears nothing, and that is right."""
        self._rests = True

    def look(self) -> None:
        """See whether the last canary came back, and send the next one."""
        if self._rests:
            return
        if self._heard_at >= self._sent_at:
            self._missed = 0
            workers.consumed(database(), self._who)
        elif len(self._running()) < self._slots:
            self._missed += 1
        if self._missed >= DEAF_AFTER:
            self._missed = 0
            logger.error("consumer is deaf, stopping", extra={"code": "CONSUMER_DEAF"})
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self._sent_at = time.monotonic()
        try:
            dispatch.send_canary(self._queue)
        except BrokerUnavailable:  # nobody hears anything now
            self._heard_at = time.monotonic()

    def _hear(self, **_options: Any) -> None:
        self._heard_at = time.monotonic()
