"""How does a holder write beside the row? Only while it holds the fence.

Every such statement begins with `mine`: the job's row, if the fence is still the holder's. The row is share-locked
until the statement has committed, so nobody can take the lease away in between; whoever lost it writes nothing.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import TextClause, text

from pipeline.store.engine import Database

MINE = """mine AS MATERIALIZED (
    SELECT id FROM jobs WHERE id = :job AND fence = :fence AND status = 'processing' FOR SHARE)"""


def fenced(body: str) -> TextClause:
    """A statement that may use `mine`; it must return a row when it wrote."""
    return text(f"WITH {MINE} {body}")


def write(db: Database, statement: TextClause, job: UUID, fence: UUID, **params: Any) -> bool:
    """Run a fenced statement; False: the lease is lost and nothing was written."""
    return bool(db.run(statement, job=job, fence=fence, **params))
