"""What may every test count on? A real Postgres and a real Redis of its own, clean, and cheap to ask for."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg2
import pytest
import redis

from pipeline import embedded, settings
from pipeline.embedded import Services
from pipeline.store import engine, migrate

TEMPLATE = "migrated"
_number = itertools.count(1)


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Postgres and Redis for the whole session. A test that stops one starts it again, or asks for its own home."""
    home = tmp_path_factory.mktemp("services") / "home"
    with embedded.services(home) as running:
        yield running
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def make_database(services: Services) -> Iterator[Callable[..., str]]:
    """Call it for the URL of a database of one's own; `migrated=False` for an empty one."""
    sql = _Admin(services)
    made: list[str] = []

    def make(*, migrated: bool = True) -> str:
        services.postgres.start()
        if migrated and TEMPLATE not in made:
            sql(f"CREATE DATABASE {TEMPLATE}")
            migrate.upgrade(_url(services, TEMPLATE))
            made.append(TEMPLATE)
        name = f"test_{next(_number)}"
        sql(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE if migrated else 'template0'}")
        made.append(name)
        return _url(services, name)

    yield make
    services.postgres.start()
    for name in made:
        sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def database_url(services: Services, make_database: Callable[..., str]) -> Iterator[str]:
    """A migrated database that nobody else has; gone after the test."""
    url = make_database()
    yield url
    services.postgres.start()
    _Admin(services)(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")


@pytest.fixture
def redis_url(services: Services) -> str:
    """The broker, emptied."""
    services.redis.start()
    with redis.Redis.from_url(services.broker_url) as client:
        client.flushall()
    return services.broker_url


@pytest.fixture
def env(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The variables of a whole system of one's own, set in this process and to be handed to others."""
    told = {
        "DATABASE_URL": database_url,
        "BROKER_URL": redis_url,
        "SCRATCH_DIR": str(tmp_path / "scratch"),
        "OUTPUT_DIR": str(tmp_path / "output"),
        "IRONCLIP_HOME": str(tmp_path / "home"),
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    _forget()
    yield told
    _forget()


def _forget() -> None:
    # What a process reads once, a test may need to read again.
    settings.current.cache_clear()
    engine._of_process.cache_clear()


def _url(services: Services, database: str) -> str:
    return services.database_url.rpartition("/")[0] + f"/{database}"


class _Admin:
    """Runs one statement outside of any transaction."""

    def __init__(self, services: Services) -> None:
        self.dsn = _url(services, "postgres").replace("+psycopg2", "")

    def __call__(self, statement: str) -> None:
        connection = psycopg2.connect(self.dsn)
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the further cases to `make test-long`."""
    if os.environ.get("LONG"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("long")]
