"""Which jobs need a message now, in which order, and who sends it? Everything due, the best first, one sender each."""

from datetime import timedelta
from functools import partial

import pytest

from pipeline.core.job import Job, Priority, Stage
from pipeline.core.moves import Cancel, Defer, Move, Retry
from pipeline.store import jobs
from pipeline.store.engine import Database
from tests.core.lives import defer, retry
from tests.store.world import (
    Another,
    Inside,
    Start,
    advance,
    claim,
    enqueue,
    let_pass,
    lock,
    make_late,
    now_of,
    play,
    reap,
    running,
)

LOST_AFTER = timedelta(minutes=10)


def sweep(db: Database, limit: int = 100, idle: tuple[Stage, ...] = ()) -> list[Job]:
    return jobs.take_due(db, limit, LOST_AFTER, idle)


def names(taken: list[Job], **known: Job) -> list[str]:
    """The jobs by the names that the test gave them."""
    by_id = {job.id: name for name, job in known.items()}
    return [by_id[job.id] for job in taken]


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_what_was_recovered_goes_first_then_by_priority_then_by_age(db: Database, limit: int):
    low = enqueue(db, priority=Priority.LOW)
    old = enqueue(db)
    new = enqueue(db)
    high = enqueue(db, priority=Priority.HIGH)
    recovered = running(db, priority=Priority.LOW)
    make_late(db, recovered)
    reap(db)
    let_pass(db, old, timedelta(hours=1))

    taken = sweep(db, limit)

    best_first = ["recovered", "high", "old", "new", "low"]
    assert names(taken, low=low, old=old, new=new, high=high, recovered=recovered) == best_first[:limit]


def test_a_sweep_marks_what_it_takes(db: Database):
    job = enqueue(db)

    (taken,) = sweep(db)

    assert taken.published_at is not None
    assert taken == now_of(db, job)
    assert sweep(db) == []


@pytest.mark.parametrize("move", [retry, defer])
def test_what_waits_for_its_time_is_taken_when_the_time_has_come(db: Database, move: type[Retry | Defer]):
    job = running(db)
    play(db, job, move(job.fence, delay=timedelta(minutes=3)))

    too_early = sweep(db)
    let_pass(db, job, timedelta(minutes=3))

    assert too_early == []
    assert [each.id for each in sweep(db)] == [job.id]


@pytest.mark.parametrize("move", [None, Cancel(by="ann")], ids=["held", "finished"])
def test_what_somebody_runs_or_nobody_wants_gets_no_message(db: Database, move: Move | None):
    job = running(db)
    if move is not None:
        play(db, job, move)
    let_pass(db, job, timedelta(days=1))

    assert sweep(db, idle=tuple(Stage)) == []
    assert jobs.take_one(db, job.id) is None


def test_a_backlog_is_not_published_again_while_its_queue_holds_messages(db: Database):
    job = enqueue(db, published=True)
    let_pass(db, job, LOST_AFTER)

    in_a_backlog = sweep(db, idle=(Stage.CLIP,))
    lost = sweep(db, idle=(Stage.RESOLVE,))

    assert in_a_backlog == []
    assert [each.id for each in lost] == [job.id]


def test_a_message_is_not_lost_before_its_time(db: Database):
    enqueue(db, published=True)

    assert sweep(db, idle=tuple(Stage)) == []


def test_the_next_link_of_a_chain_counts_as_a_message(db: Database):
    job = advance(db, running(db))

    at_once = sweep(db, idle=tuple(Stage))
    let_pass(db, job, LOST_AFTER)

    assert at_once == []
    assert [(each.id, each.stage) for each in sweep(db, idle=(Stage.CLIP,))] == [(job.id, Stage.CLIP)]


def test_two_sweeps_at_once_publish_no_row_twice(db: Database, another: Another):
    views = [another() for _ in range(4)]
    waiting = [enqueue(db).id for _ in range(40)]
    with Start(4) as start:
        taken = start.together(*(partial(sweep, view, 25) for view in views))

    ids = [job.id for batch in (*taken, sweep(db)) for job in batch]
    assert sorted(ids) == sorted(waiting)


def test_a_sweep_does_not_wait_for_a_row_that_somebody_is_writing(db: Database):
    busy, free = enqueue(db), enqueue(db)

    with db.transaction() as conn:
        lock(conn, busy)
        taken = sweep(db)

    assert [job.id for job in taken] == [free.id]


def test_of_a_submitter_and_a_sweep_one_sends_the_message(db: Database, another: Another):
    submitter, sweeper = another(), another()
    with Start(2) as start:
        for _ in range(40):
            job = enqueue(db)

            submitted, swept = start.together(partial(jobs.take_one, submitter, job.id), partial(sweep, sweeper))

            assert [submitted is not None, bool(swept)].count(True) == 1


def test_a_message_is_sent_once_by_whoever_asks(db: Database):
    job = enqueue(db)

    first, second = jobs.take_one(db, job.id), jobs.take_one(db, job.id)

    assert first == now_of(db, job)
    assert second is None


def test_what_the_broker_did_not_take_is_taken_again(db: Database):
    kept, refused = enqueue(db), enqueue(db)
    sweep(db)

    jobs.unpublish(db, [refused.id])

    assert [job.id for job in sweep(db)] == [refused.id]
    assert now_of(db, kept).published_at is not None


def test_a_message_that_a_worker_has_taken_was_published_whatever_the_broker_said(db: Database):
    job = enqueue(db)
    sweep(db)
    held = claim(db, job)

    jobs.unpublish(db, [job.id])

    assert now_of(db, job) == held


def test_a_sweep_that_dies_before_it_commits_has_taken_nothing(db: Database):
    job = enqueue(db)

    with db.transaction() as conn:
        taken = sweep(Inside(conn))
        conn.rollback()

    assert [each.id for each in taken] == [job.id]
    assert [each.id for each in sweep(db)] == [job.id]
