"""What may every test of the store count on? A migrated database in which nothing has happened yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from pipeline.store.engine import Database
from tests.store.world import TABLES, Another


@pytest.fixture(scope="session")
def store_url(make_database: Callable[..., str]) -> str:
    return make_database()


@pytest.fixture
def db(store_url: str) -> Iterator[Database]:
    made = Database(store_url)
    with made.transaction() as conn:
        # One database for all tests, emptied: ten times cheaper than one each.
        for table in reversed(TABLES):
            conn.execute(text(f"DELETE FROM {table}"))
    yield made
    made.dispose()


@pytest.fixture
def another(store_url: str) -> Iterator[Another]:
    """Call it for one more process's view of the same database."""
    made: list[Database] = []

    def make() -> Database:
        made.append(Database(store_url, pool_size=1))
        return made[-1]

    yield make
    for each in made:
        each.dispose()
