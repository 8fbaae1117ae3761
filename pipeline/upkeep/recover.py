"""recover: whatever is stuck goes on from its last finished unit, at the head of the queue.

Reap and sweep do that all the time. This looks at what both may have left: rows that have been running for half an
hour under nobody's lease. It may be asked for at any time, by anybody, and twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from pipeline import log, metrics, settings
from pipeline.core.job import Job, Status
from pipeline.store import checkpoints, leases, outputs
from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from pipeline.upkeep.alone import alone
from pipeline.upkeep.reap import database_was_away, reap
from pipeline.upkeep.sweep import sweep

logger = log.get("recovery")

BATCH = 200


@dataclass(frozen=True)
class Recovered:
    """What recovery did."""

    recovered: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def recover() -> Recovered:
    """Find what is stuck and send it on its way again; what was stuck for too long has failed."""
    done = alone("recover", _recover, Recovered())
    reaped = reap()
    done.recovered.extend(reaped.requeued)
    done.failed.extend(reaped.failed)
    sweep()
    logger.info("[Recovery] Recovery complete: %d recovered, %d failed", len(done.recovered), len(done.failed))
    return done


def _recover(db: Database) -> Recovered:
    now, done = settings.current(), Recovered()
    logger.info("[Recovery] Starting job recovery...")
    away = database_was_away(db, now)
    silence = None if away else timedelta(seconds=now.worker_offline_sec)
    for table in Table:
        while batch := leases.recover_some(
            db,
            table,
            BATCH,
            stuck_after=timedelta(seconds=now.stuck_after_sec),
            too_long=timedelta(seconds=now.recovery_limit_sec),
            silence=silence,
        ):
            logger.info("[Recovery] Found %d stuck", len(batch))
            for job in batch:
                _note(db, done, table, job)
    return done


def _note(db: Database, done: Recovered, table: Table, job: Job) -> None:
    if job.status is not Status.QUEUED:
        done.failed.append(str(job.id))
        logger.error("[Recovery] Failed %s: %s", job.id, job.fail_reason)
        return
    done.recovered.append(str(job.id))
    metrics.count("worker_recovered_jobs_total", reason="recovery")
    units = len(checkpoints.of(db, job.id, job.building)) if table is Table.JOBS else 0
    wanted = len(outputs.of(db, job.id, job.building)) if table is Table.JOBS else 1
    logger.info("[Recovery] Recovering %s (%d/%d completed)", job.id, min(units, wanted), wanted)
    logger.info("[Recovery] Re-queuing %s from checkpoint %d", job.id, units)
