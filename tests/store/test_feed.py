"""Does the feed number every event once, in an order that never changes, whoever is slow to commit?"""

from __future__ import annotations

import threading
from uuid import uuid4

import pytest
from sqlalchemy import text

from pipeline.store import feed
from pipeline.store.engine import Database
from tests.store.world import Another, enqueue, rows, until, value

TELL = text("INSERT INTO job_events (job_id, type) VALUES (:job, :type)")


def tell(db: Database, kind: str = "told") -> None:
    db.run(TELL, job=uuid4(), type=kind)


@pytest.fixture
def begun(db: Database) -> Database:
    """A feed that has begun, with one event in it and no gap."""
    tell(db, "first")
    feed.relay(db)
    db.run(text("DELETE FROM feed_gaps"))
    return db


def types(db: Database, seq: int = 1) -> list[str]:
    return [event.type for event in feed.after(db, seq)]


def test_events_are_numbered_from_one_without_a_hole(db: Database):
    for n in range(5):
        tell(db, f"e{n}")

    numbered = feed.relay(db)
    again = feed.relay(db)

    assert (numbered, again) == (5, 0)
    assert [(e.seq, e.type) for e in feed.after(db, 0)] == [(n + 1, f"e{n}") for n in range(5)]
    assert feed.last(db) == 5


def test_a_transaction_that_stays_open_delays_its_own_events_and_nobody_elses(begun: Database, another: Another):
    db = begun
    with another().transaction() as slow:
        slow.execute(TELL, {"job": uuid4(), "type": "slow"})
        tell(db, "quick")
        feed.relay(db)
        meanwhile = types(db)
        tell(db, "quicker")
        feed.relay(db)
        still = types(db)
    feed.relay(db)

    assert meanwhile == ["quick"]
    assert still == ["quick", "quicker"]
    assert types(db) == ["quick", "quicker", "slow"]
    assert value(db, "SELECT count(*) FROM feed_gaps") == 0


def test_what_was_rolled_back_is_given_up_when_nobody_can_bring_it_any_more(begun: Database, another: Another):
    db = begun
    with another().transaction() as failed:
        failed.execute(TELL, {"job": uuid4(), "type": "never"})
        failed.rollback()
    with another().transaction() as open_now:
        open_now.execute(TELL, {"job": uuid4(), "type": "late"})
        tell(db, "after")
        feed.relay(db)
        db.run(text("UPDATE feed_gaps SET seen_at = seen_at - interval '1 hour'"))
        feed.relay(db)
        kept = value(db, "SELECT count(*) FROM feed_gaps")
    feed.relay(db)

    assert kept == 2  # the one that ran then still runs: either could be its
    assert types(db) == ["after", "late"]
    assert value(db, "SELECT count(*) FROM feed_gaps") == 0


def test_two_relays_number_nothing_twice(begun: Database, another: Another):
    db = begun
    tell(db, "one")
    with another().transaction() as other:
        other.execute(feed.HEAD)
        meanwhile = feed.relay(db)
    after = feed.relay(db)

    assert (meanwhile, after) == (0, 1)


def test_fifty_writers_and_four_relays_leave_one_order_with_everything_in_it(begun: Database, another: Another):
    db = begun
    each, writers = 20, 50
    done = threading.Event()
    seen: list[int] = []

    def write(me: Database) -> None:
        for _ in range(each):
            with me.transaction() as conn:
                for _ in range(2):
                    conn.execute(TELL, {"job": uuid4(), "type": "told"})

    def number(me: Database) -> None:
        while not done.is_set():
            feed.relay(me)

    def read(me: Database) -> None:
        seq = 1
        while not done.is_set() or feed.after(me, seq):
            for event in feed.after(me, seq):
                seq = event.seq
                seen.append(event.event_id)

    many = Database(db.engine.url.render_as_string(hide_password=False), pool_size=12)
    writing = [threading.Thread(target=write, args=(many,)) for _ in range(writers)]
    others = [threading.Thread(target=number, args=(another(),)) for _ in range(4)]
    others.append(threading.Thread(target=read, args=(another(),)))
    for thread in (*writing, *others):
        thread.start()
    for thread in writing:
        thread.join(60)
    until(lambda: value(db, "SELECT count(*) FROM event_feed") == 1 + each * writers * 2, timeout_s=60)
    done.set()
    for thread in others:
        thread.join(60)
    many.dispose()

    written = {row["id"] for row in rows(db, "SELECT id FROM job_events")}
    assert len(written) == 1 + each * writers * 2
    assert len(seen) == len(set(seen)) == each * writers * 2
    assert set(seen) < written
    assert [e["seq"] for e in rows(db, "SELECT seq FROM event_feed ORDER BY seq")] == list(range(1, len(written) + 1))


def test_a_job_of_an_account_has_it_on_its_events(db: Database):
    db.run(text("INSERT INTO accounts (id) VALUES ('ann')"))
    mine, other = enqueue(db, account="ann"), enqueue(db)
    feed.relay(db)

    assert [e.job_id for e in feed.after(db, 0, account="ann")] == [mine.id]
    assert [e.job_id for e in feed.after(db, 0, job=other.id)] == [other.id]


def test_numbers_go_on_where_they_were_when_old_events_are_pruned(db: Database):
    tell(db, "old")
    feed.relay(db)
    db.run(text("DELETE FROM job_events"))
    tell(db, "new")
    feed.relay(db)

    assert [(e.seq, e.type) for e in feed.after(db, 0)] == [(2, "new")]


def test_a_backlog_is_numbered_in_batches(db: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(feed, "BATCH", 3)
    for n in range(7):
        tell(db, f"e{n}")

    steps = [feed.relay(db) for _ in range(4)]

    assert steps == [3, 3, 1, 0]
    assert types(db, 0) == [f"e{n}" for n in range(7)]
