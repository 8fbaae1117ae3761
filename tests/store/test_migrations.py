"""Where do the tables come from, and do they go again? By migrations, all the way up and down, however many start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.store import migrate
from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from pipeline.store.rows import COLUMNS
from tests.store.world import TABLES, enqueue, everything, now_of, rows, until, value

ROOT = Path(__file__).parents[2]

# Whatever has an identity of its own, with that identity.
THINGS = """
    SELECT relkind::text AS kind, relname AS name, oid FROM pg_class WHERE relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'function', proname, oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'type', typname, oid FROM pg_type
     WHERE typnamespace = 'public'::regnamespace AND typrelid = 0 AND typelem = 0
    UNION ALL
    SELECT 'rule', conname, oid FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'trigger', tgname, oid FROM pg_trigger WHERE NOT tgisinternal"""

SHAPE = """
    SELECT 'column' AS kind, table_name || '.' || column_name AS name,
           concat_ws(' ', data_type, is_nullable, column_default) AS definition
      FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL
    SELECT 'rule', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid) FROM pg_constraint
     WHERE connamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL
    SELECT 'trigger', tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal"""

# The words of the seeds, which people have in their queries and dashboards.
SEED_COLUMNS = """
    locked_by lease_expires_at last_heartbeat_at attempt_count max_attempts fail_code fail_reason stage
    next_earliest_run_at expected_duration_ms processing_started_at skip_until checkpoint progress last_progress_value
    last_progress_update last_error error_history"""

REAPERS_INDEXES = ("idx_jobs_status_lease", "idx_asr_jobs_status_lease")

WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
def empty(make_database: Callable[..., str]) -> Iterator[Database]:
    """A database without a single table."""
    made = Database(make_database(migrated=False))
    yield made
    made.dispose()


def url(db: Database) -> str:
    return db.engine.url.render_as_string(hide_password=False)


def things(db: Database) -> list[dict[str, Any]]:
    return sorted(rows(db, THINGS), key=lambda thing: (thing["kind"], thing["name"], thing["oid"]))


def shape(db: Database) -> list[tuple[str, ...]]:
    return sorted(tuple(row.values()) for row in rows(db, SHAPE))


def columns(db: Database, table: str) -> set[str]:
    told = rows(db, "SELECT column_name FROM information_schema.columns WHERE table_name = :table", table=table)
    return {row["column_name"] for row in told}


def test_an_empty_database_gets_every_table(empty: Database):
    revision = migrate.upgrade(url(empty))

    tables = rows(empty, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert revision == migrate.head()
    assert {row["tablename"] for row in tables} == {*TABLES, "alembic_version"}


def test_a_job_can_live_in_what_was_just_made(empty: Database):
    migrate.upgrade(url(empty))

    job = enqueue(empty)

    assert now_of(empty, job) == job


def test_a_downgrade_to_the_base_leaves_nothing_of_ours(empty: Database):
    migrate.upgrade(url(empty))
    enqueue(empty)

    revision = migrate.downgrade(url(empty), "base")

    assert revision == "base"
    assert [thing for thing in things(empty) if not thing["name"].startswith("alembic_version")] == []
    assert value(empty, "SELECT count(*) FROM alembic_version") == 0


def test_what_comes_back_after_a_downgrade_is_what_was_there(empty: Database):
    migrate.upgrade(url(empty))
    before = shape(empty)

    migrate.downgrade(url(empty), "base")
    migrate.upgrade(url(empty))

    assert shape(empty) == before


def test_a_second_upgrade_touches_nothing(empty: Database):
    migrate.upgrade(url(empty))
    enqueue(empty)
    before = things(empty), everything(empty)

    revision = migrate.upgrade(url(empty))

    assert revision == migrate.head()
    assert (things(empty), everything(empty)) == before


def test_four_that_start_at_once_on_an_empty_database_all_find_it_migrated(empty: Database):
    program = "import sys; from pipeline.store import migrate; print(migrate.upgrade(sys.argv[1]))"
    command = [sys.executable, "-c", program, url(empty)]
    with empty.transaction() as conn:
        conn.execute(migrate.LOCK)
        starting = [
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        until(lambda: value(empty, WAITING) == 4 or any(each.poll() is not None for each in starting), timeout_s=60)
        waited = [each.poll() is None for each in starting]
        conn.execute(migrate.UNLOCK)
    told = [each.communicate(timeout=60) for each in starting]

    assert waited == [True] * 4
    assert told == [(f"{migrate.head()}\n", "")] * 4
    assert rows(empty, "SELECT version_num FROM alembic_version") == [{"version_num": migrate.head()}]


@pytest.mark.parametrize("table", Table)
def test_every_column_that_the_code_reads_is_there(db: Database, table: Table):
    assert set(COLUMNS) <= columns(db, table)


@pytest.mark.parametrize("table", Table)
def test_the_seeds_find_their_columns_again(db: Database, table: Table):
    assert set(SEED_COLUMNS.split()) <= columns(db, table)


@pytest.mark.parametrize("index", REAPERS_INDEXES)
def test_finished_rows_cost_the_reaper_nothing(db: Database, index: str):
    definition = value(db, "SELECT indexdef FROM pg_indexes WHERE indexname = :index", index=index)

    assert definition.endswith("(status, lease_expires_at) WHERE (status = 'processing'::text)")
