"""What may be forgotten, and what is still referred to?

Only what has ended is looked at, in small batches, and a row that somebody is just writing is left for the next time.
While a job is tidied its row is locked: nobody can begin a run that would find a file which is just being removed.
Entries of the ledger are never forgotten: the balance is their sum. The story of a job may only be cut, never changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import text

from pipeline.store.engine import Database, fetch

ENDED = "j.status IN ('completed', 'failed', 'cancelled')"

# -- what lies at targets --------------------------------------------------------------------------------------------

# In pages by key: a job that cannot be tidied must not keep the others from it.
UNTIDIED = text(f"""
    SELECT j.id, j.finished_at,
           array(SELECT t #>> '{{}}' FROM jsonb_path_query(j.request, '$.targets[*]') AS t
                 UNION SELECT d.target FROM deliveries d WHERE d.job_id = j.id) AS targets
      FROM jobs j
     WHERE {ENDED} AND j.finished_at IS NOT NULL AND j.tidied_run < j.run
       AND j.finished_at < clock_timestamp() - CAST(:delay AS interval)
       AND (j.finished_at, j.id) > (CAST(:at AS timestamptz), CAST(:id AS uuid))
     ORDER BY j.finished_at, j.id LIMIT :limit""")

LOCK = text(f"""
    SELECT j.id FROM jobs j
     WHERE j.id = :id AND {ENDED} AND j.tidied_run < j.run
       AND j.finished_at < clock_timestamp() - CAST(:delay AS interval)
       FOR NO KEY UPDATE SKIP LOCKED""")

# Of what is published and of what a requeue would go on with. A manifest is no output: the job itself knows its key.
REFERRED_TO = text("""
    SELECT d.target, f.file->>'key' AS key
      FROM jobs j JOIN outputs o ON o.job_id = j.id AND o.generation IN (j.generation, j.building)
      JOIN deliveries d ON d.output_id = o.id AND d.status = 'delivered',
           jsonb_array_elements(d.files) AS f (file)
     WHERE j.id = :id
    UNION ALL
    SELECT m.target, coalesce(j.context->'finalize'->>'key', substring(m.url FROM 'jobs/' || j.id || '/.*'))
      FROM jobs j, jsonb_each_text(j.context->'finalize'->'manifest') AS m (target, url)
     WHERE j.id = :id AND NOT EXISTS (SELECT FROM deliveries d WHERE d.job_id = j.id AND d.status = 'expired')""")

DROP_OUTPUTS = text("""
    DELETE FROM outputs o USING jobs j
     WHERE j.id = :id AND o.job_id = j.id AND o.generation NOT IN (j.generation, j.building)""")
DROP_UNITS = text("""
    DELETE FROM checkpoints c USING jobs j
     WHERE j.id = :id AND c.job_id = j.id AND c.generation NOT IN (j.generation, j.building)""")
TIDIED = text("UPDATE jobs SET tidied_run = run WHERE id = :id")


@dataclass(frozen=True)
class Untidied:
    """An ended job of which nobody has cleared away what is not referred to."""

    id: UUID
    finished_at: datetime
    targets: list[str]


@dataclass
class Tidying:
    """What must stay at each target; whoever has removed the rest says that it is done."""

    keep: dict[str, set[str]] = field(default_factory=dict)
    is_done: bool = False


def untidied(db: Database, delay: timedelta, after: Untidied | None, limit: int = 200) -> list[Untidied]:
    """Jobs that ended this long ago and were not tidied since, oldest first; those after one that was seen."""
    at, seen = (after.finished_at, after.id) if after else ("-infinity", UUID(int=0))
    rows = db.run(UNTIDIED, delay=delay, at=at, id=seen, limit=limit)
    return [Untidied(row.id, row.finished_at, row.targets) for row in rows]


@contextmanager
def tidying(db: Database, job: UUID, delay: timedelta) -> Iterator[Tidying | None]:
    """The job while nobody can ask for it again; None if it runs again, was tidied, or is just being written.

    If it is done in the end, the rows of generations that nobody refers to go too.
    """
    with db.transaction() as conn:
        if not fetch(conn.execute(LOCK, {"id": job, "delay": delay})):
            yield None
            return
        work = Tidying()
        for row in fetch(conn.execute(REFERRED_TO, {"id": job})):
            work.keep.setdefault(row.target, set()).add(row.key)
        yield work
        if work.is_done:
            for statement in (DROP_OUTPUTS, DROP_UNITS, TIDIED):
                conn.execute(statement, {"id": job})


# -- what is kept for a time -----------------------------------------------------------------------------------------

# The files themselves are removed when the job is tidied again.
EXPIRE = text(f"""
    WITH chosen AS (
        SELECT j.id FROM jobs j
         WHERE {ENDED} AND j.finished_at < clock_timestamp() - CAST(:age AS interval)
           AND j.id IN (SELECT d.job_id FROM deliveries d
                         WHERE d.status = 'delivered' AND d.updated_at < clock_timestamp() - CAST(:age AS interval))
         ORDER BY j.id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED),
    expired AS (
        UPDATE deliveries d SET status = 'expired', files = '[]', updated_at = clock_timestamp()
          FROM chosen c WHERE d.job_id = c.id AND d.status = 'delivered'),
    untidied AS (UPDATE jobs j SET tidied_run = 0 FROM chosen c WHERE j.id = c.id)
    SELECT id FROM chosen""")

# Both ends stay: how it began, and how it ended.
SHORTEN = text(f"""
    WITH chosen AS (
        SELECT j.id FROM jobs j
         WHERE {ENDED} AND j.finished_at IS NOT NULL AND j.shortened_run < j.run
           AND j.finished_at < clock_timestamp() - CAST(:age AS interval)
         ORDER BY j.finished_at, j.id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED),
    ends AS (SELECT min(e.id) AS first, max(e.id) AS last FROM job_events e JOIN chosen c ON c.id = e.job_id
              GROUP BY e.job_id),
    cut AS (
        DELETE FROM job_events e USING chosen c
         WHERE e.job_id = c.id AND e.id NOT IN (SELECT first FROM ends UNION ALL SELECT last FROM ends)),
    noted AS (UPDATE jobs j SET shortened_run = run FROM chosen c WHERE j.id = c.id)
    SELECT id FROM chosen""")

# Whoever keeps files for a time keeps their jobs as long: who else would know of them?
FORGET = text(f"""
    WITH chosen AS (
        SELECT j.id FROM jobs j
         WHERE {ENDED} AND j.created_at < clock_timestamp() - CAST(:age AS interval)
           AND j.finished_at < clock_timestamp() - CAST(:age AS interval) AND j.tidied_run = j.run
           AND (:keeps_files OR NOT EXISTS (
                SELECT FROM deliveries d WHERE d.job_id = j.id AND d.status = 'delivered'))
         ORDER BY j.created_at, j.id LIMIT :limit FOR UPDATE SKIP LOCKED),
    story AS (DELETE FROM job_events e USING chosen c WHERE e.job_id = c.id),
    attempts AS (DELETE FROM job_attempts a USING chosen c WHERE a.job_id = c.id),
    forgotten AS (DELETE FROM jobs j USING chosen c WHERE j.id = c.id)
    SELECT id FROM chosen""")

FORGET_ALONE = text(f"""
    WITH chosen AS (
        SELECT j.id FROM asr_jobs j
         WHERE {ENDED} AND j.job_id IS NULL AND j.finished_at < clock_timestamp() - CAST(:age AS interval)
         ORDER BY j.id LIMIT :limit FOR UPDATE SKIP LOCKED),
    story AS (DELETE FROM job_events e USING chosen c WHERE e.job_id = c.id),
    attempts AS (DELETE FROM job_attempts a USING chosen c WHERE a.job_id = c.id),
    forgotten AS (DELETE FROM asr_jobs j USING chosen c WHERE j.id = c.id)
    SELECT id FROM chosen""")

# Whoever has a key registered, and comes back; whoever holds a job is still waited for.
FORGET_WORKERS = text("""
    WITH chosen AS (
        SELECT w.id FROM workers w
         WHERE (w.status = 'offline' OR w.stopped_at IS NOT NULL)
           AND coalesce(w.last_heartbeat, w.registered_at) < clock_timestamp() - CAST(:age AS interval)
           AND NOT EXISTS (SELECT FROM api_keys k WHERE k.worker_id = w.id)
           AND NOT EXISTS (SELECT FROM jobs j WHERE j.status = 'processing' AND j.locked_by = w.id::text)
           AND NOT EXISTS (SELECT FROM asr_jobs j WHERE j.status = 'processing' AND j.locked_by = w.id::text)
         ORDER BY w.id LIMIT :limit FOR UPDATE SKIP LOCKED)
    DELETE FROM workers w USING chosen c WHERE w.id = c.id RETURNING w.id""")


def expire_files(db: Database, age: timedelta, limit: int) -> int:
    """Note of up to `limit` jobs that ended this long ago that their files are no longer kept; how many those were."""
    return len(db.run(EXPIRE, age=age, limit=limit))


def shorten_stories(db: Database, age: timedelta, limit: int) -> int:
    """Forget what happened in up to `limit` jobs that ended this long ago, between their first event and their last."""
    return len(db.run(SHORTEN, age=age, limit=limit))


def forget_jobs(db: Database, age: timedelta, limit: int, *, keeps_files: bool) -> int:
    """Forget up to `limit` jobs that ended this long ago and are tidied; what they cost stays in the ledger.

    `keeps_files`: their files stay at their targets for ever; else only jobs go that have none left.
    """
    return len(db.run(FORGET, age=age, limit=limit, keeps_files=keeps_files))


def forget_transcriptions(db: Database, age: timedelta, limit: int) -> int:
    """Forget up to `limit` transcriptions that stood alone and ended this long ago."""
    return len(db.run(FORGET_ALONE, age=age, limit=limit))


def forget_workers(db: Database, age: timedelta, limit: int) -> int:
    """Forget up to `limit` workers that have been dead for this long."""
    return len(db.run(FORGET_WORKERS, age=age, limit=limit))
