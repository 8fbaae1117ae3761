"""What does a worker do besides its tasks? It has an identity, beats, and stops in good order."""

from __future__ import annotations

import os
import signal
import socket
from typing import Any
from uuid import UUID, uuid4

from celery import Celery, bootsteps, signals
from celery.worker import state

from pipeline import log, settings
from pipeline.heartbeat import Heartbeat, patience_s
from pipeline.leash import tie_to_parent
from pipeline.processes import Identity, machine, wait_until
from pipeline.repeat import Repeat
from pipeline.signals import worker_is
from pipeline.store import workers
from pipeline.store.engine import database
from pipeline.upkeep.watch import watch
from tasks import reconnect
from tasks.canary import Canary
from tasks.measuring import Measuring
from tasks.pausing import Pausing

logger = log.get("worker")

LOOK_AFTER_POOL_S = 1.0  # Celery looks every 5 s for a process that died before it was known what it runs

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
        self._beside: list[Repeat] = []
        self._looks_after_pool = False
        self._measuring = Measuring(running)
        super().__init__(parent)

    def start(self, parent: Any) -> None:
        register(parent, _identity)
        parent.wait_for_soft_shutdown = self._let_finish
        self._heartbeat.start()
        self._canary = Canary(parent, _identity, running)
        self._beside = [watch(), Pausing(parent, _identity).thread(), self._canary.thread()]
        for thread in self._beside:
            thread.start()
        self._measuring.start()

    def register_with_event_loop(self, parent: Any, hub: Any) -> None:
        """Called again after each reconnect."""
        if not self._looks_after_pool:
            hub.call_repeatedly(LOOK_AFTER_POOL_S, parent.pool.maintain_pool)
            self._looks_after_pool = True

    def stop(self, parent: Any) -> None:
        self._measuring.stop()
        for thread in self._beside:
            thread.stop()
        self._heartbeat.stop()
        workers.goodbye(database(), _identity)
        worker_is(_identity, "offline")

    terminate = stop

    def _let_finish(self) -> None:
        """Wait for what runs, as long as the grace period at most.

        Celery would sleep through the whole of it: while it handles the signal it sees no stage end. We ask Postgres.
        """
        grace_s = settings.current().shutdown_grace_sec
        if not running() or grace_s <= 0:
            return
        logger.warning("worker stopping", extra={"grace_s": grace_s})
        self._canary.rest()
        self._heartbeat.hurry()
        wait_until(lambda: not self._heartbeat.holds, grace_s)


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
        boot_id=machine(),
        pid=os.getpid(),
        pid_started=itself.started if itself else None,
    )
    logger.info("worker registered", extra={"worker": str(who), "worker_name": worker.hostname})


@signals.worker_process_init.connect
def _be_a_good_child(**_options: Any) -> None:
    """A pool process whose worker was killed would go on with work that nobody renews or stops: it ends at once."""
    tie_to_parent(signal.SIGKILL)
    database().patience_s = patience_s(settings.current())  # a stage sits out a restart of Postgres


@signals.setup_logging.connect
def _set_up_logging(**_options: Any) -> None:
    now = settings.current()
    log.set_up(now.log_level, form=now.log_format, worker=identity())


def install(app: Celery) -> None:
    """Give every worker of this app its presence."""
    app.steps["worker"].add(Presence)
    reconnect.install()
