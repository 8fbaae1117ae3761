"""Which jobs, in pages? Newest first; a cursor is the place of the last one seen, so nothing moves between pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import TextClause, text

from pipeline.store.engine import Database
from pipeline.store.reads import SHOWN

# One condition for each filter that is used: what is not asked for is not in the statement.
CONDITIONS = {
    "account": "j.account_id = :account",
    "status": "j.status = :status",
    "stage": "j.stage = :stage",
    "priority": "j.priority = :priority",
    "waiting_on": "j.waiting_on = :waiting_on",
    "created_after": "j.created_at >= :created_after",
    "created_before": "j.created_at < :created_before",
    "search": "(j.id::text LIKE :search || '%' OR strpos(lower(j.request->>'source'), :search) > 0)",
    "seen_at": "(j.created_at, j.id) < (:seen_at, :seen_id)",
}

STATS = """
    SELECT status, stage, count(*) AS n FROM jobs j WHERE {mine} GROUP BY status, stage"""

# Ended in the last hour, by minute.
ENDED = """
    SELECT date_trunc('minute', finished_at) AS minute, status, count(*) AS n FROM jobs j
     WHERE {mine} AND created_at > clock_timestamp() - interval '1 day'
       AND finished_at > clock_timestamp() - interval '1 hour'
     GROUP BY 1, 2 ORDER BY 1, 2"""

OLDEST_DUE = """
    SELECT extract(epoch FROM clock_timestamp() - min(coalesce(greatest(next_earliest_run_at, skip_until),
                                                               created_at)))::float AS age_s
      FROM jobs j
     WHERE {mine} AND status = 'queued'
       AND coalesce(greatest(next_earliest_run_at, skip_until), '-infinity') <= clock_timestamp()"""

ACCOUNT_OF = text("SELECT account_id FROM jobs WHERE id = :id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What is looked for; None: whatever it is."""

    account: str | None = None
    status: str | None = None
    stage: str | None = None
    priority: str | None = None
    waiting_on: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    search: str | None = None


@lru_cache(maxsize=256)
def _page(used: tuple[str, ...]) -> TextClause:
    where = " AND ".join(CONDITIONS[name] for name in used) or "true"
    return text(f"SELECT {SHOWN} FROM jobs j WHERE {where} ORDER BY j.created_at DESC, j.id DESC LIMIT :limit")


def page(db: Database, wanted: Filter, *, seen: tuple[datetime, UUID] | None, limit: int) -> list[dict[str, Any]]:
    """The newest jobs that fit, or those that come after the last one seen."""
    asked = {name: value for name in Filter.__slots__ if (value := getattr(wanted, name)) is not None}
    if "search" in asked:
        asked["search"] = asked["search"].lower()
    if seen is not None:
        asked |= {"seen_at": seen[0], "seen_id": seen[1]}
    used = tuple(name for name in CONDITIONS if name in asked)
    return [dict(row._mapping) for row in db.run(_page(used), **asked, limit=limit)]


def account_of(db: Database, job: UUID) -> tuple[bool, str | None]:
    """Whether there is such a job, and who pays for it."""
    rows = db.run(ACCOUNT_OF, id=job)
    return (True, rows[0].account_id) if rows else (False, None)


def stats(db: Database, account: str | None) -> dict[str, Any]:
    """How many jobs are where, how many ended in each minute of the last hour, and since when the oldest is due."""
    mine = "true" if account is None else "j.account_id = :account"
    asked = {} if account is None else {"account": account}
    counts, ended, oldest = (db.run(text(each.format(mine=mine)), **asked) for each in (STATS, ENDED, OLDEST_DUE))
    return {
        "counts": [dict(row._mapping) for row in counts],
        "ended": [dict(row._mapping) for row in ended],
        "oldest_due_s": oldest[0].age_s,
    }
