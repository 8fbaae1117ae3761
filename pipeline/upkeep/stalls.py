"""stalls: a stage whose progress stands still is stopped and tried again.

By its progress value (bytes, media time, units), never by its age: what is slow goes on, what hangs does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline import log, metrics, settings
from pipeline.stages import STAGES
from pipeline.store import leases
from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from pipeline.upkeep.alone import alone
from pipeline.upkeep.reap import database_was_away

logger = log.get("stalls")

BATCH = 200


@dataclass(frozen=True)
class Stalled:
    """What was found to stand still."""

    stopped: list[str] = field(default_factory=list)


def stalls() -> Stalled:
    """Take the leases of stages that stand still; whoever held one notices within two seconds and ends its programs."""
    return alone("stalls", _stalls, Stalled())


def _stalls(db: Database) -> Stalled:
    found = Stalled()
    if database_was_away(db, settings.current()):
        return found  # nobody could say how far it was
    allowed = {stage: definition.stalls_after for stage, definition in STAGES.items()}
    while batch := [job for table in Table for job in leases.stall_some(db, BATCH, allowed, table)]:
        for job in batch:
            found.stopped.append(str(job.id))
            metrics.count("stalls_caught_total", stage=job.stage)
            if not job.is_final:
                metrics.count("worker_recovered_jobs_total", reason="stall")
            told = {"job_id": str(job.id), "stage": job.stage, "attempt": job.attempt_count, "status": job.status}
            logger.warning("stage stalled", extra=told | {"error": job.last_error})
    return found
