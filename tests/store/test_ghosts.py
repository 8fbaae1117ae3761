"""What can somebody write whose lease was given to another? Nothing, anywhere, however early the write began."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import text

from pipeline.core.job import Job, OutputStatus, Stage
from pipeline.core.moves import Complete, Fail, Refusal, Release
from pipeline.core.output import File
from pipeline.store import checkpoints, jobs, leases, outputs
from pipeline.store.engine import Database
from tests.core.lives import HOLDER_MOVES, fail
from tests.store.world import (
    LEASE,
    SILENCE,
    Another,
    Inside,
    a_claim,
    advance,
    balance_of,
    claim,
    enqueue,
    entries,
    everything,
    let_pass,
    now_of,
    open_account,
    output,
    outputs_of,
    play,
    reap,
    refused,
    running,
    until_blocked_or_done,
)

FILE = File(name="a-final.mp4", sha256="0" * 64, size=1)

Write = Callable[[Database, Job, int], object]  # by whom, with which lease, about which output

WRITES: dict[str, Write] = {
    **{
        make.__name__: lambda db, job, _, make=make: jobs.apply(db, job.id, make(job.fence))  # type: ignore[misc]
        for make in HOLDER_MOVES
    },
    "complete as it saw it": lambda db, job, _: jobs.apply(db, job.id, Complete(fence=job.fence), snapshot=job),
    "hand over": lambda db, job, _: jobs.apply(
        db, job.id, Complete(fence=job.fence), a_claim(job, stage=Stage.UPLOAD), snapshot=job
    ),
    "pulse": lambda db, job, _: leases.pulse(db, job.id, job.fence, 50.0, 50.0, SILENCE) is not None,
    "renew": lambda db, job, _: leases.renew(db, job.lease.holder, [job.lease.request_id], LEASE),
    "checkpoint": lambda db, job, _: checkpoints.put(db, job.id, job.fence, 1, "unit", {"by": "ghost"}),
    "output": lambda db, job, o: outputs.record(db, job.id, job.fence, o, OutputStatus.COMPLETED, files=[FILE]),
    "progress of an output": lambda db, job, o: outputs.progressed(db, job.id, job.fence, o, 50.0),
    "delivery": lambda db, job, o: outputs.delivered(db, job.id, job.fence, o, "nas"),
    "transcript": lambda db, job, o: outputs.transcribed(db, job.id, job.fence, o, {"text": "boo"}),
}


def about_to_be_a_ghost(db: Database) -> Job:
    """A holder at the second stage that has been silent for so long that every one of its moves would make sense."""
    job = claim(db, advance(db, running(db)), by="ghost")
    let_pass(db, job, timedelta(minutes=11))
    return job


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_holder_can_write_until_somebody_else_is_given_the_job(db: Database, write: Write):
    job = about_to_be_a_ghost(db)
    before = everything(db)

    answer = write(db, job, outputs_of(db, job)[0])

    assert not refused(answer)
    assert everything(db) != before


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_ghost_can_write_nothing_anywhere(db: Database, write: Write):
    ghost = about_to_be_a_ghost(db)
    (reaped,) = reap(db)
    claim(db, reaped, by="heir")
    before = everything(db)

    answer = write(db, ghost, outputs_of(db, ghost)[0])

    assert refused(answer)
    assert everything(db) == before


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_ghost_whose_write_began_before_it_was_reaped_still_writes_nothing(
    db: Database, another: Another, write: Write
):
    ghost, late = about_to_be_a_ghost(db), another()
    (made,) = outputs_of(db, ghost)
    with ThreadPoolExecutor(1) as pool:
        with db.transaction() as conn:
            (reaped,) = reap(Inside(conn))
            claim(Inside(conn), reaped, by="heir")
            left = everything(Inside(conn))
            answer = pool.submit(write, late, ghost, made)
            until_blocked_or_done(db, answer)

        assert refused(answer.result(20))
    assert everything(db) == left


def test_a_ghost_knows_that_it_is_one(db: Database):
    ghost = about_to_be_a_ghost(db)
    held = leases.left_s(db, ghost.id, ghost.fence, SILENCE)

    (reaped,) = reap(db)
    heir = claim(db, reaped, by="heir")

    assert held is not None
    assert leases.left_s(db, ghost.id, ghost.fence, SILENCE) is None
    assert leases.left_s(db, heir.id, heir.fence, SILENCE) is not None


def test_a_job_that_was_only_taken_away_is_closed_to_its_ghost_too(db: Database):
    ghost = about_to_be_a_ghost(db)
    reap(db)
    before = everything(db)

    answers = [write(db, ghost, outputs_of(db, ghost)[0]) for write in WRITES.values()]

    assert all(map(refused, answers))
    assert everything(db) == before


def test_a_claim_that_a_crash_of_postgres_forgot_opens_nothing(db: Database):
    """The fence in the write's WHERE: after such a crash another claim may have got the same version."""
    job = enqueue(db)
    forgotten = claim(db, job, by="ghost")
    play(db, forgotten, Release(fence=forgotten.fence))
    heir = claim(db, now_of(db, job), by="heir")
    db.run(text("UPDATE jobs SET version = :version WHERE id = :id"), id=job.id, version=forgotten.version)

    answer = jobs.apply(db, job.id, Complete(fence=forgotten.fence), snapshot=forgotten)

    assert answer is Refusal.LEASE_LOST
    assert now_of(db, job).fence == heir.fence


@pytest.mark.parametrize("ghosts_end", [Complete, fail], ids=["completes", "fails"])
@pytest.mark.parametrize("heirs_end", [Complete, fail, None], ids=["completed", "failed", "still runs"])
@pytest.mark.parametrize("as_it_saw_it", [True, False])
def test_a_ghost_settles_and_gives_back_nothing(
    db: Database,
    ghosts_end: Callable[..., Complete | Fail],
    heirs_end: Callable[..., Complete | Fail] | None,
    as_it_saw_it: bool,
):
    job = enqueue(db, plan=[Stage.FINALIZE], account=open_account(db), outputs=[output("a", price=10)])
    ghost = claim(db, job, by="ghost")
    outputs.record(db, job.id, ghost.fence, outputs_of(db, job)[0], OutputStatus.COMPLETED, files=[FILE])
    let_pass(db, ghost, LEASE)
    (reaped,) = reap(db)
    heir = claim(db, reaped, by="heir")
    if heirs_end is not None:
        play(db, heir, heirs_end(fence=heir.fence))
    settled = (balance_of(db), entries(db))

    answer = jobs.apply(db, job.id, ghosts_end(fence=ghost.fence), snapshot=ghost if as_it_saw_it else None)

    assert answer is Refusal.LEASE_LOST
    assert (balance_of(db), entries(db)) == settled
