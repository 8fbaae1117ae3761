"""How is the whole system? Few figures, cheap enough to be asked every second."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import text

from pipeline.store.engine import Database

HEALTH = text("""
    SELECT (SELECT count(*) FROM workers
             WHERE status NOT IN ('offline', 'disabled') AND stopped_at IS NULL
               AND last_heartbeat > clock_timestamp() - CAST(:offline AS interval)) AS active_workers,
           (SELECT count(*) FROM jobs WHERE status = 'queued') AS pending_jobs""")

DATABASE = text("""
    SELECT current_setting('server_version') AS version, pg_database_size(current_database()) AS size_bytes,
           (SELECT version_num FROM alembic_version) AS revision,
           (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) AS connections""")

# Stalled: running for so long, and nobody alive has it.
RECOVERY = text("""
    SELECT count(*) FILTER (WHERE status = 'queued') AS queued,
           count(*) FILTER (WHERE status = 'processing') AS processing,
           count(*) FILTER (WHERE status = 'processing' AND lease_expires_at < clock_timestamp()
                              AND processing_started_at < clock_timestamp() - CAST(:stuck AS interval)) AS stalled,
           (SELECT last_ended_at FROM upkeep_runs WHERE name = 'recover') AS last_run
      FROM jobs WHERE status IN ('queued', 'processing')""")

DISABLE = text("""
    UPDATE workers SET status = CASE WHEN :disabled THEN 'disabled' ELSE 'idle' END
     WHERE id = :id AND (status = 'disabled') <> :disabled RETURNING id""")

KNOWN = text("SELECT status FROM workers WHERE id = :id")


def health(db: Database, offline: timedelta) -> dict[str, int]:
    """How many work, and how many jobs wait."""
    return dict(db.run(HEALTH, offline=offline)[0]._mapping)


def of_database(db: Database) -> dict[str, Any]:
    """What Postgres says of itself."""
    return dict(db.run(DATABASE)[0]._mapping)


def recovery(db: Database, stuck_after: timedelta) -> dict[str, Any]:
    """What recovery would look at, and when it last ran."""
    return dict(db.run(RECOVERY, stuck=stuck_after)[0]._mapping)


def disable(db: Database, worker: Any, *, disabled: bool) -> str | None:
    """Take a worker out of service, or back in; its status then. None: there is no such worker."""
    db.run(DISABLE, id=worker, disabled=disabled)
    rows = db.run(KNOWN, id=worker)
    return rows[0].status if rows else None
