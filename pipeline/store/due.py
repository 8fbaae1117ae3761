"""Which jobs get a message now?

The state of a job moves in `jobs` only. Here stands what the broker was told: `published_at` of a row, and the markers
of a queue. Both may be wrong about the broker, and then sweep finds out: no row is lost by it, and none runs twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.exc import OperationalError

from pipeline.core.job import Job, Stage
from pipeline.core.routing import QUEUE_OF
from pipeline.core.window import Rooms, Sight, Silence
from pipeline.store.engine import Database, fetch
from pipeline.store.gpu import IDLE_GPU
from pipeline.store.jobs import Table
from pipeline.store.rows import job_of, listed

Door = Connection | Database  # the caller's transaction, or one statement alone

# What the partial indexes are made of; a row is due when it waits for no time, or when that time has come.
DUE_AT = "greatest(j.next_earliest_run_at, j.skip_until)"
WAITING = "j.status = 'queued' AND j.published_at IS NULL"
ON_THE_WAY = "j.status = 'queued' AND j.published_at IS NOT NULL AND j.queue IS DISTINCT FROM 'gpu'"
ACCOUNT = "coalesce(j.account_id, '')"


# -- how much there is -----------------------------------------------------------------------------------------------

# Only living rows are counted: windows bound those on their way, slots those that run.
SIGHT = text(f"""
    SELECT 'workers' AS what, queue AS name, slots AS n, count(*)::int AS times
      FROM workers CROSS JOIN unnest(queues) AS queue
     WHERE status NOT IN ('offline', 'disabled') AND stopped_at IS NULL
       AND last_heartbeat > clock_timestamp() - CAST(:offline AS interval) AND metadata->>'paused' IS NULL
     GROUP BY queue, slots
    UNION ALL
    SELECT 'published', j.stage, count(*)::int, 1 FROM jobs j WHERE {ON_THE_WAY} GROUP BY j.stage
    UNION ALL
    SELECT 'running', j.stage, count(*)::int, 1 FROM jobs j WHERE j.status = 'processing' GROUP BY j.stage
    UNION ALL
    SELECT 'alone_published', 'asr', count(*)::int, 1 FROM asr_jobs j WHERE {ON_THE_WAY} AND {Table.ASR_JOBS.own}
    UNION ALL
    SELECT 'alone_running', 'asr', count(*)::int, 1 FROM asr_jobs j
     WHERE j.status = 'processing' AND {Table.ASR_JOBS.own}
    UNION ALL
    SELECT 'gpu', 'gpu', {IDLE_GPU}::int, 1
    UNION ALL
    SELECT 'broker', b.state, 1, 1 FROM circuit_breakers b WHERE b.service = 'broker' AND b.state <> 'closed'
    UNION ALL
    SELECT 'waiting', r.stage, 1, 1 FROM unnest(CAST(:stages AS text[])) AS r (stage)
     WHERE EXISTS (SELECT 1 FROM jobs j WHERE {WAITING} AND {DUE_AT} IS NULL AND j.stage = r.stage
                      AND j.id IS DISTINCT FROM CAST(:besides AS uuid))""")


def sight(conn: Door, silence: Silence, besides: UUID | None = None) -> Sight:
    """What there is now, besides one job."""
    stages = [str(stage) for stage in QUEUE_OF]
    rows = _run(conn, SIGHT, offline=silence.offline, fresh=silence.fresh, besides=besides, stages=stages)
    idle_gpu, broker_is_away = 0, False
    workers: dict[str, dict[int, int]] = defaultdict(dict)
    counted: dict[str, dict[Stage, int]] = defaultdict(dict)
    for row in rows:
        if row.what == "workers":
            workers[row.name][row.n] = row.times
        elif row.what == "gpu":
            idle_gpu = row.n
        elif row.what == "broker":
            broker_is_away = True
        else:
            counted[row.what][Stage(row.name)] = row.n
    return Sight(
        workers=dict(workers),
        published=counted["published"],
        running=counted["running"],
        waiting=frozenset(counted["waiting"]),
        alone_published=counted["alone_published"][Stage.ASR],
        alone_running=counted["alone_running"][Stage.ASR],
        idle_gpu=idle_gpu,
        broker_is_away=broker_is_away,
    )


# -- taking ----------------------------------------------------------------------------------------------------------

# Recovered jobs first; then by class, one class up for every `ageing` waited; then whose account has the fewest on
# their way or running; then the oldest. Of each account, stage and priority only the oldest few are looked at, found by
# the index alone: each (stage, account) is found by a step behind the one before (a skip scan), never by reading all
# that waits. Whoever publishes a row marks it in the same statement, and SKIP LOCKED keeps two sweeps off the same row.
TAKE_DUE = text(f"""
    WITH RECURSIVE t AS MATERIALIZED (SELECT clock_timestamp() AS now),
    asked AS MATERIALIZED (
        SELECT * FROM unnest(CAST(:stages AS text[]), CAST(:queues AS text[]), CAST(:rooms AS int[]),
                             CAST(:queue_rooms AS int[])) AS asked (stage, queue, room, queue_room)),
    who AS (
        SELECT a.stage, a.room, (SELECT {ACCOUNT} FROM jobs j WHERE {WAITING} AND {DUE_AT} IS NULL
                                    AND j.stage = a.stage ORDER BY {ACCOUNT} LIMIT 1) AS account FROM asked a
        UNION ALL
        SELECT w.stage, w.room, (SELECT {ACCOUNT} FROM jobs j WHERE {WAITING} AND {DUE_AT} IS NULL
                                    AND j.stage = w.stage AND {ACCOUNT} > w.account ORDER BY {ACCOUNT} LIMIT 1)
          FROM who w WHERE w.account IS NOT NULL),
    share AS MATERIALIZED (
        SELECT stage, account, least(room, 1 + 4 * room / count(*) OVER (PARTITION BY stage)) AS most
          FROM who WHERE account IS NOT NULL),
    candidates AS (
        SELECT c.* FROM share s
         CROSS JOIN (VALUES (true), (false)) AS r (recovery)
         CROSS JOIN (VALUES ('high'), ('normal'), ('low')) AS p (priority)
         CROSS JOIN LATERAL (
            SELECT j.id, j.stage, {ACCOUNT} AS account, j.recovery, j.priority, j.created_at FROM jobs j
             WHERE {WAITING} AND {DUE_AT} IS NULL AND j.stage = s.stage AND {ACCOUNT} = s.account
               AND j.recovery = r.recovery AND j.priority = p.priority
             ORDER BY j.created_at LIMIT s.most) c
        UNION ALL
        SELECT c.* FROM asked a CROSS JOIN t CROSS JOIN LATERAL (
            SELECT j.id, j.stage, {ACCOUNT} AS account, j.recovery, j.priority, j.created_at FROM jobs j
             WHERE {WAITING} AND {DUE_AT} <= t.now AND j.stage = a.stage ORDER BY {DUE_AT} LIMIT 4 * a.room) c),
    busy AS MATERIALIZED (
        SELECT account, count(*) AS n
          FROM (SELECT {ACCOUNT} AS account FROM jobs j WHERE {ON_THE_WAY}
                UNION ALL SELECT {ACCOUNT} FROM jobs j WHERE j.status = 'processing') b GROUP BY account),
    classed AS (
        SELECT c.*, greatest(0, array_position(ARRAY['high', 'normal', 'low'], c.priority) - 1
                   - floor(extract(epoch FROM t.now - c.created_at) / :ageing_s)) AS class
          FROM candidates c CROSS JOIN t),
    turns AS (
        SELECT c.*, coalesce(b.n, 0)
                  + row_number() OVER (PARTITION BY c.account, c.recovery, c.class ORDER BY c.created_at, c.id) AS turn
          FROM classed c LEFT JOIN busy b ON b.account = c.account),
    of_stage AS (
        SELECT u.*, a.queue, a.queue_room, a.room, row_number() OVER (
                    PARTITION BY u.stage ORDER BY u.recovery DESC, u.class, u.turn, u.created_at, u.id) AS nth
          FROM turns u JOIN asked a ON a.stage = u.stage),
    of_queue AS (
        SELECT s.*, row_number() OVER (
                    PARTITION BY s.queue ORDER BY s.recovery DESC, s.class, s.turn, s.created_at, s.id) AS nth_of_queue
          FROM of_stage s WHERE s.nth <= s.room),
    chosen AS MATERIALIZED (
        SELECT q.id, row_number() OVER (ORDER BY q.recovery DESC, q.class, q.turn, q.created_at, q.id) AS place
          FROM of_queue q WHERE q.nth_of_queue <= q.queue_room ORDER BY place LIMIT :limit),
    free AS (
        SELECT j.id FROM jobs j
         WHERE j.id = ANY (ARRAY(SELECT id FROM chosen)) AND {WAITING} FOR UPDATE SKIP LOCKED),
    taken AS (UPDATE jobs SET published_at = clock_timestamp() FROM free WHERE jobs.id = free.id RETURNING jobs.*)
    SELECT {listed("taken")} FROM taken JOIN chosen ON chosen.id = taken.id ORDER BY chosen.place""")

TAKE_ONE = text(f"""
    UPDATE jobs j SET published_at = clock_timestamp() WHERE j.id = :id AND {WAITING}
    RETURNING {listed("j")}""")

UNPUBLISH = text("UPDATE jobs SET published_at = NULL, queue = NULL WHERE id = ANY (:ids) AND status = 'queued'")

PUT_BACK = {
    table: text(f"""
    UPDATE {table} SET published_at = NULL WHERE id = :id AND stage = :stage AND status = 'queued' RETURNING id""")
    for table in Table
}


def take_due(db: Database, rooms: Rooms, limit: int, ageing: timedelta) -> list[Job]:
    """The jobs that get a message now, the first one first, marked as published."""
    asked = [stage for stage, room in rooms.stages.items() if room > 0]
    if not asked:
        return []
    rows = db.run(
        TAKE_DUE,
        stages=[str(stage) for stage in asked],
        queues=[QUEUE_OF[stage] for stage in asked],
        rooms=[rooms.stages[stage] for stage in asked],
        queue_rooms=[rooms.queues[QUEUE_OF[stage]] for stage in asked],
        limit=limit,
        ageing_s=ageing.total_seconds(),
    )
    return [job_of(row._mapping) for row in rows]


def take_one(db: Database, job_id: UUID) -> Job | None:
    """This job, marked as published, if it still needs a message."""
    rows = db.run(TAKE_ONE, id=job_id)
    return job_of(rows[0]._mapping) if rows else None


def unpublish(db: Database, ids: Iterable[UUID]) -> None:
    """The broker did not take their messages: sweep must try again."""
    db.run(UNPUBLISH, ids=list(ids))


def put_back(db: Database, job_id: UUID, stage: Stage, table: Table = Table.JOBS) -> bool:
    """Whoever got its message may not run it now: it waits unpublished. False: it does not stand at that stage."""
    return bool(db.run(PUT_BACK[table], id=job_id, stage=stage))


# -- markers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Marker:
    """A queue's markers: what was sent and has not come back, for how long, and what would need a new one."""

    queue: str
    unanswered: int
    sent_s: float  # since the last one was sent
    is_needed: bool  # something was published that the last one which came back says nothing about
    is_useful: bool  # the same, also of what is just being sent


# Whose messages markers speak about: jobs, and transcriptions that belong to none.
MARKED = {"jobs": ON_THE_WAY, "asr_jobs": f"{Table.ASR_JOBS.own} AND {ON_THE_WAY}"}


def _uncovered(and_settled: str = "") -> str:
    return " OR ".join(
        f"""EXISTS (
               SELECT 1 FROM {table} j
                WHERE {which} AND j.stage = ANY (q.stages) {and_settled}
                  AND j.published_at >= coalesce(m.covered_until - CAST(:grace AS interval), '-infinity'))"""
        for table, which in MARKED.items()
    )


# Settled: published so long ago that its message is in the queue, or was. Only that can be covered by a marker.
MARKERS = text(f"""
    SELECT q.queue, coalesce(m.sent - m.seen, 0)::int AS unanswered,
           coalesce(extract(epoch FROM clock_timestamp() - m.sent_at)::float, 'infinity') AS sent_s,
           ({_uncovered("AND j.published_at < clock_timestamp() - CAST(:grace AS interval)")}) AS is_needed,
           ({_uncovered()}) AS is_useful
      FROM (SELECT r.queue, array_agg(r.stage) AS stages
              FROM unnest(CAST(:stages AS text[]), CAST(:queues AS text[])) AS r (stage, queue) GROUP BY r.queue) q
      LEFT JOIN queue_markers m ON m.queue = q.queue""")

SEND = text("""
    INSERT INTO queue_markers AS m (queue, sent, sent_at) VALUES (:queue, 1, clock_timestamp())
    ON CONFLICT (queue) DO UPDATE SET sent = m.sent + 1, sent_at = clock_timestamp()
    RETURNING sent, sent_at""")

# A marker that was overtaken by a newer one says nothing new. One is held until whoever got a message before it had
# time to claim, and remembered when the next one is held: however quickly they follow each other, it counts.
SEEN = text("""
    WITH t AS MATERIALIZED (
        SELECT clock_timestamp() AS now, clock_timestamp() - CAST(:grace AS interval) AS ripe)
    UPDATE queue_markers m
       SET seen = :number, seen_at = t.now, covered_until = CAST(:sent_at AS timestamptz),
           settled_until = CASE WHEN m.held_at < t.ripe THEN m.held_until ELSE m.settled_until END,
           held_until = CASE WHEN m.held_at >= t.ripe THEN m.held_until ELSE CAST(:sent_at AS timestamptz) END,
           held_at = CASE WHEN m.held_at >= t.ripe THEN m.held_at ELSE t.now END
      FROM t WHERE m.queue = :queue AND m.seen < :number AND m.sent >= :number""")

# Whatever was in the queue before then has been delivered, and whoever got it had time to claim.
SETTLED = """greatest(m.settled_until,
           CASE WHEN m.held_at < clock_timestamp() - CAST(:grace AS interval) THEN m.held_until END,
           CASE WHEN m.seen_at < clock_timestamp() - CAST(:grace AS interval) THEN m.covered_until END)"""

# Not sent after all, or lost with the whole queue: nobody waits for them.
FORGET = text("UPDATE queue_markers SET seen = sent WHERE queue = :queue")

LOST = text(f"""
    WITH lost AS (
        SELECT j.id FROM unnest(CAST(:stages AS text[]), CAST(:queues AS text[])) AS r (stage, queue)
          JOIN queue_markers m ON m.queue = r.queue
          JOIN jobs j ON j.stage = r.stage AND {ON_THE_WAY} AND j.published_at < {SETTLED} - CAST(:grace AS interval)
           FOR UPDATE OF j SKIP LOCKED)
    UPDATE jobs SET published_at = NULL FROM lost WHERE jobs.id = lost.id RETURNING jobs.id""")

LOST_ALL = text(f"""
    WITH lost AS (
        SELECT j.id FROM jobs j
         WHERE j.stage = ANY (:stages) AND {ON_THE_WAY} AND j.published_at < CAST(:before AS timestamptz)
           FOR UPDATE SKIP LOCKED)
    UPDATE jobs SET published_at = NULL FROM lost WHERE jobs.id = lost.id RETURNING jobs.id""")

NOW = text("SELECT clock_timestamp() AS now")


def markers(db: Database, grace: timedelta) -> dict[str, Marker]:
    """How the markers of every queue stand."""
    rows = db.run(MARKERS, grace=grace, **routes())
    return {row.queue: Marker(**row._mapping) for row in rows}


def next_marker(db: Database, queue: str) -> tuple[int, datetime]:
    """The number of a new marker for this queue, and the moment that it speaks about."""
    row = db.run(SEND, queue=queue)[0]
    return row.sent, row.sent_at


def marker_seen(db: Database, queue: str, number: int, sent_at: str, grace: timedelta) -> None:
    """A worker got this marker: whatever was sent to its queue before has been delivered."""
    db.run(SEEN, queue=queue, number=number, sent_at=sent_at, grace=grace)


def forget_markers(db: Database, queue: str) -> None:
    """Nobody waits any longer for the markers of this queue."""
    db.run(FORGET, queue=queue)


def unpublish_lost(db: Database, grace: timedelta) -> list[UUID]:
    """Take back what a marker has overtaken: those messages are lost. The jobs that wait again for one."""
    return [row.id for row in db.run(LOST, grace=grace, **routes())]


def unpublish_all(db: Database, queue: str, before: datetime) -> list[UUID]:
    """Take back all that was published to a queue before then: the broker has lost it."""
    stages = [str(stage) for stage in QUEUE_OF if QUEUE_OF[stage] == queue]
    return [row.id for row in db.run(LOST_ALL, stages=stages, before=before)]


def now(db: Database) -> datetime:
    """Postgres's time."""
    moment: datetime = db.run(NOW)[0].now
    return moment


# -- one sweep after the other ---------------------------------------------------------------------------------------

# The lock of `upkeep.alone`, waited for: a marker that comes back while a sweep runs must not be missed.
IN_TURN = text("SELECT pg_advisory_xact_lock(hashtext('ironclip upkeep sweep'))")


LOCK_TIMEOUT = "55P03"


@contextmanager
def in_turn(db: Database) -> Iterator[bool]:
    """Whether it is our turn to sweep: it is waited for, but not for ever."""
    with db.transaction() as conn:
        yield _wait_for_turn(conn)


def _wait_for_turn(conn: Connection) -> bool:
    try:
        with conn.begin_nested():
            conn.execute(IN_TURN)
    except OperationalError as exc:
        if getattr(exc.orig, "pgcode", None) != LOCK_TIMEOUT:
            raise
        return False
    return True


def routes() -> dict[str, Sequence[str]]:
    """Which queue serves which stage, as parameters."""
    return {"stages": [str(stage) for stage in QUEUE_OF], "queues": list(QUEUE_OF.values())}


def _run(conn: Door, statement: TextClause, **params: Any) -> list[Any]:
    """In the caller's transaction, or alone."""
    return fetch(conn.execute(statement, params)) if isinstance(conn, Connection) else conn.run(statement, **params)
