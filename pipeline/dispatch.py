"""How does a job's message get on its way?

This is the client side of Celery. It is configured from our settings alone, under an app of its own: whatever
`celeryconfig` or `tasks` the importing program has is never looked at. A message is a hint with a job's id in it; the
row decides. So a publish that failed, or that may have failed, is no tragedy: sweep sends another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

from amqp.exceptions import ChannelError
from celery import Celery, chain
from kombu.exceptions import KombuError
from kombu.exceptions import OperationalError as BrokerError

from pipeline import settings
from pipeline.core.errors import BrokerUnavailable
from pipeline.core.job import Job
from pipeline.core.routing import CANARY, CONTROL, DEFAULT, MARKER, QUEUE_OF, SUBMIT, SWEEP, TRANSCRIBE, task_of

PATIENT = {"socket_timeout": 10, "socket_connect_timeout": 5}
IMPATIENT = {"socket_timeout": 3, "socket_connect_timeout": 2}  # somebody's web page waits; sweep tries again
PUBLISH_ONCE = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.2}


def wire(patience: Mapping[str, int] = PATIENT) -> dict[str, Any]:
    """What whoever speaks on our queues must agree on, and how long we wait for a broker that does not answer."""
    url = settings.current().broker_url
    return {
        "broker_url": url,
        "broker_transport_options": transport_options(url, patience),
        "task_serializer": "json",  # nothing that a message carries is ever executed
        "accept_content": ["json"],
        "task_default_queue": DEFAULT,
        "task_ignore_result": True,  # rows hold the results
        "task_send_sent_event": True,  # Flower shows what waits
        "enable_utc": True,
    }


def transport_options(url: str, patience: Mapping[str, int]) -> dict[str, Any]:
    """How we talk to this kind of broker."""
    if not url.startswith(("redis", "rediss", "valkey")):
        return {}
    return {
        "visibility_timeout": 6 * 3600,  # longer than any stage: redelivery is the reaper's work, not Redis's
        "queue_order_strategy": "priority",  # control first
        **patience,  # a frozen broker is noticed
        "socket_keepalive": True,
        "health_check_interval": 25,
    }


class App(Celery):
    """A Celery app on our broker: CELERY_BROKER_URL and its like are the surrounding program's, and would win."""

    def connection_for_read(self, url: str | None = None, **options: Any) -> Any:
        return super().connection_for_read(url or settings.current().broker_url, **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        return super().connection_for_write(url or settings.current().broker_url, **options)


class _Client(App):
    """Asks our rows for results, whatever CELERY_RESULT_BACKEND says."""

    backend_cls = "pipeline.results:RowBackend"


client = _Client("ironclip-client", set_as_current=False, autofinalize=True)
client.add_defaults(lambda: wire(IMPATIENT))


def start(job: Job) -> None:
    """Publish the chain of the stages that the job has before it. BrokerUnavailable: perhaps it was not sent."""
    links = [
        client.signature(task_of(stage), args=(str(job.id),), immutable=True, queue=QUEUE_OF[stage])
        for stage in job.remaining()
    ]
    links[0].set(queue=job.queue or QUEUE_OF[job.stage])
    _publish(lambda: chain(*links, app=client).apply_async(retry=True, retry_policy=PUBLISH_ONCE))


def start_transcription(job: Job) -> None:
    """Publish a transcription that belongs to no job. BrokerUnavailable: perhaps it was not sent."""
    _send(TRANSCRIBE, args=(str(job.id),), queue=QUEUE_OF[job.stage])


def ping() -> None:
    """Nothing if the broker can be reached, BrokerUnavailable if not."""
    try:
        with client.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0)
    except (BrokerError, KombuError, OSError) as exc:
        raise BrokerUnavailable("The broker cannot be reached.") from exc


def mark(queue: str, number: int, sent_at: datetime) -> None:
    """Send a marker through this queue. BrokerUnavailable: perhaps it was not sent."""
    _send(MARKER, args=(queue, number, sent_at.isoformat()), queue=queue)


def send_canary(queue: str) -> None:
    """Send a worker a message of its own. BrokerUnavailable: perhaps it was not sent."""
    _send(CANARY, exchange="", routing_key=queue)


def nudge() -> None:
    """Something is due now: ask for a sweep. If that cannot be asked, the next one finds it."""
    expires = settings.current().sweep_interval_sec
    with suppress(BrokerUnavailable):
        _send(SWEEP, queue=CONTROL, expires=expires)


def is_empty(queue: str) -> bool:
    """Whether the broker holds no message in this queue; False also if it cannot be asked."""
    try:
        with client.connection_for_read() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0)
            return _waiting(connection, queue) == 0
    except (BrokerError, KombuError, OSError):
        return False


def _waiting(connection: Any, queue: str) -> int:
    with connection.channel() as channel:
        try:
            return int(channel.queue_declare(queue, passive=True).message_count)
        except ChannelError:  # nobody has made that queue, or the broker lost it
            return 0


def send_submission(request: dict[str, Any], job_id: UUID) -> None:
    """Ask a worker to write the row, for a caller that cannot reach the database."""
    _send(SUBMIT, kwargs=request, task_id=str(job_id), queue=CONTROL)


def _send(task: str, **options: Any) -> None:
    _publish(lambda: client.send_task(task, **options, retry=True, retry_policy=PUBLISH_ONCE))


def _publish(send: Callable[[], object]) -> None:
    try:
        send()
    except (BrokerError, KombuError, OSError) as exc:
        raise BrokerUnavailable("The broker did not take the message.") from exc
