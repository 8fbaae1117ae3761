"""What do people want to see of jobs? Queries that change nothing."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import text

from pipeline.store import outputs
from pipeline.store.engine import Database
from pipeline.store.jobs import Table, no_such

# Without the fence and the request's hash: neither is anybody's business.
SHOWN = """
    j.id, j.account_id, j.status, j.stage, j.plan, j.outcome, j.priority, j.recovery, j.run, j.generation, j.building,
    j.progress, j.attempt_count, j.max_attempts, j.crash_count, j.release_count, j.rewind_count, j.locked_by,
    j.lease_expires_at, j.deadline_at, j.last_heartbeat_at, j.processing_started_at, j.next_earliest_run_at,
    j.skip_until, j.waiting_on, j.published_at, j.last_progress_value, j.last_progress_update, j.fail_code,
    j.fail_reason, j.last_error, j.created_at, j.updated_at, j.finished_at, j.request, j.context"""

ONE = text(f"SELECT {SHOWN}, j.error_history FROM jobs j WHERE j.id = :id")

PUBLISHED = text("SELECT generation FROM jobs WHERE id = :id")

# Keyset pages: newest first, then everything before the last one seen.
PAGE = text(f"""
    SELECT {SHOWN} FROM jobs j
     WHERE (CAST(:status AS text) IS NULL OR j.status = :status)
       AND (CAST(:before AS uuid) IS NULL
            OR (j.created_at, j.id) < (SELECT b.created_at, b.id FROM jobs b WHERE b.id = :before))
     ORDER BY j.created_at DESC, j.id DESC LIMIT :limit""")

EVENTS = text("""
    SELECT id, job_id, type, stage, attempt, data, at FROM job_events
     WHERE job_id = :job AND id > :after ORDER BY id LIMIT :limit""")

LAST_EVENTS = text("""
    SELECT * FROM (
        SELECT id, job_id, type, stage, attempt, data, at FROM job_events
         WHERE job_id = :job ORDER BY id DESC LIMIT :limit) e
     ORDER BY id""")

ATTEMPTS = text("""
    SELECT run, stage, attempt, worker, started_at, ended_at, ended_by FROM job_attempts
     WHERE job_id = :job ORDER BY started_at""")

COUNTS = text("SELECT status, stage, count(*) AS n FROM jobs GROUP BY status, stage")

BEGINNING = {
    table: text(f"SELECT j.id FROM {table} j WHERE j.id BETWEEN :first AND :last AND {table.own} LIMIT 2")
    for table in Table
}


def one(db: Database, job: UUID) -> dict[str, Any]:
    """A job with its outputs and where they were delivered."""
    rows = db.run(ONE, id=job)
    if not rows:
        raise no_such(job)
    shown = dict(rows[0]._mapping)
    shown["outputs"] = _outputs(db, job, shown["building"])
    return shown


def newest_outputs(db: Database, job: UUID) -> list[dict[str, Any]]:
    """The published outputs of a job and where they lie: while it is rerendered, those of the old generation."""
    rows = db.run(PUBLISHED, id=job)
    if not rows:
        raise no_such(job)
    return _outputs(db, job, rows[0].generation)


def newest_output(db: Database, job: UUID, name: str) -> dict[str, Any] | None:
    """The published output of this name; None: there is none (yet)."""
    return next((output for output in newest_outputs(db, job) if output["name"] == name), None)


def _outputs(db: Database, job: UUID, generation: int) -> list[dict[str, Any]]:
    by_output: dict[int, list[dict[str, Any]]] = {}
    for delivery in outputs.deliveries(db, job, generation):
        by_output.setdefault(delivery.pop("output_id"), []).append(delivery)
    return [
        {
            "name": o.name,
            "kind": o.kind,
            "clip": o.clip,
            "quality": o.quality,
            "status": o.status,
            "facts": o.facts,
            "error_code": o.error_code,
            "error_message": o.error_message,
            "deliveries": by_output.get(o.id, []),
        }
        for o in outputs.of(db, job, generation)
    ]


def page(
    db: Database, *, status: str | None = None, before: UUID | None = None, limit: int = 50
) -> list[dict[str, Any]]:
    """The newest jobs, or those just before one that was seen."""
    return [dict(row._mapping) for row in db.run(PAGE, status=status, before=before, limit=limit)]


def events(db: Database, job: UUID, *, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
    """What happened to a job, oldest first."""
    return [dict(row._mapping) for row in db.run(EVENTS, job=job, after=after, limit=limit)]


def last_events(db: Database, job: UUID, limit: int) -> list[dict[str, Any]]:
    """What happened to a job last, oldest first."""
    return [dict(row._mapping) for row in db.run(LAST_EVENTS, job=job, limit=limit)]


def attempts(db: Database, job: UUID) -> list[dict[str, Any]]:
    """Every execution of every stage, oldest first."""
    return [dict(row._mapping) for row in db.run(ATTEMPTS, job=job)]


def counts(db: Database) -> list[dict[str, Any]]:
    """How many jobs are in which status and stage."""
    return [dict(row._mapping) for row in db.run(COUNTS)]


def beginning_with(db: Database, digits: str, table: Table = Table.JOBS) -> list[UUID]:
    """The ids that begin with these hexadecimal digits; two of them, if they are many."""
    first, last = (UUID(digits.ljust(32, filler)) for filler in "0f")
    return [row.id for row in db.run(BEGINNING[table], first=first, last=last)]
