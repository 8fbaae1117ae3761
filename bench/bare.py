"""The peer: five no-op Celery tasks in a chain that keep no state at all. Only the last one leaves a mark."""

from __future__ import annotations

import os
import time

import redis
from celery import Celery, chain

app = Celery("bare", broker=os.environ["BROKER_URL"])
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    task_default_queue="bare",
    worker_send_task_events=True,
    task_send_sent_event=True,
)
marks = redis.Redis.from_url(os.environ["BROKER_URL"])


@app.task
def step(n: int) -> None:
    if n in (0, 4):
        marks.rpush(f"bare:{n}", time.time())


def publish() -> None:
    """One job of five steps."""
    chain(*[step.si(n) for n in range(5)]).apply_async()
