"""Which jobs need a message now, in which order, and who sends it? Everything due, the best first, one sender each."""

from collections import Counter
from datetime import timedelta
from functools import partial

import pytest

from pipeline.core.job import Job, Priority, Stage
from pipeline.core.moves import Cancel, Defer, Move, Retry
from pipeline.core.window import Rooms
from pipeline.store import due
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
    open_account,
    play,
    reap,
    running,
    take_due,
    value,
)


def account_of(db: Database, job: Job) -> str:
    return str(value(db, "SELECT account_id FROM jobs WHERE id = :id", id=job.id))


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
    let_pass(db, old, timedelta(minutes=5))

    taken = take_due(db, limit)

    best_first = ["recovered", "high", "old", "new", "low"]
    assert names(taken, low=low, old=old, new=new, high=high, recovered=recovered) == best_first[:limit]


def test_a_job_moves_up_one_priority_for_every_ten_minutes_that_it_waits(db: Database):
    low = enqueue(db, priority=Priority.LOW)
    normal = enqueue(db)
    high = enqueue(db, priority=Priority.HIGH)

    let_pass(db, low, timedelta(minutes=11))
    once = names(take_due(db), low=low, normal=normal, high=high)
    due.unpublish(db, [low.id, normal.id, high.id])
    let_pass(db, low, timedelta(minutes=10))
    twice = names(take_due(db), low=low, normal=normal, high=high)

    assert once == ["high", "low", "normal"]
    assert twice == ["low", "high", "normal"]


def test_accounts_take_turns(db: Database):
    for name in ("ann", "bob"):
        open_account(db, name)
    anns = [enqueue(db, account="ann") for _ in range(5)]
    bobs = [enqueue(db, account="bob") for _ in range(2)]
    known = {f"ann{n}": job for n, job in enumerate(anns)} | {f"bob{n}": job for n, job in enumerate(bobs)}

    assert names(take_due(db), **known) == ["ann0", "bob0", "ann1", "bob1", "ann2", "ann3", "ann4"]


def test_an_account_with_jobs_on_their_way_lets_others_go_first(db: Database):
    for name in ("ann", "bob"):
        open_account(db, name)
    anns = [enqueue(db, account="ann") for _ in range(5)]
    claim(db, *take_due(db, 1))
    take_due(db, 1)
    bobs = [enqueue(db, account="bob") for _ in range(3)]
    known = {f"ann{n}": job for n, job in enumerate(anns)} | {f"bob{n}": job for n, job in enumerate(bobs)}

    one_by_one = [names(take_due(db, 1), **known)[0] for _ in range(6)]

    assert one_by_one == ["bob0", "bob1", "ann2", "bob2", "ann3", "ann4"]


def test_turns_are_taken_within_a_priority(db: Database):
    for name in ("ann", "bob"):
        open_account(db, name)
    urgent = [enqueue(db, account="ann", priority=Priority.HIGH) for _ in range(2)]
    usual = enqueue(db, account="bob")

    assert names(take_due(db), first=urgent[0], second=urgent[1], usual=usual) == ["first", "second", "usual"]


def test_of_many_accounts_each_gets_its_turn_however_little_room_there_is(db: Database):
    accounts = [open_account(db, f"account {n:02}") for n in range(20)]
    for _ in range(3):
        for account in accounts:
            enqueue(db, account=account)

    rounds = [[account_of(db, job) for _ in range(5) for job in take_due(db, 4)] for _ in range(3)]

    assert [sorted(each) for each in rounds] == [accounts] * 3


def test_a_queue_gets_no_more_than_its_room(db: Database):
    fetching = [enqueue(db) for _ in range(5)]
    encoding = [advance(db, running(db)) for _ in range(5)]
    due.unpublish(db, [job.id for job in encoding])
    stages = dict.fromkeys(Stage, 5)

    taken = due.take_due(db, Rooms({"io": 3, "media": 2}, stages), 100, timedelta(minutes=10))

    at = Counter(job.stage for job in taken)
    assert at == {Stage.RESOLVE: 3, Stage.CLIP: 2}
    assert {job.id for job in taken} <= {job.id for job in (*fetching, *encoding)}


def test_a_stage_gets_no_more_than_its_room(db: Database):
    for name in ("ann", "bob", "cid"):
        enqueue(db, account=open_account(db, name))
    uploading = [enqueue(db, plan=(Stage.UPLOAD, Stage.FINALIZE)) for _ in range(5)]

    rooms = Rooms({"io": 4, "media": 0}, {Stage.RESOLVE: 1, Stage.UPLOAD: 4, Stage.FINALIZE: 0})
    taken = due.take_due(db, rooms, 100, timedelta(minutes=10))

    assert Counter(job.stage for job in taken) == {Stage.RESOLVE: 1, Stage.UPLOAD: 3}
    assert len(uploading) == 5


def test_a_stage_without_room_is_not_taken_from(db: Database):
    enqueue(db)

    assert due.take_due(db, Rooms({"io": 9}, {Stage.RESOLVE: 0, Stage.UPLOAD: 9}), 9, timedelta(minutes=10)) == []


def test_a_sweep_marks_what_it_takes(db: Database):
    job = enqueue(db)

    (taken,) = take_due(db)

    assert taken.published_at is not None
    assert taken == now_of(db, job)
    assert take_due(db) == []


@pytest.mark.parametrize("move", [retry, defer])
def test_what_waits_for_its_time_is_taken_when_the_time_has_come(db: Database, move: type[Retry | Defer]):
    job = running(db)
    play(db, job, move(job.fence, delay=timedelta(minutes=3)))

    too_early = take_due(db)
    let_pass(db, job, timedelta(minutes=3))

    assert too_early == []
    assert [each.id for each in take_due(db)] == [job.id]


@pytest.mark.parametrize("move", [None, Cancel(by="ann")], ids=["held", "finished"])
def test_what_somebody_runs_or_nobody_wants_gets_no_message(db: Database, move: Move | None):
    job = running(db)
    if move is not None:
        play(db, job, move)
    let_pass(db, job, timedelta(days=1))

    assert take_due(db) == []
    assert due.take_one(db, job.id) is None


def test_two_sweeps_at_once_publish_no_row_twice(db: Database, another: Another):
    views = [another() for _ in range(4)]
    waiting = [enqueue(db).id for _ in range(40)]
    with Start(4) as start:
        taken = start.together(*(partial(take_due, view, 25) for view in views))

    ids = [job.id for batch in (*taken, take_due(db)) for job in batch]
    assert sorted(ids) == sorted(waiting)


def test_a_sweep_does_not_wait_for_a_row_that_somebody_is_writing(db: Database):
    busy, free = enqueue(db), enqueue(db)

    with db.transaction() as conn:
        lock(conn, busy)
        taken = take_due(db)

    assert [job.id for job in taken] == [free.id]


def test_of_a_submitter_and_a_sweep_one_sends_the_message(db: Database, another: Another):
    submitter, sweeper = another(), another()
    with Start(2) as start:
        for _ in range(40):
            job = enqueue(db)

            submitted, swept = start.together(partial(due.take_one, submitter, job.id), partial(take_due, sweeper))

            assert [submitted is not None, bool(swept)].count(True) == 1


def test_a_message_is_sent_once_by_whoever_asks(db: Database):
    job = enqueue(db)

    first, second = due.take_one(db, job.id), due.take_one(db, job.id)

    assert first == now_of(db, job)
    assert second is None


def test_what_the_broker_did_not_take_is_taken_again(db: Database):
    kept, refused = enqueue(db), enqueue(db)
    take_due(db)

    due.unpublish(db, [refused.id])

    assert [job.id for job in take_due(db)] == [refused.id]
    assert now_of(db, kept).published_at is not None


def test_a_message_that_a_worker_has_taken_was_published_whatever_the_broker_said(db: Database):
    job = enqueue(db)
    take_due(db)
    held = claim(db, job)

    due.unpublish(db, [job.id])

    assert now_of(db, job) == held


def test_a_sweep_that_dies_before_it_commits_has_taken_nothing(db: Database):
    job = enqueue(db)

    with db.transaction() as conn:
        taken = take_due(Inside(conn))
        conn.rollback()

    assert [each.id for each in taken] == [job.id]
    assert [each.id for each in take_due(db)] == [job.id]
