"""reap: nobody waits for the dead.

A lease is taken away when it is over; sooner when its holder is dead. A death is proved by a goodbye, or by the same
machine seeing that the process is gone: that acts at once. Silence and expiry prove nothing when the database itself
was away, because then the living could not speak either: they wait until everybody has had time to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from uuid import UUID

from pipeline import crashpoints, log, metrics, processes, scratch, settings
from pipeline.core.job import Job, Status
from pipeline.crashpoints import At
from pipeline.heartbeat import OUTAGE_BEATS
from pipeline.processes import Identity
from pipeline.settings import Settings
from pipeline.store import leases, workers
from pipeline.store import upkeep as runs
from pipeline.store.engine import Database, database
from pipeline.store.jobs import Table
from pipeline.upkeep.alone import alone
from pipeline.upkeep.sweep import sweep

logger = log.get("reap")

BATCH = 200


@dataclass(frozen=True)
class Reaped:
    """What the reaper did."""

    requeued: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    waits: bool = False  # the database was away: silence and expiry do not count yet


def reap() -> Reaped:
    """Take leases away that are over or whose holder is dead: queued while attempts are left, failed otherwise."""
    done = alone("reap", _timed, Reaped())
    if done.requeued:
        sweep()  # at once: nobody has to wait for them twice
    return done


def look_around() -> Reaped:
    """Take away the leases of workers that died on this machine. Each worker does it for its neighbours, often."""
    db, done = database(), Reaped()
    gone = _gone(db)
    if gone:
        _take_from_dead(db, done, gone, None)
    return done


def _timed(db: Database) -> Reaped:
    began = time.monotonic()
    done = _reap(db)
    metrics.observe("reaper_scan_duration_ms", (time.monotonic() - began) * 1000)
    return done


def _reap(db: Database) -> Reaped:
    now = settings.current()
    runs.contact(db, timedelta(seconds=OUTAGE_BEATS * now.heartbeat_sec))
    patient = database_was_away(db, now)
    silence = None if patient else timedelta(seconds=now.worker_offline_sec)
    done = Reaped(waits=patient)
    _take_from_dead(db, done, _gone(db), silence)
    if not patient:
        for table in Table:
            _all(done, table, partial(leases.expire_some, db, table, BATCH))
    return done


def database_was_away(db: Database, now: Settings) -> bool:
    """Whether an outage of the database is so fresh that the living may not have spoken yet."""
    return runs.contact_age_s(db) < now.database_grace_sec


def _take_from_dead(db: Database, done: Reaped, gone: list[UUID], silence: timedelta | None) -> None:
    for worker in workers.bury(db, gone, silence):
        logger.warning("worker is dead", extra={"worker": str(worker["id"]), "worker_name": worker["name"]})
    for table in Table:
        _all(done, table, partial(leases.expire_dead, db, table, BATCH, gone=gone, silence=silence))


def _gone(db: Database) -> list[UUID]:
    """The workers of this machine whose processes exist no more. A newer worker of the same name proves nothing."""
    here = workers.of_machine(db, processes.machine())
    return [worker for worker, pid, started in here if not Identity(pid, started).is_running]


def _all(done: Reaped, table: Table, some: Callable[[], list[Job]]) -> None:
    while batch := some():
        crashpoints.reached(At.REAPED)
        for job in batch:
            _note(done, table, job)


def _note(done: Reaped, table: Table, job: Job) -> None:
    (done.requeued if job.status is Status.QUEUED else done.failed).append(str(job.id))
    if job.status is Status.QUEUED:
        metrics.count("worker_recovered_jobs_total", reason="stale")
    ended = "reaper_requeues_total" if job.status is Status.QUEUED else "reaper_failures_total"
    metrics.count(ended, table=table, stage=job.stage)
    told = {"job_id": str(job.id), "table": table, "stage": job.stage, "attempt": job.attempt_count}
    logger.warning("lease taken away", extra=told | {"status": job.status, "error": job.last_error})
    if job.is_final:
        scratch.remove_job(settings.current().scratch_dir, job.id)
