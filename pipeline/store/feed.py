"""In which order did events happen, as far as anybody could see?

The ids of `job_events` are given out before commit, so a lower one can become visible after a higher one. `relay`
numbers each event when it can be seen, one relay at a time, without a hole and never twice: whoever has read up to a
number has missed nothing. Ids that were passed by are kept as gaps and looked at again; a gap is given up when every
transaction that ran when it was seen has ended. So a caller's transaction that stays open for an hour delays its own
events and nobody else's.

The relay commits synchronously. Its flush covers every commit that it saw, so only events that survive a crash of
Postgres get a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text

from pipeline.store.engine import Database, fetch

BATCH = 1000
PATIENCE = "1 min"  # an id can be given out a moment before its transaction is one that others can see

DURABLY = text("SET LOCAL synchronous_commit = on")

# Where the relay stands, and the lock that lets only one stand there; it dies with its holder.
HEAD = text("SELECT event_id, seq FROM feed_head WHERE name = 'feed' FOR UPDATE SKIP LOCKED")
# At the very first time. Ids below the first that can be seen may belong to transactions that have not committed.
BEGIN = text("""
    INSERT INTO feed_head (name, event_id, seq)
    SELECT 'feed', greatest(coalesce(min(id), 0) - 1000, 0), 0 FROM job_events
    ON CONFLICT DO NOTHING RETURNING event_id, seq""")
MOVE_ON = text("UPDATE feed_head SET event_id = greatest(event_id, :event), seq = :seq WHERE name = 'feed'")

# What is a gap and what is an event is decided on one snapshot: between two statements one could become the other.
ADVANCE = text("""
    WITH late AS (
        DELETE FROM feed_gaps g USING job_events e WHERE e.id = g.event_id RETURNING e.id, e.job_id),
    fresh AS MATERIALIZED (
        SELECT id, job_id FROM job_events WHERE id > :head ORDER BY id LIMIT :batch),
    missing AS (
        INSERT INTO feed_gaps (event_id, horizon)
        SELECT n, pg_snapshot_xmax(pg_current_snapshot())
          FROM generate_series(:head + 1, (SELECT max(id) FROM fresh)) AS n
         WHERE NOT EXISTS (SELECT FROM fresh WHERE fresh.id = n)
        ON CONFLICT DO NOTHING),
    all_new AS (SELECT id, job_id FROM late UNION ALL SELECT id, job_id FROM fresh)
    INSERT INTO event_feed (seq, event_id, job_id)
    SELECT :seq + row_number() OVER (ORDER BY id), id, job_id FROM all_new
    RETURNING seq, event_id""")

GIVE_UP = text(f"""
    DELETE FROM feed_gaps g
     WHERE g.horizon <= pg_snapshot_xmin(pg_current_snapshot())
       AND g.seen_at < clock_timestamp() - interval '{PATIENCE}'
       AND NOT EXISTS (SELECT FROM job_events e WHERE e.id = g.event_id)""")

COLUMNS = """
    f.seq, f.event_id, f.job_id, e."table", e.type, e.stage, e.attempt, e.data, e.at,
    coalesce(j.account_id, a.account_id) AS account_id"""
SOURCES = """
    event_feed f JOIN job_events e ON e.id = f.event_id
      LEFT JOIN jobs j ON j.id = f.job_id
      LEFT JOIN asr_jobs a ON a.id = f.job_id"""

AFTER = text(f"SELECT {COLUMNS} FROM {SOURCES} WHERE f.seq > :seq ORDER BY f.seq LIMIT :limit")
OF_JOB = text(f"""
    SELECT {COLUMNS} FROM {SOURCES} WHERE f.job_id = :job AND f.seq > :seq ORDER BY f.seq LIMIT :limit""")
OF_ACCOUNT = text(f"""
    SELECT {COLUMNS} FROM {SOURCES}
     WHERE coalesce(j.account_id, a.account_id) = :account AND f.seq > :seq ORDER BY f.seq LIMIT :limit""")
LAST = text("SELECT seq FROM feed_head WHERE name = 'feed'")

RUNNING = text("""
    SELECT id, account_id, stage, progress, last_progress_value FROM jobs
     WHERE status = 'processing' ORDER BY id LIMIT :limit""")


@dataclass(frozen=True, slots=True)
class Event:
    """An event with its number."""

    seq: int
    event_id: int
    job_id: UUID
    table: str
    type: str
    stage: str | None
    attempt: int | None
    data: dict[str, Any]
    at: Any
    account_id: str | None


def relay(db: Database) -> int:
    """Number what became visible since the last time; how many those are. Nothing while another does it."""
    with db.transaction() as conn:
        found = fetch(conn.execute(HEAD)) or fetch(conn.execute(BEGIN))
        if not found:
            return 0
        conn.execute(DURABLY)
        head, seq = found[0]
        rows = fetch(conn.execute(ADVANCE, {"head": head, "seq": seq, "batch": BATCH}))
        if rows:
            newest = {"event": max(row.event_id for row in rows), "seq": max(row.seq for row in rows)}
            conn.execute(MOVE_ON, newest)
        conn.execute(GIVE_UP)
    return len(rows)


def last(db: Database) -> int:
    """The newest number."""
    rows = db.run(LAST)
    return int(rows[0].seq) if rows else 0


def after(
    db: Database, seq: int, *, job: UUID | None = None, account: str | None = None, limit: int = BATCH
) -> list[Event]:
    """What was numbered after this one, in order; of one job or account if one is named."""
    if job is not None:
        rows = db.run(OF_JOB, seq=seq, job=job, limit=limit)
    elif account is not None:
        rows = db.run(OF_ACCOUNT, seq=seq, account=account, limit=limit)
    else:
        rows = db.run(AFTER, seq=seq, limit=limit)
    return [Event(**row._mapping) for row in rows]


def running(db: Database, limit: int = BATCH) -> list[dict[str, Any]]:
    """How far each running job is: not an event, so it has no number."""
    return [dict(row._mapping) for row in db.run(RUNNING, limit=limit)]
