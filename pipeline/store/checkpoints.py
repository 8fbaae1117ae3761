"""What is already done? One record per costly unit, written when the unit is finished, under the fence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import text

from pipeline.store.engine import Database, dumps
from pipeline.store.fenced import fenced, write

PUT = fenced("""
    INSERT INTO checkpoints (job_id, generation, key, fence, record)
    SELECT id, :generation, :key, :fence, CAST(:record AS jsonb) FROM mine
    ON CONFLICT (job_id, generation, key) DO UPDATE
       SET record = excluded.record, fence = excluded.fence, made_at = clock_timestamp()
    RETURNING job_id""")

ALL = text("SELECT key, record FROM checkpoints WHERE job_id = :job AND generation = :generation")


def put(db: Database, job: UUID, fence: UUID, generation: int, key: str, record: Mapping[str, Any]) -> bool:
    """Remember that a unit is done; False: the lease is lost."""
    return write(db, PUT, job, fence, generation=generation, key=key, record=dumps(record))


def of(db: Database, job: UUID, generation: int) -> dict[str, dict[str, Any]]:
    """Every record of a generation, by key."""
    return {row.key: row.record for row in db.run(ALL, job=job, generation=generation)}
