"""Who still needs what was sent over HTTP? The jobs that name it say so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from sqlalchemy import text

from pipeline.store.engine import Database

NOW = text("SELECT extract(epoch FROM clock_timestamp())::float AS now")

# By its id: the folder may lie elsewhere on the machine that asks. The index has the very same words.
_UPLOAD = "substring(j.request->>'source' FROM '/uploads/[^/]+/([0-9a-f-]{36})[^/]*$')"

NAMED = text(f"""
    SELECT {_UPLOAD} AS upload, bool_or(j.status IN ('queued', 'processing')) AS is_needed,
           extract(epoch FROM clock_timestamp() - max(j.finished_at))::float AS ended_s
      FROM jobs j WHERE {_UPLOAD} = ANY (CAST(:ids AS text[])) GROUP BY 1
    UNION ALL
    SELECT DISTINCT {_UPLOAD}, true, CAST(NULL AS float)
      FROM asr_jobs j
     WHERE j.status IN ('queued', 'processing') AND j.job_id IS NULL AND {_UPLOAD} = ANY (CAST(:ids AS text[]))""")


@dataclass(frozen=True)
class Uses:
    """Which uploads jobs need now, and for how long those have not been needed that jobs did need."""

    now: float
    needed: set[UUID] = field(default_factory=set)
    over: dict[UUID, timedelta] = field(default_factory=dict)


def now(db: Database) -> float:
    """The seconds of Postgres's clock."""
    return float(db.run(NOW)[0].now)


def uses(db: Database, uploads: Iterable[UUID]) -> Uses:
    """What jobs say of these uploads; one that is in neither part was never named, or by jobs that are forgotten."""
    told = Uses(now(db))
    for row in db.run(NAMED, ids=[str(each) for each in uploads]):
        if row.is_needed:
            told.needed.add(UUID(row.upload))
        else:
            told.over[UUID(row.upload)] = timedelta(seconds=row.ended_s or 0)
    return told
