"""What does a worker do besides its tasks? It has an identity, beats, and stops in good order."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from celery import Celery, bootsteps, signals
from celery.worker import state

from pipeline import log, settings
from pipeline.heartbeat import Heartbeat
from pipeline.leash import tie_to_parent
from pipeline.processes import Identity
from pipeline.store import workers
from pipeline.store.engine import database
from tasks import reconnect

logger = log.get("worker")

_identity = uuid4()  # of this start; forked children inherit it


def identity() -> str:
    """Who holds the leases of this process tree. A name can be used twice, this cannot."""
    return str(_identity)


def running() -> list[str]:
    """The deliveries that this worker is running right now."""
    while True:
        try:
            return [request.id for request in tuple(state.active_requests)]
        except RuntimeError:  # the set changed while it was copied
            continue


class Presence(bootsteps.StartStopStep):
    """Registers the worker, beats from a thread of its own, and says goodbye."""

    def __init__(self, parent: Any, **_options: Any) -> None:
        self._heartbeat = Heartbeat(database, _identity, running, settings.current())
        super().__init__(parent)

    def start(self, parent: Any) -> None:
        register(parent, _identity)
        self._heartbeat.start()

    def stop(self, parent: Any) -> None:
        self._heartbeat.stop()
        workers.goodbye(database(), _identity)

    terminate = stop


def register(worker: Any, who: UUID) -> None:
    """Tell the registry that this incarnation is here, and how its process can be recognised."""
    itself = Identity.of(os.getpid())
    workers.register(
        database(),
        who,
        name=worker.hostname,
        hostname=socket.gethostname(),
        queues=[queue.name for queue in worker.app.amqp.queues.consume_from.values()],
        slots=worker.concurrency,
        boot_id=_boot_id(),
        pid=os.getpid(),
        pid_started=itself.started if itself else None,
    )
    logger.info("worker registered", extra={"worker": str(who), "worker_name": worker.hostname})


def _boot_id() -> str | None:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else None


@signals.worker_process_init.connect
def _end_with_the_main_process(**_options: Any) -> None:
    """A pool process whose worker was killed would go on with work that nobody renews or stops: it ends at once."""
    tie_to_parent(signal.SIGKILL)


@signals.setup_logging.connect
def _set_up_logging(**_options: Any) -> None:
    log.set_up(settings.current().log_level)


def install(app: Celery) -> None:
    """Give every worker of this app its presence."""
    app.steps["worker"].add(Presence)
    reconnect.install()
