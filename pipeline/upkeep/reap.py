"""reap: nobody waits for the dead."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline import log, scratch, settings
from pipeline.core.job import Status
from pipeline.store import jobs, leases
from pipeline.store.engine import Database
from pipeline.upkeep.alone import alone

logger = log.get("reap")

BATCH = 200


@dataclass(frozen=True)
class Reaped:
    """What the reaper did."""

    requeued: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def reap() -> Reaped:
    """Take expired leases away: back to the queue while attempts are left, failed otherwise."""
    return alone("reap", _reap, Reaped())


def _reap(db: Database) -> Reaped:
    done = Reaped()
    for table in jobs.Table:
        while batch := leases.expire_some(db, table, BATCH):
            for job in batch:
                ended_well = job.status is Status.QUEUED
                (done.requeued if ended_well else done.failed).append(str(job.id))
                logger.warning(
                    "lease expired",
                    extra={
                        "job_id": str(job.id),
                        "table": table,
                        "stage": job.stage,
                        "attempt": job.attempt_count,
                        "status": job.status,
                    },
                )
                if job.is_final and table is jobs.Table.JOBS:
                    scratch.remove_job(settings.current().scratch_dir, job.id)
    return done
