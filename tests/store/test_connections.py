"""Does anybody notice when a connection breaks at a bad moment?"""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event, text

from pipeline.store.engine import Database

END = text("SELECT pg_terminate_backend(:pid)")


@pytest.fixture
def breaking(db: Database, store_url: str) -> list[int]:
    """The next connection that is given back breaks on the way; the pids of those that did."""
    other, broken = Database(store_url), list[int]()
    db.run(text("SELECT 1"))

    def break_once(connection: Any, _record: Any, _state: Any) -> None:
        if not broken:
            broken.append(connection.info.backend_pid)
            other.run(END, pid=broken[0])
            wait = text("SELECT count(*) AS n FROM pg_stat_activity WHERE pid = :pid")
            while other.run(wait, pid=broken[0])[0].n:
                pass

    event.listen(db.engine, "reset", break_once)
    return broken


def test_a_connection_that_breaks_while_it_is_given_back_is_replaced(db: Database, breaking: list[int]) -> None:
    rows = db.run(text("SELECT 7 AS n"))

    assert rows[0].n == 7
    assert len(breaking) == 1
