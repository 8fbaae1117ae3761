"""What does time ask for? That nobody waits for the dead (reap) and that whatever is due is published (sweep).

Everything here may run anywhere, at any time, twice at once or after a death in the middle: it decides nothing that
the row does not decide again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TypeVar

from pipeline import dispatch, log, scratch, settings
from pipeline.core.errors import BrokerUnavailable
from pipeline.core.job import Status
from pipeline.store import jobs
from pipeline.store import upkeep as runs
from pipeline.store.engine import Database, database

logger = log.get("upkeep")

REAP_BATCH = 200


@dataclass(frozen=True)
class Reaped:
    """What the reaper did."""

    requeued: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Swept:
    """What sweep did."""

    published: int = 0


Done = TypeVar("Done", Reaped, Swept)


def reap() -> Reaped:
    """Take expired leases away: back to the queue while attempts are left, failed otherwise."""
    return _alone("reap", _reap, Reaped())


def sweep() -> Swept:
    """Publish a fresh chain for every row that is due and has no message on its way."""
    return _alone("sweep", _sweep, Swept())


def _reap(db: Database) -> Reaped:
    done = Reaped()
    for table in jobs.Table:
        while batch := jobs.expire_some(db, table, REAP_BATCH):
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


def _sweep(db: Database) -> Swept:
    now = settings.current()
    lost_after = timedelta(seconds=now.republish_sec)
    due = jobs.take_due(db, now.sweep_batch, lost_after, dispatch.idle_stages())
    for n, job in enumerate(due):
        try:
            dispatch.start(job)
        except BrokerUnavailable:
            # Those that were not sent, and this one that perhaps was: the next sweep tries again.
            jobs.unpublish(db, [left.id for left in due[n:]])
            logger.warning("broker away", extra={"waiting": len(due) - n})
            return Swept(n)
    return Swept(len(due))


def _alone(name: str, run: Callable[[Database], Done], nothing: Done) -> Done:
    """Run it unless somebody else is just running it; remember when it ended and what it did."""
    db = database()
    with runs.alone(db, name) as mine:
        if not mine:
            return nothing
        runs.began(db, name)
        done = run(db)
        runs.ended(db, name, asdict(done))
        return done
