"""When did each upkeep last run, and who may run it now? One row each, and a lock that dies with its holder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import text

from pipeline.store.engine import Database, dumps, fetch

# Transaction-scoped: whoever dies lets go.
TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtext('ironclip upkeep ' || :name)) AS mine")

BEGAN = text("""
    INSERT INTO upkeep_runs (name, last_began_at) VALUES (:name, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET last_began_at = clock_timestamp()""")

ENDED = text("""
    UPDATE upkeep_runs SET last_ended_at = clock_timestamp(), last_result = CAST(:result AS jsonb)
     WHERE name = :name""")

AGE = text("""
    SELECT extract(epoch FROM clock_timestamp() - last_ended_at)::float AS age_s FROM upkeep_runs WHERE name = :name""")


@contextmanager
def alone(db: Database, name: str) -> Iterator[bool]:
    """Whether this upkeep is ours to run now: two at once are harmless, but a waste."""
    with db.transaction() as conn:
        yield bool(fetch(conn.execute(TRY_LOCK, {"name": name}))[0].mine)


def began(db: Database, name: str) -> None:
    db.run(BEGAN, name=name)


def ended(db: Database, name: str, result: Mapping[str, Any]) -> None:
    db.run(ENDED, name=name, result=dumps(result))


def age_s(db: Database, name: str) -> float | None:
    """Seconds since this upkeep last ended well; None: never."""
    rows = db.run(AGE, name=name)
    return rows[0].age_s if rows else None
