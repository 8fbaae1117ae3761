"""How long does a lease live, and who takes it away? What a holder writes between two moves, and what the reaper does.

A holder renews and tells its progress under its own fence or delivery; whoever lost the lease writes nothing. The
reaper plays `Expire` through the same door as everybody, for leases that are over and for holders that are dead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text

from pipeline import crashpoints
from pipeline.core.job import Job, Stage
from pipeline.core.moves import Expire, Move, Proof, Refusal, Stall
from pipeline.crashpoints import At
from pipeline.store.engine import Database, dumps, fetch
from pipeline.store.jobs import Table, decide, select, write
from pipeline.store.rows import job_of

# -- the holder ------------------------------------------------------------------------------------------------------


def _kept(table: Table) -> str:
    return f"""{table}_mine AS (
        SELECT id FROM {table}
         WHERE status = 'processing' AND locked_by = :holder AND request_id = ANY (:requests)
         ORDER BY id FOR NO KEY UPDATE),
    {table}_kept AS (
        UPDATE {table} t
           SET lease_expires_at = least(clock_timestamp() + CAST(:lease AS interval), t.deadline_at),
               last_heartbeat_at = clock_timestamp()
          FROM {table}_mine m WHERE t.id = m.id
        RETURNING t.id)"""


# Matching request_id means: only what the worker is really running. The deadline bounds every renewal.
RENEW = text(f"""
    WITH {", ".join(_kept(table) for table in Table)}
    {" UNION ALL ".join(f"SELECT id FROM {table}_kept" for table in Table)}""")


def renew(db: Database, holder: str, requests: Sequence[str], lease: timedelta) -> set[UUID]:
    """Push out the end of every lease that this worker is really running; the jobs that it still holds."""
    return {row.id for row in db.run(RENEW, holder=holder, requests=list(requests), lease=lease)}


# The fence alone decides: who is late but not yet reaped may go on.
PULSE = text("""
    UPDATE jobs
       SET progress = coalesce(:percent, progress),
           last_progress_update = CASE WHEN last_progress_value IS DISTINCT FROM coalesce(:value, last_progress_value)
                                       THEN clock_timestamp() ELSE last_progress_update END,
           last_progress_value = coalesce(:value, last_progress_value)
     WHERE id = :id AND fence = :fence AND status = 'processing'
    RETURNING id""")


HELD = text("SELECT 1 FROM jobs WHERE id = :id AND fence = :fence AND status = 'processing'")


def is_held(db: Database, job_id: UUID, fence: UUID) -> bool:
    """Whether that fence is still the row's."""
    return bool(db.run(HELD, id=job_id, fence=fence))


def pulse(db: Database, job_id: UUID, fence: UUID, percent: float | None, value: float | None) -> bool:
    """Write progress; False if the lease is lost."""
    return bool(db.run(PULSE, id=job_id, fence=fence, percent=percent, value=value))


# -- the reaper ------------------------------------------------------------------------------------------------------

# Waiting jobs of accounts are refunded in this order: two reapers never wait crosswise.
_SOME = " ORDER BY j.account_id, j.id LIMIT :limit FOR UPDATE SKIP LOCKED"
_RUNNING = "j.status = 'processing'"
_OVER = (
    f"{_RUNNING} AND j.lease_expires_at < clock_timestamp() - CAST(:grace AS interval)"
    " AND (j.attempt_count >= j.max_attempts OR coalesce(j.next_earliest_run_at, '-infinity') <= clock_timestamp())"
)
_HOLDER_DEAD = """j.locked_by IN (
        SELECT w.id::text FROM workers w
         WHERE w.stopped_at IS NOT NULL OR w.id = ANY (CAST(:gone AS uuid[]))
            OR w.last_heartbeat < clock_timestamp() - CAST(:silence AS interval))"""


def expire_some(db: Database, table: Table, limit: int, grace: timedelta = timedelta(0)) -> list[Job]:
    """Take away up to `limit` leases that are over; the jobs as they are afterwards.

    Rows that somebody else is just writing are left for the next time: a finisher is never waited for.
    """
    return _take(db, table, _OVER, _expire(Proof.LEASE_EXPIRED), limit=limit, grace=grace)


def expire_dead(
    db: Database, table: Table, limit: int, *, gone: Sequence[UUID] = (), silence: timedelta | None = None
) -> list[Job]:
    """Take away up to `limit` leases of the dead: they said goodbye, are gone for certain, or are silent for so long.

    Without `silence` no silence counts.
    """
    which = f"{_RUNNING} AND {_HOLDER_DEAD}"
    return _take(db, table, which, _expire(Proof.WORKER_DEAD), limit=limit, gone=list(gone), silence=silence)


def recover_some(
    db: Database, table: Table, limit: int, *, stuck_after: timedelta, too_long: timedelta, silence: timedelta | None
) -> list[Job]:
    """Give back what has run for so long under a lease that is over or a dead holder; fail what ran too long."""
    which = (
        f"{_RUNNING} AND j.processing_started_at < clock_timestamp() - CAST(:stuck_after AS interval)"
        f" AND (j.lease_expires_at < clock_timestamp() OR {_HOLDER_DEAD})"
    )
    params = {"limit": limit, "stuck_after": stuck_after, "gone": [], "silence": silence}
    return _take(db, table, which, _expire(Proof.WORKER_DEAD, too_long), **params)


def stall_some(db: Database, limit: int, allowed: Mapping[Stage, timedelta]) -> list[Job]:
    """Take away up to `limit` leases of stages whose progress has not changed for longer than theirs may."""
    which = f"{_RUNNING} AND j.last_progress_update < clock_timestamp() - (CAST(:allowed AS jsonb)->>j.stage)::interval"
    told = dumps({stage: f"{span.total_seconds()} s" for stage, span in allowed.items()})
    return _take(db, Table.JOBS, which, lambda job: _stall(job, allowed[job.stage]), limit=limit, allowed=told)


def _expire(proof: Proof, too_long: timedelta | None = None) -> Callable[[Job], Move]:
    return lambda job: Expire(proof=proof, fence=job.fence, limit=too_long)


def _stall(job: Job, threshold: timedelta) -> Move:
    assert job.fence is not None
    return Stall(fence=job.fence, threshold=threshold)


def _take(db: Database, table: Table, which: str, move: Callable[[Job], Move], **params: Any) -> list[Job]:
    moved = []
    with db.transaction() as conn:
        for row in fetch(conn.execute(select(table, which + _SOME), params)):
            crashpoints.reached(At.REAP_FOUND)
            job = job_of(row._mapping)
            change = decide(job, [move(job)], row.now)
            if isinstance(change, Refusal):
                continue
            statement, values = write(job, change, row.now, table)
            moved += [job_of(r._mapping) for r in fetch(conn.execute(statement, values))]
            crashpoints.reached(At.REAP_WRITTEN)
    return moved
