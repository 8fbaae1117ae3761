"""What does a chaos run ask of Postgres? An account that can pay, broken connections, and the whole history at the end.

Nothing here moves a job.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import text

from pipeline.store.engine import Database

# The second time does nothing: the answer to the first may have been lost.
GRANT = text("""
    WITH made AS (
        INSERT INTO accounts (id, balance) VALUES (:account, :amount) ON CONFLICT DO NOTHING RETURNING id, balance)
    INSERT INTO credit_entries (account_id, kind, amount, note) SELECT id, 'grant', balance, 'chaos' FROM made""")

NOW = text("SELECT clock_timestamp() AS now")

RESET = text("""
    SELECT count(pg_terminate_backend(pid)) AS n FROM pg_stat_activity
     WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
       AND random() < :share""")

PROGRESS = text("""
    SELECT count(*) FILTER (WHERE status IN ('completed', 'failed', 'cancelled')) AS ended, count(*) AS known,
           coalesce(sum(version), 0) AS moves FROM jobs""")

HISTORY = {
    "jobs": text("""
        SELECT id::text AS job, status, stage, plan, outcome, generation, account_id AS account, attempt_count,
               max_attempts, fail_code, fail_reason, coalesce(context->'finalize'->'manifest', '{}') AS manifests
          FROM jobs"""),
    "events": text("""
        SELECT job_id::text AS job, type, stage, data->>'to' AS back_to, at FROM job_events
         WHERE "table" = 'jobs' ORDER BY id"""),
    "attempts": text("""
        SELECT fence::text, job_id::text AS job, run, stage, attempt, worker, started_at, ended_at, ended_by
          FROM job_attempts WHERE "table" = 'jobs'"""),
    "records": text("""
        SELECT job_id::text AS job, 'checkpoint ' || key AS what, made_at AS at, fence::text AS fence FROM checkpoints
        UNION ALL
        SELECT job_id::text, 'delivery to ' || target, updated_at, NULL FROM deliveries
        UNION ALL
        SELECT job_id::text, 'completion of ' || name, completed_at, NULL FROM outputs
         WHERE completed_at IS NOT NULL"""),
    "outputs": text("""
        SELECT o.job_id::text AS job, o.id AS output, o.name, o.status, o.generation, o.price,
               coalesce((SELECT jsonb_agg(f.file) FROM deliveries d CROSS JOIN jsonb_array_elements(d.files) AS f (file)
                          WHERE d.output_id = o.id AND d.status = 'delivered'), '[]') AS files
          FROM outputs o"""),
    "entries": text("""
        SELECT job_id::text AS job, output_id AS output, account_id AS account, run, kind, amount FROM credit_entries
         WHERE kind <> 'grant'"""),
    "workers": text("""
        SELECT id::text, name, pid, registered_at, stopped_at FROM workers WHERE pid IS NOT NULL
         ORDER BY registered_at"""),
    "balances": text("SELECT id AS account, balance FROM accounts"),
}


def grant(db: Database, account: str, amount: int) -> None:
    """A new account with so many credits."""
    db.run(GRANT, account=account, amount=amount)


def now(db: Database) -> datetime:
    """Postgres's time."""
    moment: datetime = db.run(NOW)[0].now
    return moment


def reset_connections(db: Database, share: float) -> int:
    """Break about this share of everybody's connections; how many those were."""
    return int(db.run(RESET, share=share)[0].n)


def progress(db: Database) -> tuple[int, int, int]:
    """How many jobs have ended, how many there are, and how often any of them has moved."""
    row = db.run(PROGRESS)[0]
    return row.ended, row.known, int(row.moves)


def history(db: Database) -> dict[str, list[dict[str, Any]]]:
    """Every row that tells what happened."""
    return {name: [dict(row._mapping) for row in db.run(query)] for name, query in HISTORY.items()}
