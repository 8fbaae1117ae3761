"""How does a transcription live that belongs to no job? In a row of `asr_jobs`, with a lease, attempts and a deadline.

The same door moves it as any job (`jobs.apply` with its table). Here stands what is its own: how it is born, what it
remembers of its windows, which ones get a message now, and what people see of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text

from pipeline.core.job import Job
from pipeline.core.routing import MEDIA
from pipeline.store import due, reads
from pipeline.store.engine import Database, dumps
from pipeline.store.jobs import Table, no_such
from pipeline.store.rows import job_of, listed

ALONE = Table.ASR_JOBS.own
ON_THE_WAY = f"{ALONE} AND j.status = 'queued' AND j.published_at IS NOT NULL"
WAITING = f"{ALONE} AND {due.WAITING}"
DUE = f"coalesce({due.DUE_AT}, '-infinity') <= clock_timestamp()"

# -- a row is born ---------------------------------------------------------------------------------------------------

BORN = text(f"""
    WITH born AS (
        INSERT INTO asr_jobs (id, stage, plan, priority, request, max_attempts, expected_duration_ms)
        VALUES (:id, 'asr', '{{asr}}', :priority, CAST(:request AS jsonb), :max_attempts, :expected_duration_ms)
        RETURNING *),
    told AS (
        INSERT INTO job_events (job_id, "table", type, stage, attempt, data)
        SELECT id, 'asr_jobs', 'queued', stage, 0, jsonb_build_object('priority', priority, 'table', 'asr_jobs')
          FROM born)
    SELECT {listed("born")} FROM born""")


def insert(db: Database, **columns: Any) -> Job:
    """The row and first event of a new transcription."""
    return job_of(db.run(BORN, **columns)[0]._mapping)


# -- what its holder writes ------------------------------------------------------------------------------------------

_OURS = "id = :id AND fence = :fence AND status = 'processing'"

REMEMBER = text(f"""
    UPDATE asr_jobs SET checkpoint = checkpoint || CAST(:record AS jsonb), updated_at = clock_timestamp()
     WHERE {_OURS} RETURNING id""")

RECORDS = text("SELECT checkpoint FROM asr_jobs WHERE id = :id")

TRANSCRIBED = text(f"""
    UPDATE asr_jobs SET transcript = CAST(:transcript AS jsonb), updated_at = clock_timestamp()
     WHERE {_OURS} RETURNING id""")


def remember(db: Database, asr_job: UUID, fence: UUID, key: str, record: Mapping[str, Any]) -> bool:
    """Note that a unit is done; False: the lease is lost."""
    return bool(db.run(REMEMBER, id=asr_job, fence=fence, record=dumps({key: record})))


def records(db: Database, asr_job: UUID) -> dict[str, dict[str, Any]]:
    """Every record, by key."""
    return {key: record for row in db.run(RECORDS, id=asr_job) for key, record in row.checkpoint.items()}


def transcribed(db: Database, asr_job: UUID, fence: UUID, transcript: Mapping[str, Any]) -> bool:
    """Keep the words; False: the lease is lost."""
    return bool(db.run(TRANSCRIBED, id=asr_job, fence=fence, transcript=dumps(transcript)))


# -- which ones get a message ----------------------------------------------------------------------------------------

# Few are on their way at once, as with jobs: what waits is ordered here, and not by the broker.
TAKE = text(f"""
    WITH due AS (
        SELECT j.id FROM asr_jobs j
         WHERE {WAITING} AND {DUE} AND (CAST(:only AS uuid) IS NULL OR j.id = :only)
         ORDER BY j.recovery DESC, array_position(ARRAY['high', 'normal', 'low'], j.priority), j.created_at
         LIMIT least(:room, greatest(0, :window - (SELECT count(*) FROM asr_jobs j WHERE {ON_THE_WAY})))
           FOR UPDATE SKIP LOCKED)
    UPDATE asr_jobs j SET published_at = clock_timestamp() FROM due WHERE j.id = due.id
    RETURNING {listed("j")}""")

OLDER = text(f"""
    SELECT 1 FROM asr_jobs j
     WHERE {WAITING} AND {DUE} AND j.created_at < coalesce((
           SELECT min(j.created_at) FROM jobs j WHERE {due.WAITING} AND {DUE} AND j.stage = 'asr'), 'infinity')
     LIMIT 1""")

UNPUBLISH = text("UPDATE asr_jobs SET published_at = NULL WHERE id = ANY (:ids) AND status = 'queued'")

# As with jobs: a marker that came back has overtaken these messages.
LOST = text(f"""
    UPDATE asr_jobs j SET published_at = NULL FROM queue_markers m
     WHERE {ON_THE_WAY} AND m.queue = :queue AND j.published_at < {due.SETTLED} - CAST(:grace AS interval)
    RETURNING j.id""")

LOST_ALL = text(f"""
    UPDATE asr_jobs j SET published_at = NULL
     WHERE {ON_THE_WAY} AND j.published_at < CAST(:before AS timestamptz) RETURNING j.id""")


def take_due(db: Database, window: int, room: int | None = None, only: UUID | None = None) -> list[Job]:
    """Those that get a message now, marked as published, until so many are on their way; or only that one.

    With a `room`, no more of them than that, whoever was claimed since it was counted.
    """
    most = window if room is None else room
    return [job_of(row._mapping) for row in db.run(TAKE, window=window, room=most, only=only)]


def is_older(db: Database) -> bool:
    """Whether one of them is due, and older than every job that waits for asr."""
    return bool(db.run(OLDER))


def unpublish(db: Database, ids: Iterable[UUID]) -> None:
    """The broker did not take their messages."""
    db.run(UNPUBLISH, ids=list(ids))


def unpublish_lost(db: Database, grace: timedelta) -> list[UUID]:
    """Take back what a marker has overtaken."""
    return [row.id for row in db.run(LOST, queue=MEDIA, grace=grace)]


def unpublish_all(db: Database, before: datetime) -> list[UUID]:
    """Take back all that was published before then: the broker has lost it."""
    return [row.id for row in db.run(LOST_ALL, before=before)]


# -- what people see -------------------------------------------------------------------------------------------------

ONE = text(f"SELECT {reads.SHOWN}, j.transcript FROM asr_jobs j WHERE j.id = :id AND {ALONE}")

NEWEST = text(f"""
    SELECT {reads.SHOWN} FROM asr_jobs j
     WHERE {ALONE} AND (CAST(:status AS text) IS NULL OR j.status = :status)
     ORDER BY j.created_at DESC, j.id DESC LIMIT :limit""")


def one(db: Database, asr_job: UUID) -> dict[str, Any]:
    """A transcription that stands alone."""
    rows = db.run(ONE, id=asr_job)
    if not rows:
        raise no_such(asr_job, Table.ASR_JOBS)
    return dict(rows[0]._mapping)


def newest(db: Database, *, status: str | None = None, limit: int = 50) -> list[dict[str, Any]]:
    """The newest of them, without their words."""
    return [dict(row._mapping) for row in db.run(NEWEST, status=status, limit=limit)]
