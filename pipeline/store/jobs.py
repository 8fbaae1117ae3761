"""Who writes a job's state? This file, and nobody else.

`apply` is the one door: the pure `transition` decides on a snapshot, and one statement carries it out: the row by
compare-and-set (version and fence), its events, the attempt that began or ended, and the ledger. Whoever loses the
race reads again and decides again. `leases` takes leases away with the same statement, and writes the few things that
a holder says between two moves; `due` notes what the broker was told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.exc import IntegrityError

from pipeline.core.errors import IdempotencyConflict, NoSuchJob
from pipeline.core.job import Job
from pipeline.core.machine import transition
from pipeline.core.moves import Claim, Complete, Event, Move, Refusal, Settlement, Transition
from pipeline.store import credits as ledger
from pipeline.store import generations
from pipeline.store.engine import Database, dumps, fetch
from pipeline.store.rows import assignments, job_of, listed

RACES = 20  # who loses that often meets a bug, not bad luck


class Table(StrEnum):
    """Where a leased row stands; the same code moves both."""

    JOBS = "jobs"
    ASR_JOBS = "asr_jobs"

    @property
    def own(self) -> str:
        """Which of its rows move by themselves: a transcription that belongs to a job moves with that."""
        return "true" if self is Table.JOBS else "j.job_id IS NULL"

    @property
    def noun(self) -> str:
        """What people call such a row."""
        return "job" if self is Table.JOBS else "transcription"


# -- the one door ----------------------------------------------------------------------------------------------------


def apply(
    db: Database, job_id: UUID, *moves: Move, snapshot: Job | None = None, table: Table = Table.JOBS
) -> Job | Refusal:
    """Play the moves in one commit: the job as it is afterwards, or why nothing happened.

    A holder may pass the snapshot that its claim returned: while nobody interfered, that saves reading the row.
    InsufficientCredits if the moves begin a run that the account cannot pay.
    """
    tried = False
    for _ in range(RACES):
        if snapshot is not None and snapshot.processing_started_at is not None:
            job, now, is_read, snapshot = snapshot, snapshot.processing_started_at, False, None
        else:
            (job, now), is_read = read(db, job_id, table), True
        if isinstance(moves[-1], Claim) and job.fence == moves[-1].fence:
            return job  # our claim was written, only its answer was lost with the connection
        change = decide(job, moves, now)
        if isinstance(change, Refusal):
            if not is_read:
                continue  # a snapshot may be old: only the row says why not
            return job if tried and _was_written(db, moves[0]) else change
        statement, params = write(job, change, now, table)
        try:
            written = db.run(statement, **params)
        except IntegrityError as exc:
            raise ledger.refused(exc) from exc
        if written:
            return job_of(written[0]._mapping)
        tried = True
    raise RuntimeError(f"{RACES} lost races in a row for one job")


ENDED_BY = text("SELECT 1 FROM job_attempts WHERE fence = :fence AND ended_by = 'stage_completed'")


def _was_written(db: Database, move: Move) -> bool:
    """Whether a completion that seems to come too late is our own: only its answer was lost with the connection."""
    return isinstance(move, Complete) and bool(db.run(ENDED_BY, fence=move.fence))


def decide(job: Job, moves: Sequence[Move], now: datetime) -> Transition | Refusal:
    """What the moves together make of the job."""
    events: tuple[Event, ...] = ()
    settlement: Settlement | None = None
    only: tuple[str, ...] | None = None
    for move in moves:
        step = transition(job, move, now)
        if isinstance(step, Refusal):
            return step
        job, events, settlement = step.job, (*events, *step.events), step.settlement or settlement
        only = step.only or only
    return Transition(job, events, settlement, only)


def write(before: Job, change: Transition, now: datetime, table: Table) -> tuple[TextClause, dict[str, Any]]:
    """The statement that turns the row into what was decided, if it is still the row that we decided on."""
    after = change.job
    clauses, params = assignments(before, after, now)
    ends = before.lease is not None and before.fence != after.fence
    begins = after.lease is not None and before.fence != after.fence
    params |= {
        "id": before.id,
        "seen_version": before.version,
        "seen_fence": before.fence,
        "told_stage": before.stage,
        "told_attempt": max(before.attempt_count, after.attempt_count),
        "events": dumps([{"type": e.type, "data": e.data} for e in change.events]),
        "ended_by": change.events[0].type if ends else None,
    }
    settles = change.settlement if table is Table.JOBS else None
    is_beside = after.building > before.building
    if is_beside:
        params["only"] = None if change.only is None else list(change.only)
    return _write_sql(tuple(clauses), table, ends, begins, settles, is_beside), params


@lru_cache(maxsize=256)
def _write_sql(
    clauses: tuple[str, ...],
    table: Table,
    ends: bool,
    begins: bool,
    settlement: Settlement | None,
    is_beside: bool,
) -> TextClause:
    parts = [
        # The compare-and-set: version says that nobody moved it, the fence that it is still the same holder's.
        f"""moved AS (
            UPDATE {table} SET {", ".join((*clauses, "version = version + 1", "updated_at = clock_timestamp()"))}
             WHERE id = :id AND version = :seen_version AND fence IS NOT DISTINCT FROM CAST(:seen_fence AS uuid)
            RETURNING *)""",
        f"""told AS (
            INSERT INTO job_events (job_id, "table", type, stage, attempt, data)
            SELECT moved.id, '{table}', e.item->>'type', coalesce(e.item->'data'->>'stage', :told_stage),
                   coalesce((e.item->'data'->>'attempt')::int, :told_attempt),
                   (e.item->'data') || jsonb_build_object('table', '{table}')
              FROM moved, jsonb_array_elements(CAST(:events AS jsonb)) WITH ORDINALITY AS e (item, n)
             ORDER BY e.n)""",
    ]
    if ends:
        parts.append("""ended AS (
            UPDATE job_attempts SET ended_at = clock_timestamp(), ended_by = :ended_by
              FROM moved WHERE job_attempts.fence = CAST(:seen_fence AS uuid))""")
    if begins:
        parts.append(f"""began AS (
            INSERT INTO job_attempts (fence, job_id, "table", run, stage, attempt, worker, request_id)
            SELECT fence, id, '{table}', run, stage, attempt_count, locked_by, request_id FROM moved)""")
    if is_beside:
        parts += [*generations.BESIDE, *ledger.HOLD_FOR_GENERATION]
    elif settlement is not None:
        parts += ledger.entries_for(settlement)
    if settlement is Settlement.HOLD and not is_beside:  # a new run: what failed before gets another chance
        parts += generations.REOPEN
    return text(f"WITH {', '.join(parts)} SELECT {listed('moved')} FROM moved")


@lru_cache(maxsize=8)
def select(table: Table, condition: str) -> TextClause:
    return text(f"SELECT {listed('j')}, clock_timestamp() AS now FROM {table} j WHERE {condition}")


def read(db: Database, job_id: UUID, table: Table = Table.JOBS) -> tuple[Job, datetime]:
    """The job and Postgres's time at which it was so."""
    rows = db.run(select(table, f"j.id = :id AND {table.own}"), id=job_id)
    if not rows:
        raise no_such(job_id, table)
    return job_of(rows[0]._mapping), rows[0].now


def read_many(db: Database, ids: Iterable[UUID]) -> list[Job]:
    """All of the jobs; NoSuchJob if one of them is not there."""
    wanted = list(ids)
    found = [job_of(row._mapping) for row in db.run(select(Table.JOBS, "j.id = ANY (:ids)"), ids=wanted)]
    for missing in set(wanted) - {job.id for job in found}:
        raise no_such(missing)
    return found


def no_such(job_id: UUID, table: Table = Table.JOBS) -> NoSuchJob:
    return NoSuchJob(f"There is no {table.noun} {job_id}.")


# -- a row is born ---------------------------------------------------------------------------------------------------

ENQUEUE = text(f"""
    WITH born AS (
        INSERT INTO jobs (id, account_id, idempotency_key, request_hash, status, stage, plan, priority, request,
                          max_attempts, expected_duration_ms, deadline_ms, published_at)
        VALUES (:id, :account, :key, :hash, 'queued', :stage, CAST(:plan AS text[]), :priority,
                CAST(:request AS jsonb), :max_attempts, :expected_duration_ms, :deadline_ms,
                CASE WHEN :published THEN clock_timestamp() END)
        ON CONFLICT DO NOTHING RETURNING *),
    made AS (
        INSERT INTO outputs (job_id, name, kind, clip, quality, critical, price)
        SELECT born.id, o.name, o.kind, o.clip, o.quality, o.critical, o.price
          FROM born, jsonb_to_recordset(CAST(:outputs AS jsonb))
               AS o (name text, kind text, clip text, quality text, critical boolean, price bigint)
        RETURNING *),
    told AS (
        INSERT INTO job_events (job_id, type, stage, attempt, data)
        SELECT id, 'queued', stage, 0, jsonb_build_object('priority', priority, 'table', 'jobs') FROM born),
    {", ".join(ledger.HOLD_AT_BIRTH)}
    SELECT {listed("born")} FROM born""")

# The key belongs to one account: two customers may use the same one.
TWIN = text(f"""
    SELECT {listed("j")}, j.request_hash FROM jobs j
     WHERE j.id = :id OR (j.idempotency_key = :key AND coalesce(j.account_id, '') = coalesce(:account, ''))
     ORDER BY (j.id = :id) DESC LIMIT 1""")


def insert(conn: Connection, **columns: Any) -> tuple[Job, bool]:
    """Row, outputs, event and credit hold of a new job, and True; or the job that has its id or idempotency key.

    IdempotencyConflict if that one asked for something else; InsufficientCredits if the account cannot pay.
    """
    try:
        rows = fetch(conn.execute(ENQUEUE, columns))
    except IntegrityError as exc:
        raise ledger.refused(exc, columns["account"]) from exc
    if rows:
        return job_of(rows[0]._mapping), True
    first = fetch(conn.execute(TWIN, {name: columns[name] for name in ("id", "key", "account")}))[0]
    if first.request_hash != columns["hash"]:
        raise IdempotencyConflict(f"Job {first.id} was asked for under this key, with another request.")
    return job_of(first._mapping), False


# -- a service is up again -------------------------------------------------------------------------------------------


# No move: nothing but the wait ends, and `first_deferred_at` stays, so MAX_WAIT goes on. Who is just being written is
# on his way already, or is found by the next probe.
@lru_cache(maxsize=2)
def _wake(table: Table) -> TextClause:
    return text(f"""
    WITH waiting AS (
        SELECT id FROM {table}
         WHERE status = 'queued' AND waiting_on = :service
           AND skip_until > clock_timestamp() + CAST(:beyond AS interval)
         ORDER BY id FOR UPDATE SKIP LOCKED)
    UPDATE {table} t SET skip_until = NULL, waiting_on = NULL FROM waiting w WHERE t.id = w.id RETURNING t.id""")


def wake(db: Database, service: str, beyond: timedelta = timedelta(0)) -> int:
    """The service is up: whoever waits for it, longer than `beyond` from now, is due. How many those are."""
    return sum(len(db.run(_wake(table), service=service, beyond=beyond)) for table in Table)
