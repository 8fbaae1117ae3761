"""What bears on whether a job runs now? Everything, at one moment of Postgres's clock, in two statements."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import TextClause, text

from pipeline.core.job import Outcome, Stage, Status
from pipeline.core.window import Sight, Silence
from pipeline.store import due
from pipeline.store.engine import Database
from pipeline.store.jobs import Table, no_such


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A job (or transcription), and as much of its surroundings as can keep it from running."""

    table: Table = Table.JOBS
    now: datetime
    status: Status
    stage: Stage
    queue: str
    outcome: Outcome | None = None
    attempt_count: int = 0
    max_attempts: int = 3
    progress: float = 0.0
    fail_code: str | None = None
    fail_reason: str | None = None
    last_error: str | None = None
    finished_at: datetime | None = None
    outputs: int = 0
    outputs_failed: int = 0
    cancelled_by: str | None = None

    # who runs it
    holder: str | None = None
    processing_started_at: datetime | None = None
    renewed_at: datetime | None = None
    lease_expires_at: datetime | None = None
    last_progress_update: datetime | None = None
    worker_name: str | None = None  # None: no such worker is registered
    worker_stopped: bool = False
    worker_heard_at: datetime | None = None

    # what it waits for
    next_earliest_run_at: datetime | None = None
    skip_until: datetime | None = None
    waiting_on: str | None = None
    first_deferred_at: datetime | None = None
    breaker: str | None = None  # the state of the one that it waits on; None: nobody has an opinion
    breaker_opens_at: datetime | None = None
    trial_expires_at: datetime | None = None
    broker: str | None = None  # the state of the broker's breaker

    # its way to a worker
    due_since: datetime | None = None  # when it came to wait; None: it does not
    published_at: datetime | None = None
    ahead: int = 0  # that come first: before it is published, of its own table; after that, of both
    published: int = 0  # messages on their way in its queue, its own too
    sweep_began_at: datetime | None = None
    sweep_ended_at: datetime | None = None
    sweep_published: int = 0
    reap_ended_at: datetime | None = None
    workers: int = 0  # that live and serve its queue
    workers_disabled: int = 0  # that live and would serve it
    workers_elsewhere: int = 0  # that live and serve other queues only
    slots: int = 0  # of those that serve it
    busy: int = 0
    sight: Sight = field(default_factory=Sight)  # how full the windows are


# Since when has a queued row been due? Whoever was woken does not say when: its breaker closed just before.
DUE_SINCE = """greatest(j.updated_at, j.next_earliest_run_at, j.skip_until, CASE WHEN j.first_deferred_at IS NOT NULL
                  THEN (SELECT max(woken.updated_at) FROM circuit_breakers woken) END)"""

# A worker lives while it was heard from within `offline`. Who holds a lease is a worker's id; tests and people may
# write other words there, and those are nobody's. What comes first is what the broker
# got first; before that, what is more urgent or older (sweep is also fair between accounts). Jobs and transcriptions
# share queues and slots.
EVERYTHING = " UNION ALL ".join(
    f"SELECT j.id, j.status, j.stage, j.published_at, j.locked_by FROM {table} j WHERE {table.own}" for table in Table
)


def _facts(table: Table) -> TextClause:
    return text(f"""
    WITH t AS MATERIALIZED (SELECT clock_timestamp() AS now),
    r AS MATERIALIZED (SELECT * FROM unnest(CAST(:stages AS text[]), CAST(:queues AS text[])) AS r (stage, queue)),
    job AS MATERIALIZED (
        SELECT j.*, {DUE_SINCE} AS due_since, CASE j.queue WHEN 'gpu' THEN 'gpu' ELSE r.queue END AS its_queue,
               (SELECT array_agg(o.stage) FROM r o WHERE o.queue = r.queue) AS neighbours,
               array_position(ARRAY['high', 'normal', 'low'], j.priority) AS rank
          FROM {table} j JOIN r ON r.stage = j.stage WHERE j.id = :id AND {table.own}),
    living AS MATERIALIZED (
        SELECT w.id::text AS id, w.status, w.slots, job.its_queue = ANY (w.queues) AS serves
          FROM job, t, workers w
         WHERE w.status <> 'offline' AND w.stopped_at IS NULL
           AND w.last_heartbeat > t.now - CAST(:offline AS interval)),
    fleet AS (
        SELECT count(*) FILTER (WHERE serves AND status <> 'disabled') AS workers,
               count(*) FILTER (WHERE serves AND status = 'disabled') AS workers_disabled,
               count(*) FILTER (WHERE NOT serves AND status <> 'disabled') AS workers_elsewhere,
               coalesce(sum(slots) FILTER (WHERE serves AND status <> 'disabled'), 0)::int AS slots,
               (SELECT count(*) FROM ({EVERYTHING}) h WHERE h.status = 'processing' AND h.locked_by IN (
                    SELECT id FROM living WHERE serves AND status <> 'disabled')) AS busy
          FROM living),
    line AS (
        SELECT count(*) AS published,
               count(*) FILTER (WHERE (q.published_at, q.id) < (job.published_at, job.id)) AS ahead
          FROM job, ({EVERYTHING}) q
         WHERE job.status = 'queued' AND q.status = 'queued' AND q.published_at IS NOT NULL
           AND q.stage = ANY (job.neighbours)),
    backlog AS (
        SELECT count(*) AS ahead
          FROM job, t, (SELECT * FROM {table} j WHERE {table.own}) q
         WHERE job.status = 'queued' AND job.published_at IS NULL
           AND q.status = 'queued' AND q.published_at IS NULL AND q.stage = ANY (job.neighbours)
           AND (NOT q.recovery, array_position(ARRAY['high', 'normal', 'low'], q.priority), q.created_at, q.id)
             < (NOT job.recovery, job.rank, job.created_at, job.id)
           AND coalesce(greatest(q.next_earliest_run_at, q.skip_until), '-infinity') <= t.now),
    made AS (
        SELECT count(*) AS outputs, count(*) FILTER (WHERE o.status = 'failed') AS outputs_failed
          FROM job, outputs o WHERE o.job_id = job.id AND o.generation = job.building)
    SELECT t.now, job.status, job.stage, job.its_queue AS queue, job.outcome, job.attempt_count, job.max_attempts,
           job.progress,
           job.fail_code, job.fail_reason, job.last_error, job.finished_at, made.outputs, made.outputs_failed,
           (SELECT e.data->>'by' FROM job_events e
             WHERE e.job_id = job.id AND e.type = 'cancelled' ORDER BY e.id DESC LIMIT 1) AS cancelled_by,
           job.locked_by AS holder, job.processing_started_at, job.last_heartbeat_at AS renewed_at,
           job.lease_expires_at, job.last_progress_update,
           w.name AS worker_name, w.stopped_at IS NOT NULL AS worker_stopped, w.last_heartbeat AS worker_heard_at,
           job.next_earliest_run_at, job.skip_until, job.waiting_on, job.first_deferred_at,
           b.state AS breaker, b.opens_at AS breaker_opens_at, b.trial_expires_at, broker.state AS broker,
           CASE WHEN job.status = 'queued' THEN job.due_since END AS due_since,
           job.published_at, CASE WHEN job.published_at IS NULL THEN backlog.ahead ELSE line.ahead END AS ahead,
           line.published, sweep.last_began_at AS sweep_began_at, sweep.last_ended_at AS sweep_ended_at,
           coalesce((sweep.last_result->>'published')::int, 0) AS sweep_published,
           reap.last_ended_at AS reap_ended_at, fleet.*
      FROM job CROSS JOIN t CROSS JOIN fleet CROSS JOIN line CROSS JOIN backlog CROSS JOIN made
      LEFT JOIN workers w ON w.id::text = job.locked_by
      LEFT JOIN circuit_breakers b ON b.service = job.waiting_on
      LEFT JOIN circuit_breakers broker ON broker.service = 'broker'
      LEFT JOIN upkeep_runs sweep ON sweep.name = 'sweep'
      LEFT JOIN upkeep_runs reap ON reap.name = 'reap'""")


FACTS = {table: _facts(table) for table in Table}
_NAMES = [each.name for each in fields(Facts) if each.name not in ("table", "sight")]


def facts(db: Database, job_id: UUID, silence: Silence, table: Table = Table.JOBS) -> Facts:
    """All that bears on the job now."""
    rows = db.run(FACTS[table], id=job_id, offline=silence.offline, **due.routes())
    if not rows:
        raise no_such(job_id, table)
    row = {name: rows[0]._mapping[name] for name in _NAMES}
    row["sight"] = due.sight(db, silence) if row["due_since"] else Sight()
    row["status"], row["stage"] = Status(row["status"]), Stage(row["stage"])
    row["outcome"] = None if row["outcome"] is None else Outcome(row["outcome"])
    row["worker_stopped"] = bool(row["worker_stopped"])
    return Facts(table=table, **row)
