"""Who of the fleet is there? Whoever beats is, and whoever was never heard of is not for ever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline.store import workers
from pipeline.store.engine import Database
from tests.store.world import Inside, until_blocked_or_done, value

SILENCE = timedelta(seconds=90)


@pytest.fixture
def silent(db: Database) -> UUID:
    """A worker that has not beaten for longer than it may."""
    worker = uuid4()
    workers.register(db, worker, name="w", hostname="h", queues=[], slots=1, boot_id=None, pid=1, pid_started=None)
    db.run(text("UPDATE workers SET last_heartbeat = last_heartbeat - interval '91 s'"))
    return worker


def status(db: Database) -> str:
    return str(value(db, "SELECT status FROM workers"))


def test_a_silent_worker_is_offline_and_its_next_beat_brings_it_back(db: Database, silent: UUID):
    buried = workers.bury(db, [], SILENCE)
    offline = status(db)
    workers.beat(db, silent, busy=False)

    assert [row["id"] for row in buried] == [silent]
    assert (offline, status(db)) == ("offline", "idle")


def test_a_beat_that_comes_while_somebody_looks_keeps_its_worker_alive(db: Database, silent: UUID):
    with ThreadPoolExecutor(1) as pool:
        with db.transaction() as conn:
            workers.beat(Inside(conn), silent, busy=True)
            looking = pool.submit(workers.bury, db, [], SILENCE)
            until_blocked_or_done(db, looking)

        assert looking.result(20) == []
    assert status(db) == "busy"


def test_a_worker_that_registered_and_never_beat_is_silent_since_then(db: Database, silent: UUID):
    never_beat = value(db, "SELECT abs(extract(epoch FROM last_heartbeat - registered_at) + 91) < 1 FROM workers")

    assert never_beat
    assert len(workers.bury(db, [], SILENCE)) == 1
    assert len(workers.bury(db, [], SILENCE)) == 0
