"""What has each output become, where was it delivered, and what was transcribed? All under the job's fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text

from pipeline.core.job import OutputStatus
from pipeline.core.output import File, Output
from pipeline.store.engine import Database, dumps
from pipeline.store.fenced import fenced, write

OF_JOB = text("""
    SELECT id, name, kind, clip, quality, critical, status, files, facts, error_code, error_message
      FROM outputs WHERE job_id = :job AND generation = :generation ORDER BY id""")

RECORD = fenced("""
    UPDATE outputs
       SET status = :status, files = CAST(:files AS jsonb), facts = outputs.facts || CAST(:facts AS jsonb),
           error_code = :error_code, error_message = :error_message,
           progress_percent = CASE WHEN :status = 'completed' THEN 100 ELSE progress_percent END,
           started_at = coalesce(started_at, clock_timestamp()),
           completed_at = CASE WHEN :status = 'completed' THEN clock_timestamp() END
      FROM mine WHERE outputs.id = :output AND outputs.job_id = mine.id
    RETURNING outputs.id""")

# Progress is a hint: it may be lost, but never the fence.
PROGRESSED = fenced("""
    UPDATE outputs
       SET progress_percent = :percent, segments_total = :total, segments_completed = :completed,
           started_at = coalesce(started_at, clock_timestamp())
      FROM mine WHERE outputs.id = :output AND outputs.job_id = mine.id
    RETURNING outputs.id""")

DELIVERED = fenced("""
    INSERT INTO deliveries (output_id, target, job_id, status, files, error_code, error_message)
    SELECT :output, :target, id, :status, CAST(:files AS jsonb), :error_code, :error_message FROM mine
    ON CONFLICT (output_id, target) DO UPDATE
       SET status = excluded.status, files = excluded.files, error_code = excluded.error_code,
           error_message = excluded.error_message, updated_at = clock_timestamp()
    RETURNING output_id""")

UNDELIVERED = fenced("""
    DELETE FROM deliveries d USING mine
     WHERE d.job_id = mine.id AND d.output_id = :output AND d.target = :target RETURNING d.output_id""")

DELIVERIES = text("""
    SELECT d.output_id, d.target, d.status, d.files, d.error_code, d.error_message
      FROM deliveries d JOIN outputs o ON o.id = d.output_id
     WHERE d.job_id = :job AND o.generation = :generation ORDER BY d.output_id, d.target""")

# What a generation is made of: each completed output at each target that has it.
HELD = text("""
    SELECT o.name, d.target FROM outputs o JOIN deliveries d ON d.output_id = o.id
     WHERE o.job_id = :job AND o.generation = :generation AND o.status = 'completed' AND d.status = 'delivered'""")

TARGETS_OF = text("""
    SELECT DISTINCT target FROM deliveries
     WHERE job_id = :job AND status = 'delivered' AND files @> CAST(:file AS jsonb) ORDER BY target""")

# A transcription that is part of a job has no lease of its own: the job's fence guards it.
TRANSCRIBED = fenced("""
    INSERT INTO asr_jobs (id, job_id, output_id, status, stage, plan, attempt_count, generation, outcome, progress,
                          transcript, finished_at)
    SELECT :id, id, :output, 'completed', 'asr', '{asr}', 1, 1, 'full', 100, CAST(:transcript AS jsonb),
           clock_timestamp()
      FROM mine
    ON CONFLICT (output_id) WHERE output_id IS NOT NULL DO UPDATE
       SET transcript = excluded.transcript, finished_at = excluded.finished_at, updated_at = clock_timestamp()
    RETURNING id""")


def of(db: Database, job: UUID, generation: int) -> list[Output]:
    """The outputs of a generation, in the order in which they were asked for."""
    made = []
    for row in db.run(OF_JOB, job=job, generation=generation):
        data = dict(row._mapping)
        data["status"] = OutputStatus(data["status"])
        data["files"] = tuple(File(**f) for f in data["files"])
        made.append(Output(**data))
    return made


def record(
    db: Database,
    job: UUID,
    fence: UUID,
    output: int,
    status: OutputStatus,
    *,
    files: Sequence[File] = (),
    facts: Mapping[str, Any] | None = None,
    error_code: str | None = None,
    error_message: str | None = None,
) -> bool:
    """Say what an output has become; False: the lease is lost."""
    return write(
        db,
        RECORD,
        job,
        fence,
        output=output,
        status=str(status),
        files=dumps([asdict(f) for f in files]),
        facts=dumps(facts or {}),
        error_code=error_code,
        error_message=error_message,
    )


def progressed(
    db: Database,
    job: UUID,
    fence: UUID,
    output: int,
    percent: float,
    *,
    segments_total: int | None = None,
    segments_completed: int = 0,
) -> bool:
    """Say how far an output is; False: the lease is lost."""
    percent = min(100.0, max(0.0, percent))
    counts = {"total": segments_total, "completed": segments_completed}
    return write(db, PROGRESSED, job, fence, output=output, percent=percent, **counts)


def delivered(
    db: Database,
    job: UUID,
    fence: UUID,
    output: int,
    target: str,
    *,
    files: Sequence[Mapping[str, Any]] = (),
    error_code: str | None = None,
    error_message: str | None = None,
) -> bool:
    """Say that a target has taken an output, or has refused it; False: the lease is lost."""
    return write(
        db,
        DELIVERED,
        job,
        fence,
        output=output,
        target=target,
        status="refused" if error_code else "delivered",
        files=dumps(list(files)),
        error_code=error_code,
        error_message=error_message,
    )


def undelivered(db: Database, job: UUID, fence: UUID, output: int, target: str) -> bool:
    """Forget that a target has taken an output; False: the lease is lost."""
    return write(db, UNDELIVERED, job, fence, output=output, target=target)


def deliveries(db: Database, job: UUID, generation: int) -> list[dict[str, Any]]:
    """What each target has said to each output."""
    return [dict(row._mapping) for row in db.run(DELIVERIES, job=job, generation=generation)]


def held(db: Database, job: UUID, generation: int) -> set[tuple[str, str]]:
    """Which target holds which completed output of a generation: name and target."""
    return {(row.name, row.target) for row in db.run(HELD, job=job, generation=generation)}


def targets_of(db: Database, job: UUID, key: str) -> list[str]:
    """Where this file of the job was delivered to."""
    return [row.target for row in db.run(TARGETS_OF, job=job, file=dumps([{"key": key}]))]


def transcribed(db: Database, job: UUID, fence: UUID, output: int, transcript: Mapping[str, Any]) -> bool:
    """Keep the words of an output; False: the lease is lost."""
    return write(db, TRANSCRIBED, job, fence, id=uuid4(), output=output, transcript=dumps(transcript))
