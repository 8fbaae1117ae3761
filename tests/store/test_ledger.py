"""Who pays, when, and how often? Whoever asked: held at the start of a run, charged or given back once at its end."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

import pytest
from sqlalchemy import text

from pipeline.core.errors import BadRequest, InsufficientCredits
from pipeline.core.job import Job, Outcome, OutputStatus, Stage, Status
from pipeline.core.moves import Cancel, Complete, Fail, Move, Requeue
from pipeline.core.output import File
from pipeline.store import jobs, leases, outputs
from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from tests.store.world import (
    Another,
    Inside,
    Start,
    balance_of,
    claim,
    enqueue,
    entries,
    make_late,
    now_of,
    open_account,
    output,
    outputs_of,
    play,
    reap,
    running,
    until_blocked_or_done,
    value,
)

FILE = File(name="a-final.mp4", sha256="0" * 64, size=1)
TWO = (output("a", price=10), output("b", price=3))


def paid_job(db: Database, **changes: object) -> Job:
    """A job of ann's at its last stage, with one output for 10 and one for 3."""
    return enqueue(db, **{"plan": [Stage.FINALIZE], "account": "ann", "outputs": TWO, **changes})


def half_done(db: Database) -> Job:
    """The job after a run that made its first output, and not the second."""
    job = claim(db, paid_job(db))
    made, broken = outputs_of(db, job)
    outputs.record(db, job.id, job.fence, made, OutputStatus.COMPLETED, files=[FILE])
    outputs.record(db, job.id, job.fence, broken, OutputStatus.FAILED, error_code="X")
    return play(db, job, Complete(fence=job.fence, outcome=Outcome.PARTIAL))


def test_what_a_job_may_cost_is_held_when_it_is_enqueued(db: Database):
    open_account(db)

    paid_job(db, outputs=(*TWO, output("free")))

    assert balance_of(db) == 87
    assert entries(db) == [("hold", 1, -10), ("hold", 1, -3)]


def test_an_account_that_cannot_pay_gets_no_job_and_pays_nothing(db: Database):
    open_account(db, balance=15)
    paid_job(db)

    with pytest.raises(InsufficientCredits):
        paid_job(db)

    assert balance_of(db) == 2
    assert entries(db) == [("hold", 1, -10), ("hold", 1, -3)]
    assert value(db, "SELECT count(*) FROM jobs") == 1


def test_there_is_no_job_for_an_account_that_is_not_there(db: Database):
    with pytest.raises(BadRequest, match="no account"):
        paid_job(db)

    assert value(db, "SELECT count(*) FROM jobs") == 0


def test_what_was_delivered_is_charged_and_the_rest_given_back(db: Database):
    open_account(db)

    half_done(db)

    assert balance_of(db) == 90
    assert sorted(entries(db)) == [("charge", 1, 0), ("hold", 1, -10), ("hold", 1, -3), ("refund", 1, 3)]


@pytest.mark.parametrize(
    "move", [Fail(fence=UUID(int=1), code="X", reason="y"), Cancel(by="ann")], ids=["failed", "cancelled"]
)
def test_a_job_that_came_to_nothing_costs_nothing(db: Database, move: Move):
    open_account(db)
    job = claim(db, paid_job(db), fence=UUID(int=1))
    outputs.record(db, job.id, job.fence, outputs_of(db, job)[0], OutputStatus.COMPLETED, files=[FILE])

    play(db, job, move)

    assert balance_of(db) == 100
    assert sorted(entries(db)) == [("hold", 1, -10), ("hold", 1, -3), ("refund", 1, 3), ("refund", 1, 10)]


def test_what_was_held_is_given_back_once_when_the_reaper_gives_up(db: Database):
    open_account(db)
    job = paid_job(db, outputs=TWO[:1])
    for _ in range(3):
        make_late(db, claim(db, now_of(db, job)))
        reap(db)

    assert now_of(db, job).status is Status.FAILED
    assert balance_of(db) == 100
    assert entries(db) == [("hold", 1, -10), ("refund", 1, 10)]


def test_a_new_run_holds_what_was_not_charged_before(db: Database):
    open_account(db)
    job = half_done(db)

    play(db, job, Requeue(by="op", failed_only=True))

    assert balance_of(db) == 87
    assert entries(db)[4:] == [("hold", 2, -3)]


def test_an_account_that_cannot_pay_for_a_new_run_keeps_the_job_as_it_was(db: Database):
    open_account(db, balance=13)
    job = half_done(db)
    db.run(text("UPDATE accounts SET balance = 2"))

    with pytest.raises(InsufficientCredits):
        play(db, job, Requeue(by="op", failed_only=True))

    assert now_of(db, job) == job
    assert balance_of(db) == 2


def test_what_an_operator_gave_back_is_not_given_back_again(db: Database):
    open_account(db)
    job = claim(db, paid_job(db))
    with db.transaction() as conn:
        conn.execute(
            text(
                "INSERT INTO credit_entries (account_id, job_id, output_id, run, kind, amount)"
                " SELECT account_id, job_id, output_id, run, 'refund', 10 FROM credit_entries WHERE amount = -10"
            )
        )
        conn.execute(text("UPDATE accounts SET balance = balance + 10"))

    play(db, job, Fail(fence=job.fence, code="X", reason="y"))

    assert balance_of(db) == 100
    assert [each for each in entries(db) if each[0] == "refund"] == [("refund", 1, 10), ("refund", 1, 3)]


def test_a_run_is_held_once_even_if_a_crash_of_postgres_forgot_where_the_job_was(db: Database):
    open_account(db)
    job = play(db, paid_job(db), Cancel(by="ann"))
    play(db, job, Requeue(by="op"))
    # The row comes back from a backup that is older than the ledger.
    db.run(text("UPDATE jobs SET run = 1, status = 'cancelled', finished_at = created_at"))

    play(db, job, Requeue(by="op"))

    assert balance_of(db) == 87
    assert [each for each in entries(db) if each[1] == 2] == [("hold", 2, -10), ("hold", 2, -3)]


# -- many at once ----------------------------------------------------------------------------------------------------


def _ask(view: Database) -> bool:
    try:
        return bool(enqueue(view, account="ann", outputs=[output("a", price=10)]))
    except InsufficientCredits:
        return False


def test_of_eight_who_ask_at_once_as_many_get_a_job_as_the_account_can_pay(db: Database, another: Another):
    views = [another() for _ in range(8)]
    open_account(db, balance=35)
    with Start(8) as start:
        answers = start.together(*(partial(_ask, view) for view in views))

    assert answers.count(True) == 3
    assert balance_of(db) == 5


def test_jobs_that_end_at_once_all_give_back(db: Database, another: Another):
    views = [another() for _ in range(8)]
    open_account(db, balance=1000)
    ended = [paid_job(db) for _ in views]
    with Start(8) as start:
        start.together(
            *(partial(jobs.apply, view, job.id, Cancel(by="ann")) for view, job in zip(views, ended, strict=True))
        )

    assert balance_of(db) == 1000


def test_two_reapers_that_give_back_to_the_same_accounts_never_wait_crosswise(db: Database, another: Another):
    """Accounts are written in their order: in any other one, each of two could hold what the other one wants."""
    for n, account in enumerate([open_account(db, "ann"), open_account(db, "bob"), "ann", "bob"], start=1):
        job = running(db, id=UUID(int=n), account=account, max_attempts=1, outputs=[output("a", price=10)])
        make_late(db, job)
    second = another()
    with ThreadPoolExecutor(1) as pool:
        with db.transaction() as conn:
            first = leases.expire_some(Inside(conn), Table.JOBS, 1)
            others = pool.submit(leases.expire_some, second, Table.JOBS, 2)
            until_blocked_or_done(db, others)
            first += leases.expire_some(Inside(conn), Table.JOBS, 1)

        reaped = first + others.result(20)
    assert sorted(job.id.int for job in reaped) == [1, 2, 3, 4]
    assert (balance_of(db, "ann"), balance_of(db, "bob")) == (100, 100)
