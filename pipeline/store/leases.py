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


# How long others wait at least before they take the job: for the end of the lease, and for a word from its worker.
_LEFT = """
    extract(epoch FROM least(j.lease_expires_at, (
        SELECT w.last_heartbeat + CAST(:silence AS interval) FROM workers w
         WHERE w.id = CASE WHEN j.locked_by ~ '^[0-9a-f-]{36}$' THEN CAST(j.locked_by AS uuid) END)
    ) - clock_timestamp())"""

# The fence alone decides: who is late but not yet reaped may go on.
_OURS = "j.id = :id AND j.fence = :fence AND j.status = 'processing'"
HELD = {table: text(f"SELECT {_LEFT} AS left_s FROM {table} j WHERE {_OURS}") for table in Table}
PULSE = {
    table: text(f"""
    UPDATE {table} j
       SET progress = coalesce(:percent, progress),
           last_progress_update = CASE WHEN last_progress_value IS DISTINCT FROM coalesce(:value, last_progress_value)
                                       THEN clock_timestamp() ELSE last_progress_update END,
           last_progress_value = coalesce(:value, last_progress_value)
     WHERE {_OURS}
    RETURNING {_LEFT} AS left_s""")
    for table in Table
}


def left_s(db: Database, job_id: UUID, fence: UUID, silence: timedelta, table: Table = Table.JOBS) -> float | None:
    """For how many seconds nobody else may take the job; None if that fence is not the row's any more."""
    return _left(db.run(HELD[table], id=job_id, fence=fence, silence=silence))


def pulse(
    db: Database,
    job_id: UUID,
    fence: UUID,
    percent: float | None,
    value: float | None,
    silence: timedelta,
    table: Table = Table.JOBS,
) -> float | None:
    """Write progress; the same answer."""
    return _left(db.run(PULSE[table], id=job_id, fence=fence, percent=percent, value=value, silence=silence))


def _left(rows: Sequence[Any]) -> float | None:
    return float(rows[0].left_s) if rows else None


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


def stall_some(db: Database, limit: int, allowed: Mapping[Stage, timedelta], table: Table = Table.JOBS) -> list[Job]:
    """Take away up to `limit` leases of stages whose progress has not changed for longer than theirs may."""
    which = f"{_RUNNING} AND j.last_progress_update < clock_timestamp() - (CAST(:allowed AS jsonb)->>j.stage)::interval"
    told = dumps({stage: f"{span.total_seconds()} s" for stage, span in allowed.items()})
    return _take(db, table, which, lambda job: _stall(job, allowed[job.stage]), limit=limit, allowed=told)


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
