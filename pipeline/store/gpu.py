"""Which jobs go to GPU workers?

As many as these have slots with nothing to do, and only while they were heard of a moment ago. Whoever is not claimed
there in about that time goes to any other worker: an idle GPU is used first, and nobody ever waits for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from sqlalchemy import text

from pipeline.core.job import Job
from pipeline.core.routing import GPU, ON_GPU
from pipeline.store.engine import Database

ON_THE_WAY_TO_GPU = "j.status = 'queued' AND j.published_at IS NOT NULL AND j.queue = 'gpu'"

# Slots of workers that were heard of within :fresh and take work, less what runs on them or is on its way to them.
IDLE_GPU = f"""
    greatest(0, (
        SELECT coalesce(sum(w.slots), 0) - (
                   SELECT count(*) FROM jobs j
                    WHERE j.status = 'processing' AND j.locked_by = ANY (array_agg(w.id::text)))
          FROM workers w
         WHERE 'gpu' = ANY (w.queues) AND w.status NOT IN ('offline', 'disabled') AND w.stopped_at IS NULL
           AND w.last_heartbeat > clock_timestamp() - CAST(:fresh AS interval) AND w.metadata->>'paused' IS NULL)
        - (SELECT count(*) FROM jobs j WHERE {ON_THE_WAY_TO_GPU}))"""

SEND = text("UPDATE jobs SET queue = 'gpu' WHERE id = ANY (:ids) AND status = 'queued' AND published_at IS NOT NULL")

# Marked with another queue: whoever seemed idle did not take it, so it is not sent there again.
BACK = text(f"""
    WITH unclaimed AS (
        SELECT j.id FROM jobs j
         WHERE {ON_THE_WAY_TO_GPU} AND j.published_at < clock_timestamp() - CAST(:fresh AS interval)
           FOR UPDATE SKIP LOCKED)
    UPDATE jobs j SET published_at = NULL, queue = 'media' FROM unclaimed WHERE j.id = unclaimed.id RETURNING j.id""")

KEEP = text(f"""
    UPDATE jobs SET published_at = NULL
     WHERE id = :id AND status = 'queued' AND stage = ANY (:stages) AND queue IS NULL AND {IDLE_GPU} > 0
    RETURNING id""")


def send(db: Database, jobs: Sequence[Job]) -> list[Job]:
    """Note that these go to GPU workers."""
    db.run(SEND, ids=[job.id for job in jobs])
    return [replace(job, queue=GPU) for job in jobs]


def take_back(db: Database, fresh: timedelta) -> list[UUID]:
    """Whoever was sent to a GPU worker and not claimed for so long waits for any worker."""
    return [row.id for row in db.run(BACK, fresh=fresh)]


def keep(db: Database, job_id: UUID, fresh: timedelta) -> bool:
    """Whether the job comes to a stage that an idle GPU worker should have: then it waits unpublished."""
    return bool(db.run(KEEP, id=job_id, stages=[str(stage) for stage in ON_GPU], fresh=fresh))
