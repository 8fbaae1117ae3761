"""When did each upkeep last run, and who may run it now? One row each, and a lock that dies with its holder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
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

# One row for the whole fleet: since when has somebody reached us without a gap? Written at most a few times a gap.
CONTACT = text("""
    INSERT INTO upkeep_runs (name, last_began_at, last_ended_at)
    VALUES ('contact', clock_timestamp(), clock_timestamp())
    ON CONFLICT (name) DO UPDATE
       SET last_began_at = CASE WHEN upkeep_runs.last_ended_at < clock_timestamp() - CAST(:gap AS interval)
                                THEN clock_timestamp() ELSE upkeep_runs.last_began_at END,
           last_ended_at = clock_timestamp()
     WHERE upkeep_runs.last_ended_at < clock_timestamp() - CAST(:gap AS interval) / 3""")

CONTACT_AGE = text("""
    SELECT extract(epoch FROM clock_timestamp() - greatest(last_began_at, pg_postmaster_start_time()))::float AS age_s
      FROM upkeep_runs WHERE name = 'contact'""")

AGES = text("SELECT name, extract(epoch FROM clock_timestamp() - last_ended_at)::float AS age_s FROM upkeep_runs")


@contextmanager
def alone(db: Database, name: str) -> Iterator[bool]:
    """Whether this upkeep is ours to run now: two at once are harmless, but a waste."""
    with db.transaction() as conn:
        yield bool(fetch(conn.execute(TRY_LOCK, {"name": name}))[0].mine)


def began(db: Database, name: str) -> None:
    db.run(BEGAN, name=name)


def ended(db: Database, name: str, result: Mapping[str, Any]) -> None:
    db.run(ENDED, name=name, result=dumps(result))


def contact(db: Database, gap: timedelta) -> None:
    """Somebody of the fleet reaches the database now; a silence of everybody for longer than `gap` was an outage."""
    db.run(CONTACT, gap=gap)


def contact_age_s(db: Database) -> float:
    """For how long the database has been there for the fleet without a gap."""
    rows = db.run(CONTACT_AGE)
    return float(rows[0].age_s) if rows else 0.0


def ages_s(db: Database) -> dict[str, float]:
    """Seconds since each upkeep last ended well; those that never did are left out."""
    return {row.name: row.age_s for row in db.run(AGES) if row.age_s is not None}
