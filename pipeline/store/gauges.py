"""How is the whole fleet doing at this moment? Queries that read living rows only, for whoever scrapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from pipeline.core.routing import QUEUE_OF
from pipeline.store.engine import Database

# Each part is what one partial index holds: a million finished rows cost nothing. `due_s`: since when the one that has
# waited longest could have run; what is on its way waits since it was published.
_WAITING = "status = 'queued' AND published_at IS NULL AND greatest(next_earliest_run_at, skip_until)"
LIVING = f"""
    SELECT status, stage, sum(jobs)::bigint AS jobs, extract(epoch FROM clock_timestamp() - min(due))::float AS due_s
      FROM (SELECT 'processing' AS status, stage, count(*) AS jobs, NULL::timestamptz AS due
              FROM jobs WHERE status = 'processing' {{whose}} GROUP BY stage
            UNION ALL
            SELECT 'queued', stage, count(*), min(updated_at)
              FROM jobs WHERE {_WAITING} IS NULL {{whose}} GROUP BY stage
            UNION ALL
            SELECT 'queued', stage, count(*), min(greatest(next_earliest_run_at, skip_until))
              FROM jobs WHERE {_WAITING} IS NOT NULL {{whose}} GROUP BY stage
            UNION ALL
            SELECT 'queued', stage, count(*), min(published_at)
              FROM jobs WHERE status = 'queued' AND published_at IS NOT NULL {{whose}} GROUP BY stage) parts
     GROUP BY status, stage"""
EVERYBODYS = text(LIVING.format(whose=""))
ONES = text(LIVING.format(whose="AND coalesce(account_id, '') = :account"))

STUCK = text("SELECT count(*) AS n FROM jobs WHERE status = 'processing' AND lease_expires_at < clock_timestamp()")

WORKERS = text("""
    SELECT status, count(*) AS n FROM workers WHERE last_heartbeat > clock_timestamp() - interval '1 day' GROUP BY 1""")

BREAKERS = text("SELECT service, state FROM circuit_breakers ORDER BY state = 'closed', updated_at DESC LIMIT 100")

WEBHOOKS = text("""
    SELECT count(*) AS n, extract(epoch FROM clock_timestamp() - min(created_at))::float AS oldest_s
      FROM webhook_deliveries WHERE status = 'pending'""")


@dataclass(frozen=True)
class Living:
    """The jobs of one status and stage that have not ended."""

    status: str
    stage: str
    jobs: int
    due_s: float | None  # negative: not due yet

    @property
    def queue(self) -> str:
        return next(queue for stage, queue in QUEUE_OF.items() if stage == self.stage)


def living(db: Database, account: str | None = None) -> list[Living]:
    """Everybody's, or those of one account."""
    rows = db.run(EVERYBODYS) if account is None else db.run(ONES, account=account)
    return [Living(row.status, row.stage, row.jobs, row.due_s) for row in rows]


def stuck(db: Database) -> int:
    """Jobs that run under a lease that is over: the reaper should have taken them."""
    return int(db.run(STUCK)[0].n)


def workers(db: Database) -> dict[str, int]:
    return {row.status: row.n for row in db.run(WORKERS)}


def breakers(db: Database) -> dict[str, str]:
    return {row.service: row.state for row in db.run(BREAKERS)}


def webhooks(db: Database) -> tuple[int, float]:
    """How many deliveries wait, and for how long the oldest has."""
    row: Any = db.run(WEBHOOKS)[0]
    return row.n, max(0.0, row.oldest_s or 0.0)
