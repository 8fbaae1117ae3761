"""What may a test of webhooks count on? A database of its own, and real endpoints on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import text

from pipeline import settings
from pipeline.store import engine
from pipeline.store.engine import Database, database
from tests.store.world import TABLES
from tests.webhooks.world import SECRET, Place, standing


@pytest.fixture
def endpoint() -> Iterator[Callable[..., Place]]:
    """Call it for an endpoint of one's own."""
    with ExitStack() as made:
        yield lambda **told: made.enter_context(standing(**told))


@pytest.fixture(scope="session")
def shared_url(make_database: Callable[..., str]) -> str:
    return make_database()


@pytest.fixture
def db(shared_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A system in which nothing has happened yet and webhooks may go to loopback."""
    told = {"WEBHOOK_ALLOW_HOSTS": "127.0.0.1", "WEBHOOK_SECRET": SECRET, "WEBHOOK_TIMEOUT_SEC": "0.5"}
    places = {"SCRATCH_DIR": str(tmp_path / "scratch"), "OUTPUT_DIR": str(tmp_path / "output")}
    for name, value in {"DATABASE_URL": shared_url, "BROKER_URL": redis_url, **told, **places}.items():
        monkeypatch.setenv(name, value)
    settings.current.cache_clear()
    engine._of_process.cache_clear()
    with database().transaction() as conn:
        for table in reversed(TABLES):
            conn.execute(text(f"DELETE FROM {table}"))
    yield database()
    database().dispose()
    settings.current.cache_clear()
    engine._of_process.cache_clear()


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.mp4"
    path.write_bytes(b"not really a film")
    return path
