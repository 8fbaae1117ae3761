"""Who works here? One row per worker process tree and start; a name is not an identity."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text

from pipeline.store.engine import Database

REGISTER = text("""
    INSERT INTO workers (id, name, hostname, status, queues, slots, boot_id, pid, pid_started, last_heartbeat)
    VALUES (:id, :name, :hostname, 'idle', CAST(:queues AS text[]), :slots, :boot_id, :pid, :pid_started,
            clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET status = 'idle', last_heartbeat = clock_timestamp(), stopped_at = NULL""")

# A disabled worker stays disabled; an offline one that beats is back.
BEAT = text("""
    UPDATE workers SET last_heartbeat = clock_timestamp(), stopped_at = NULL,
           status = CASE WHEN status = 'disabled' THEN status WHEN :busy THEN 'busy' ELSE 'idle' END
     WHERE id = :id RETURNING status""")

PAUSE = text("""
    UPDATE workers SET metadata = CASE WHEN CAST(:why AS text) IS NULL THEN metadata - 'paused'
                                       ELSE metadata || jsonb_build_object('paused', CAST(:why AS text)) END
     WHERE id = :id""")

GOODBYE = text("""
    UPDATE workers SET status = 'offline', stopped_at = clock_timestamp(), current_job_id = NULL, ended_by = 'goodbye'
     WHERE id = :id""")

# Whoever runs on the machine that these were started on can look whether their processes still exist.
OF_MACHINE = text("""
    SELECT id, pid, pid_started FROM workers
     WHERE boot_id = :boot AND stopped_at IS NULL AND pid IS NOT NULL AND pid_started IS NOT NULL""")

BURY = text("""
    UPDATE workers SET status = 'offline', current_job_id = NULL,
           ended_by = CASE WHEN id = ANY (CAST(:gone AS uuid[])) THEN 'gone' ELSE 'silence' END,
           stopped_at = CASE WHEN id = ANY (CAST(:gone AS uuid[])) THEN clock_timestamp() ELSE stopped_at END
     WHERE status NOT IN ('offline', 'disabled')
       AND (id = ANY (CAST(:gone AS uuid[])) OR last_heartbeat < clock_timestamp() - CAST(:silence AS interval))
    RETURNING id, name, extract(epoch FROM clock_timestamp() - last_heartbeat)::float AS silent_s""")

SERVE = text("""
    SELECT 1 FROM workers
     WHERE :queue = ANY (queues) AND stopped_at IS NULL AND status NOT IN ('offline', 'disabled')
       AND metadata->>'paused' IS NULL AND id::text IS DISTINCT FROM :besides LIMIT 1""")

IS_DISABLED = text("SELECT 1 FROM workers WHERE id = :id AND status = 'disabled'")

CONSUMED = text("UPDATE workers SET last_consumed_at = clock_timestamp() WHERE id = :id")

LIST = text("""
    SELECT id, name, hostname, status, queues, slots, registered_at, last_heartbeat, last_consumed_at, stopped_at,
           metadata->>'paused' AS paused,
           extract(epoch FROM clock_timestamp() - last_heartbeat)::float AS silent_s
      FROM workers ORDER BY last_heartbeat DESC NULLS LAST LIMIT :limit""")


def register(
    db: Database,
    worker: UUID,
    *,
    name: str,
    hostname: str,
    queues: Sequence[str],
    slots: int,
    boot_id: str | None,
    pid: int,
    pid_started: str | None,
) -> None:
    """A new incarnation is here."""
    db.run(
        REGISTER,
        id=worker,
        name=name,
        hostname=hostname,
        queues=list(queues),
        slots=slots,
        boot_id=boot_id,
        pid=pid,
        pid_started=pid_started,
    )


def beat(db: Database, worker: UUID, *, busy: bool) -> bool:
    """It is alive; False: nobody registered it."""
    return bool(db.run(BEAT, id=worker, busy=busy))


def is_disabled(db: Database, worker: UUID) -> bool:
    """Whether an operator wants it to take no new work."""
    return bool(db.run(IS_DISABLED, id=worker))


def pause(db: Database, worker: UUID, why: str | None) -> None:
    """It takes no new work, and why; None: it does again."""
    db.run(PAUSE, id=worker, why=why)


def goodbye(db: Database, worker: UUID) -> None:
    """It has stopped of its own accord."""
    db.run(GOODBYE, id=worker)


def of_machine(db: Database, boot: str | None) -> list[tuple[UUID, int, str]]:
    """The workers that were started in this boot of this machine and never said goodbye: id, pid, start of the pid."""
    return [(row.id, row.pid, row.pid_started) for row in db.run(OF_MACHINE, boot=boot)]


def bury(db: Database, gone: Sequence[UUID], silence: timedelta | None) -> list[dict[str, Any]]:
    """Note who is offline: gone for certain, or silent for so long (None: silence does not count)."""
    return [dict(row._mapping) for row in db.run(BURY, gone=list(gone), silence=silence)]


def newest(db: Database, limit: int = 50) -> list[dict[str, Any]]:
    """The workers that beat last, first."""
    return [dict(row._mapping) for row in db.run(LIST, limit=limit)]


def serve(db: Database, queue: str) -> bool:
    """Whether anybody serves this queue."""
    return bool(db.run(SERVE, queue=queue, besides=None))


def others_serve(db: Database, queue: str, worker: str) -> bool:
    """Whether anybody but this worker serves this queue."""
    return bool(db.run(SERVE, queue=queue, besides=worker))


def consumed(db: Database, worker: UUID) -> None:
    """It got a message: a worker that beats but consumes nothing is not well."""
    db.run(CONSUMED, id=worker)
