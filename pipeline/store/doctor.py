"""Which rows break an invariant? Queries that change nothing; each answers with an id and a detail a row.

They look at one snapshot, in a transaction that Postgres itself keeps read-only. The few writes beside them touch
records about jobs, never a job's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NewType
from uuid import UUID

from sqlalchemy import TextClause, text

from pipeline.store import due
from pipeline.store.engine import Database, fetch
from pipeline.store.why import DUE_SINCE

Query = NewType("Query", TextClause)

MOST = 100  # rows of one query that are told


@dataclass(frozen=True, slots=True)
class Found:
    """One row that breaks an invariant."""

    id: str
    detail: str


def _query(sql: str) -> Query:
    """The rows of a SELECT of id and detail, as many as are told and one more."""
    return Query(text(f"SELECT f.id::text AS id, f.detail AS detail FROM ({sql}) f LIMIT {MOST + 1}"))


def _both(sql: str) -> Query:
    """The same question to both tables that carry leases. A transcription inside a job has no life of its own."""
    jobs = sql.format(table="jobs", alone="true")
    return _query(f"{jobs} UNION ALL {sql.format(table='asr_jobs', alone='j.job_id IS NULL')}")


def _ago(moment: str) -> str:
    return f"extract(epoch FROM clock_timestamp() - {moment})::int || ' s ago'"


# -- leases and attempts ---------------------------------------------------------------------------------------------

LEASE_COLUMNS = "j.locked_by, j.fence, j.lease_expires_at, j.deadline_at, j.last_heartbeat_at"
ENDED = "j.status IN ('completed', 'failed', 'cancelled')"

RUNNING_WITHOUT_LEASE = _both(f"""
    SELECT j.id, j.stage || ', ' || num_nonnulls({LEASE_COLUMNS}) || ' of 5 lease columns' AS detail
      FROM {{table}} j WHERE j.status = 'processing' AND {{alone}} AND num_nonnulls({LEASE_COLUMNS}) < 5""")

QUEUED_WITH_LEASE = _both(f"""
    SELECT j.id, 'held by ' || coalesce(j.locked_by, 'nobody') AS detail
      FROM {{table}} j WHERE j.status = 'queued' AND num_nonnulls({LEASE_COLUMNS}) > 0""")

ENDED_WITH_LEASE = _both(f"""
    SELECT j.id, j.status || ', held by ' || coalesce(j.locked_by, 'nobody') AS detail
      FROM {{table}} j WHERE {ENDED} AND num_nonnulls({LEASE_COLUMNS}) > 0""")

ENDED_WITHOUT_TIME = _both(f"""
    SELECT j.id, j.status || CASE WHEN j.finished_at IS NULL THEN ' without' ELSE ' with' END || ' an end' AS detail
      FROM {{table}} j WHERE ({ENDED}) <> (j.finished_at IS NOT NULL)""")

TOO_MANY_ATTEMPTS = _both("""
    SELECT j.id, j.status || ' at ' || j.stage || ', ' || j.attempt_count || ' of ' || j.max_attempts AS detail
      FROM {table} j
     WHERE j.attempt_count > j.max_attempts OR (j.status = 'queued' AND j.attempt_count >= j.max_attempts)""")

RUNNING_WITHOUT_ATTEMPT = _both("""
    SELECT j.id, j.stage || ' by ' || j.locked_by AS detail
      FROM {table} j
     WHERE j.status = 'processing' AND {alone} AND j.fence IS NOT NULL AND NOT EXISTS (
           SELECT FROM job_attempts a WHERE a.fence = j.fence AND a.job_id = j.id AND a.ended_at IS NULL)""")

_LIVING = """(SELECT id, fence FROM jobs WHERE status = 'processing'
              UNION ALL SELECT id, fence FROM asr_jobs WHERE status = 'processing')"""

# Whoever is processing without a fence is told of elsewhere.
ATTEMPT_WITHOUT_RUN = _query(f"""
    SELECT a.fence AS id, a.stage || ' of job ' || a.job_id || ' by ' || a.worker AS detail
      FROM job_attempts a WHERE a.ended_at IS NULL AND NOT EXISTS (SELECT FROM {_LIVING} j WHERE j.id = a.job_id)""")

TWO_ATTEMPTS_AT_ONCE = _query(f"""
    SELECT a.fence AS id, a.stage || ' of job ' || a.job_id || ' by ' || a.worker AS detail
      FROM job_attempts a JOIN {_LIVING} j ON j.id = a.job_id
     WHERE a.ended_at IS NULL AND j.fence IS NOT NULL AND a.fence <> j.fence""")

# -- what time should have done --------------------------------------------------------------------------------------

_R = "unnest(CAST(:stages AS text[]), CAST(:queues AS text[])) AS r (stage, queue)"
_DUE = (
    "j.status = 'queued' AND coalesce(greatest(j.next_earliest_run_at, j.skip_until), '-infinity') <= clock_timestamp()"
)
_SERVED = """EXISTS (
    SELECT FROM workers w WHERE r.queue = ANY (w.queues) AND w.status NOT IN ('offline', 'disabled')
       AND w.last_heartbeat > clock_timestamp() - CAST(:offline AS interval))"""
# In three parts, each with an index of its own: a million finished rows cost nothing.
_UNFINISHED = """(SELECT * FROM jobs WHERE status = 'processing'
    UNION ALL SELECT * FROM jobs WHERE status = 'queued' AND published_at IS NULL
    UNION ALL SELECT * FROM jobs WHERE status = 'queued' AND published_at IS NOT NULL)"""
_IDLE = _SERVED.replace("w.status NOT IN", "w.status = 'idle' AND w.status NOT IN")

LEASE_NOT_REAPED = _both(f"""
    SELECT j.id, j.stage || ' by ' || j.locked_by || ', over ' || {_ago("j.lease_expires_at")} AS detail
      FROM {{table}} j
     WHERE j.status = 'processing' AND {{alone}}
       AND j.lease_expires_at < clock_timestamp() - CAST(:reap_late AS interval)""")

# `roomy`: the stages whose windows and limits let more through. While anything of its queue runs or is on its way, a
# row may wait for its turn; and what nobody serves is told of elsewhere.
DUE_WITHOUT_MESSAGE = _query(f"""
    SELECT j.id, j.stage || ', due ' || {_ago(DUE_SINCE)} AS detail
      FROM jobs j JOIN {_R} ON r.stage = j.stage
     WHERE {_DUE} AND j.published_at IS NULL AND j.stage = ANY (CAST(:roomy AS text[])) AND {_IDLE}
       AND {DUE_SINCE} < clock_timestamp() - CAST(:sweep_late AS interval)
       AND NOT EXISTS (SELECT FROM jobs q JOIN {_R.replace("AS r ", "AS o ")} ON o.stage = q.stage
                        WHERE q.status = 'queued' AND q.published_at IS NOT NULL AND o.queue = r.queue)
       AND NOT EXISTS (SELECT FROM jobs q JOIN {_R.replace("AS r ", "AS o ")} ON o.stage = q.stage
                        WHERE q.status = 'processing' AND o.queue = r.queue)""")

SENT_AND_NOT_CLAIMED = _query(f"""
    SELECT j.id, j.stage || ' in queue ' || r.queue || ', published ' || {_ago("j.published_at")} AS detail
      FROM jobs j JOIN {_R} ON r.stage = j.stage
     WHERE {_DUE} AND j.published_at < clock_timestamp() - CAST(:claim_late AS interval) AND {_IDLE}""")

QUEUE_WITHOUT_WORKER = _query(f"""
    SELECT r.queue AS id, count(*) || ' due jobs' AS detail
      FROM {_UNFINISHED} j JOIN {_R} ON r.stage = j.stage WHERE {_DUE} AND NOT {_SERVED} GROUP BY r.queue""")

# Where nothing is to be done, nobody misses it.
UPKEEP_OVERDUE = _query(f"""
    SELECT u.name AS id, coalesce('last ran ' || {_ago("n.last_ended_at")}, 'never ran')
           || ', expected every ' || round(u.every_s) || ' s' AS detail
      FROM unnest(CAST(:upkeep AS text[]), CAST(:upkeep_s AS float[])) AS u (name, every_s)
      LEFT JOIN upkeep_runs n ON n.name = u.name
     WHERE coalesce(n.last_ended_at, '-infinity') < clock_timestamp() - make_interval(secs => 3 * u.every_s + 10)
       AND EXISTS (SELECT FROM {_UNFINISHED} j
                    WHERE j.updated_at < clock_timestamp() - make_interval(secs => 3 * u.every_s + 10))""")

# -- what an end means -----------------------------------------------------------------------------------------------

COMPLETED_WITHOUT_OUTPUT = _query("""
    SELECT j.id, 'generation ' || j.generation AS detail
      FROM jobs j
     WHERE j.status = 'completed' AND NOT EXISTS (
           SELECT FROM outputs o WHERE o.job_id = j.id AND o.generation = j.generation AND o.status = 'completed')""")

FULL_BUT_NOT_ALL = _query("""
    SELECT j.id, o.name || ' is ' || o.status AS detail
      FROM jobs j JOIN outputs o ON o.job_id = j.id AND o.generation = j.generation
     WHERE j.status = 'completed' AND j.outcome = 'full' AND o.status NOT IN ('completed', 'skipped')""")

COMPLETED_BUT_NOWHERE = _query("""
    SELECT j.id, o.name || ' of generation ' || o.generation AS detail
      FROM jobs j JOIN outputs o ON o.job_id = j.id AND o.generation = j.generation
     WHERE j.status = 'completed' AND o.status = 'completed' AND NOT EXISTS (
           SELECT FROM deliveries d WHERE d.output_id = o.id AND d.status IN ('delivered', 'expired'))""")

# -- the ledger ------------------------------------------------------------------------------------------------------

BALANCE_IS_NOT_THE_SUM = _query("""
    SELECT a.id, 'balance ' || a.balance || ', entries ' || coalesce(e.total, 0) AS detail
      FROM accounts a LEFT JOIN (SELECT account_id, sum(amount) AS total FROM credit_entries GROUP BY 1) e
           ON e.account_id = a.id
     WHERE a.balance <> coalesce(e.total, 0)""")

_ENTRY = "'output ' || c.output_id || ' of job ' || c.job_id || ', run ' || c.run"

HOLD_WITHOUT_END = _query(f"""
    SELECT c.id, {_ENTRY} || ', ' || -c.amount || ' credits' AS detail
      FROM credit_entries c LEFT JOIN jobs j ON j.id = c.job_id
     WHERE c.kind = 'hold' AND (j.id IS NULL OR c.run < j.run OR {ENDED}) AND NOT EXISTS (
           SELECT FROM credit_entries e WHERE e.job_id = c.job_id AND e.output_id = c.output_id AND e.run = c.run
              AND e.kind IN ('charge', 'refund'))""")

HOLD_ENDED_TWICE = _query("""
    SELECT c.job_id AS id, 'output ' || c.output_id || ', run ' || c.run || ': '
           || string_agg(c.kind, ' and ' ORDER BY c.id) AS detail
      FROM credit_entries c WHERE c.kind IN ('charge', 'refund')
     GROUP BY c.job_id, c.output_id, c.run HAVING count(*) > 1""")

# A charge moves nothing, a refund gives back what was held.
END_WITHOUT_ITS_HOLD = _query(f"""
    SELECT c.id, c.kind || ' of ' || {_ENTRY} || ', ' || c.amount || ' against '
           || coalesce(h.amount::text, 'no hold') AS detail
      FROM credit_entries c
      LEFT JOIN credit_entries h ON h.job_id = c.job_id AND h.output_id = c.output_id AND h.run = c.run
           AND h.kind = 'hold'
     WHERE c.kind IN ('charge', 'refund')
       AND (h.id IS NULL OR c.amount <> CASE c.kind WHEN 'charge' THEN 0 ELSE -h.amount END)""")

SETTLED_BEFORE_ITS_END = _query(f"""
    SELECT c.id, c.kind || ' of ' || {_ENTRY} AS detail
      FROM {_UNFINISHED} j JOIN credit_entries c ON c.job_id = j.id AND c.run = j.run
     WHERE c.kind IN ('charge', 'refund')""")

# -- the story -------------------------------------------------------------------------------------------------------

STORY_WITHOUT_BEGINNING = _query("""
    SELECT j.id, 'begins with ' || coalesce(e.type, 'nothing') AS detail
      FROM jobs j LEFT JOIN LATERAL (
           SELECT type FROM job_events e WHERE e.job_id = j.id ORDER BY e.id LIMIT 1) e ON true
     WHERE e.type IS DISTINCT FROM 'queued'""")

# Of a job that is gone, only its story is left: nobody can say whether it still ran.
CLAIM_WITHOUT_END = _query("""
    SELECT e.id, 'claim of ' || coalesce(e.stage, '?') || ' of job ' || e.job_id || ', then '
           || coalesce(n.type, 'nothing') AS detail
      FROM job_events e LEFT JOIN LATERAL (
           SELECT type FROM job_events n WHERE n.job_id = e.job_id AND n.id > e.id ORDER BY n.id LIMIT 1) n ON true
     WHERE e.type = 'claimed' AND (n.type = 'claimed' OR n.type IS NULL AND (
           EXISTS (SELECT FROM jobs j WHERE j.id = e.job_id AND j.status <> 'processing')
        OR EXISTS (SELECT FROM asr_jobs j WHERE j.id = e.job_id AND j.status <> 'processing')))""")

# -- workers and breakers --------------------------------------------------------------------------------------------

SILENT_BUT_NOT_OFFLINE = _query(f"""
    SELECT w.id, w.name || ', ' || w.status || ', heard from ' || {_ago("w.last_heartbeat")} AS detail
      FROM workers w WHERE w.status NOT IN ('offline', 'disabled')
       AND w.last_heartbeat < clock_timestamp() - CAST(:long_silence AS interval)""")

# Only a job that waits for it can say how a source is asked.
_ASKABLE = """(b.service NOT LIKE 'source:%' OR EXISTS (
    SELECT FROM jobs j WHERE j.status = 'queued' AND j.published_at IS NULL AND j.waiting_on = b.service))"""

OPEN_AND_NOT_TRIED = _query(f"""
    SELECT b.service AS id, 'may be tried since ' || {_ago("b.opens_at")} AS detail
      FROM circuit_breakers b
     WHERE b.state = 'open' AND b.opens_at < clock_timestamp() - CAST(:probe_late AS interval) AND {_ASKABLE}""")

TRIAL_WITHOUT_ANSWER = _query(f"""
    SELECT b.service AS id, 'expired ' || {_ago("b.trial_expires_at")} AS detail
      FROM circuit_breakers b
     WHERE b.state = 'half_open' AND b.trial_expires_at < clock_timestamp() - CAST(:probe_late AS interval)
       AND {_ASKABLE}""")

# A fault defers a job for a moment without opening a breaker: who waits longer, and since before it was closed, was
# forgotten.
WAITING_FOR_NOTHING = _query("""
    SELECT b.service AS id, count(*) || ' jobs wait, one until ' || max(j.skip_until)::timestamptz(0) AS detail
      FROM jobs j JOIN circuit_breakers b ON b.service = j.waiting_on
     WHERE j.status = 'queued' AND j.published_at IS NULL AND b.state = 'closed'
       AND j.skip_until > clock_timestamp() + CAST(:soon AS interval)
       AND b.updated_at > j.updated_at AND b.updated_at < clock_timestamp() - CAST(:wake_late AS interval)
     GROUP BY b.service""")


def look(db: Database, queries: Mapping[str, Query], limits: Mapping[str, Any]) -> dict[str, list[Found]]:
    """What each query finds, all at one moment. Nothing can be written meanwhile."""
    params = {**limits, **due.routes()}
    found = {}
    with db.transaction() as conn:
        conn.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        conn.execute(text("SET LOCAL statement_timeout = '5min'"))
        for name, query in queries.items():
            rows = fetch(conn.execute(query, params))
            found[name] = [Found(row.id, row.detail) for row in rows]
    return found


# -- what lies outside of the database -------------------------------------------------------------------------------

LIFE_OF = text("""
    SELECT id, status IN ('completed', 'failed', 'cancelled') AS is_final,
           extract(epoch FROM clock_timestamp() - coalesce(finished_at, clock_timestamp()))::float AS ended_s
      FROM (SELECT id, status, finished_at FROM jobs UNION ALL SELECT id, status, finished_at FROM asr_jobs) j
     WHERE id = ANY (:ids)""")

# In pages by key: there may be millions.
DELIVERED = text("""
    SELECT d.output_id, d.target, d.job_id, d.files
      FROM deliveries d JOIN outputs o ON o.id = d.output_id JOIN jobs j ON j.id = d.job_id
     WHERE d.status = 'delivered' AND j.status = 'completed' AND o.generation = j.generation
       AND (d.output_id, d.target) > (:output, :target)
     ORDER BY d.output_id, d.target LIMIT :limit""")


def ended_for_s(db: Database, ids: Iterable[UUID]) -> dict[UUID, float | None]:
    """For how long each of these jobs has been over; None: it is not. Who does not exist is left out."""
    rows = db.run(LIFE_OF, ids=list(ids))
    return {row.id: row.ended_s if row.is_final else None for row in rows}


def delivered(db: Database, *, after: tuple[int, str] = (0, ""), limit: int = 500) -> list[dict[str, Any]]:
    """What completed jobs have delivered in their current generation, a page at a time."""
    rows = db.run(DELIVERED, output=after[0], target=after[1], limit=limit)
    return [dict(row._mapping) for row in rows]


# -- records that may be put right -----------------------------------------------------------------------------------

# Only what no lease stands behind: whoever really runs closes its own.
CLOSE = text(f"""
    UPDATE job_attempts a SET ended_at = clock_timestamp(), ended_by = 'unknown'
     WHERE a.ended_at IS NULL AND a.fence = ANY (CAST(:fences AS uuid[]))
       AND NOT EXISTS (SELECT FROM {_LIVING} j WHERE j.fence = a.fence)""")


def close_attempts(db: Database, fences: Iterable[str]) -> None:
    """Note that these executions are over; nobody knows how they ended."""
    db.run(CLOSE, fences=list(fences))
