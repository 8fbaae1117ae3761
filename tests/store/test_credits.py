"""Is the balance always the sum of what was written? Whoever asks for what at the same time, and however jobs end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from pipeline.core.errors import BadRequest, IdempotencyConflict, InsufficientCredits
from pipeline.core.job import Job, Outcome, OutputStatus, Stage, Status
from pipeline.core.moves import Cancel, Complete, Fail, Refusal, Requeue, Rerender, Retry
from pipeline.core.output import File
from pipeline.store import credits as ledger
from pipeline.store import doctor, jobs, leases, outputs
from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from tests.store.world import (
    Another,
    Start,
    a_claim,
    balance_of,
    claim,
    enqueue,
    entries,
    make_late,
    now_of,
    output,
    outputs_of,
    play,
    rows,
    value,
)

FILE = File(name="a-final.mp4", sha256="0" * 64, size=1)
LEDGER = {
    "balance": doctor.BALANCE_IS_NOT_THE_SUM,
    "holds": doctor.HOLD_WITHOUT_END,
    "twice": doctor.HOLD_ENDED_TWICE,
    "ends": doctor.END_WITHOUT_ITS_HOLD,
    "early": doctor.SETTLED_BEFORE_ITS_END,
}


def grant(db: Database, account: str = "ann", amount: int = 100, reference: str = "") -> str:
    ledger.grant(db, account, amount, reference=reference or f"first of {account}")
    return account


def assert_balanced(db: Database) -> None:
    found = doctor.look(db, LEDGER, {})

    assert {name: each for name, each in found.items() if each} == {}


# -- grants ----------------------------------------------------------------------------------------------------------


def test_a_grant_opens_the_account_and_is_written_down(db: Database):
    assert ledger.grant(db, "ann", 70, reference="invoice 1", note="thank you") is True

    (entry,) = ledger.entries(db, "ann")
    assert (entry["kind"], entry["amount"], entry["reference"], entry["note"]) == (
        "grant",
        70,
        "invoice 1",
        "thank you",
    )
    assert balance_of(db) == 70
    assert_balanced(db)


def test_the_same_reference_is_granted_once(db: Database):
    grant(db, reference="invoice 1")

    assert ledger.grant(db, "ann", 100, reference="invoice 1") is False

    assert (balance_of(db), len(entries(db))) == (100, 1)


@pytest.mark.parametrize(("account", "amount"), [("bob", 100), ("ann", 101)])
def test_a_reference_that_means_something_else_is_a_conflict(db: Database, account: str, amount: int):
    grant(db, reference="invoice 1")

    with pytest.raises(IdempotencyConflict, match="was used to grant 100 to 'ann'"):
        ledger.grant(db, account, amount, reference="invoice 1")

    assert rows(db, "SELECT id, balance FROM accounts") == [{"id": "ann", "balance": 100}]


def test_nobody_takes_more_than_there_is(db: Database):
    grant(db)

    ledger.grant(db, "ann", -60, reference="back")
    with pytest.raises(InsufficientCredits):
        ledger.grant(db, "ann", -60, reference="more")

    assert balance_of(db) == 40
    assert_balanced(db)


def test_eight_who_say_the_same_reference_at_once_grant_once(db: Database, another: Another):
    views = [another() for _ in range(8)]
    with Start(8) as start:
        answers = start.together(*(partial(ledger.grant, view, "ann", 10, reference="one") for view in views))

    assert answers.count(True) == 1
    assert balance_of(db) == 10
    assert_balanced(db)


def test_the_list_of_accounts_tells_what_is_held_besides(db: Database):
    grant(db, "bob", 5)
    grant(db)
    job = enqueue(db, account="ann", outputs=[output("a", price=10), output("b", price=3)])
    play(db, enqueue(db, account="ann", outputs=[output("a", price=50)]), Cancel(by="ann"))

    seen = [(a["account"], a["balance"], a["held"]) for a in ledger.balances(db)]

    assert seen == [("ann", 87, 13), ("bob", 5, 0)]
    assert ledger.balance(db, "ann")["held"] == 13
    assert {e["output"] for e in ledger.entries(db, "ann") if e["job_id"] == job.id} == {"a", "b"}


def test_entries_come_in_pages_newest_first(db: Database):
    for n in range(5):
        grant(db, amount=n + 1, reference=str(n))

    first = ledger.entries(db, "ann", limit=2)
    rest = ledger.entries(db, "ann", before=first[-1]["id"])

    assert [e["amount"] for e in (*first, *rest)] == [5, 4, 3, 2, 1]


def test_an_account_that_is_not_there_has_no_entries(db: Database):
    with pytest.raises(BadRequest, match="no account 'eve'"):
        ledger.entries(db, "eve")


# -- jobs ------------------------------------------------------------------------------------------------------------


def test_of_fifty_outputs_the_ten_that_failed_or_did_not_apply_are_given_back(db: Database):
    grant(db, amount=2000)
    asked_for = [output(f"clip {n}", price=30) for n in range(50)]
    job = claim(db, enqueue(db, plan=[Stage.FINALIZE], account="ann", outputs=asked_for))
    assert balance_of(db) == 500
    for n, each in enumerate(outputs_of(db, job)):
        if n < 40:
            outputs.record(db, job.id, job.fence, each, OutputStatus.COMPLETED, files=[FILE])
        elif n < 45:
            outputs.record(db, job.id, job.fence, each, OutputStatus.FAILED, error_code="X")
        else:
            outputs.record(db, job.id, job.fence, each, OutputStatus.SKIPPED)

    play(db, job, Complete(fence=job.fence, outcome=Outcome.PARTIAL))

    assert balance_of(db) == 2000 - 40 * 30
    kinds = [kind for kind, _, _ in entries(db)]
    assert (kinds.count("charge"), kinds.count("refund")) == (40, 10)
    assert_balanced(db)


def completed(db: Database, **changes: Any) -> Job:
    """A job of ann's that made its two outputs, for 10 and 3."""
    two = (output("a", price=10), output("b", price=3))
    job = claim(db, enqueue(db, **{"plan": [Stage.CLIP], "account": "ann", "outputs": two, **changes}))
    for each in outputs_of(db, job):
        outputs.record(db, job.id, job.fence, each, OutputStatus.COMPLETED, files=[FILE])
        outputs.delivered(db, job.id, job.fence, each, "local", files=[{"key": f"k{each}"}])
    return play(db, job, Complete(fence=job.fence))


def test_a_rerender_holds_anew_for_what_is_made_anew_and_gives_back_if_it_comes_to_nothing(db: Database):
    grant(db)
    job = completed(db)

    again = play(db, job, Rerender(by="ann", only=("a",)))
    held = balance_of(db)
    play(db, again, Cancel(by="ann"))

    assert (held, balance_of(db)) == (77, 87)
    assert entries(db)[-2:] == [("hold", 2, -10), ("refund", 2, 10)]
    assert_balanced(db)


def test_what_is_carried_over_is_not_paid_for_again_in_any_later_run(db: Database):
    grant(db)
    job = claim(db, play(db, completed(db), Rerender(by="ann", only=("a",))))
    (anew,) = [o.id for o in outputs.of(db, job.id, 2) if o.name == "a"]
    outputs.record(db, job.id, job.fence, anew, OutputStatus.FAILED, error_code="X")

    partial_job = play(db, job, Complete(fence=job.fence, outcome=Outcome.PARTIAL))
    play(db, partial_job, Requeue(by="op", failed_only=True))

    assert balance_of(db) == 77  # both were paid once, `a` is held for once more
    assert entries(db)[-1] == ("hold", 3, -10)
    assert_balanced(db)


def test_an_account_that_cannot_pay_for_a_rerender_keeps_the_job_as_it_was(db: Database):
    grant(db, amount=20)
    job = completed(db)

    with pytest.raises(InsufficientCredits):
        play(db, job, Rerender(by="ann"))

    assert now_of(db, job) == job
    assert value(db, "SELECT count(*) FROM outputs") == 2
    assert_balanced(db)


# -- anything, at the same time --------------------------------------------------------------------------------------

ACCOUNTS = ("ann", "bob")
acts = st.sampled_from(
    (
        "submit",
        "submit",
        "submit",
        "cancel",
        "expire",
        "finish",
        "finish",
        "fail",
        "retry",
        "requeue",
        "rerender",
        "grant",
    )
)
rounds = st.lists(
    st.lists(st.tuples(acts, st.integers(0, 9), st.integers(1, 40)), min_size=3, max_size=3), min_size=3, max_size=10
)
few = settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def ask(db: Database, act: str, nth: int, amount: int) -> None:
    """Do this to the nth job, as somebody would; whoever comes too late or cannot pay is told so, and that is all."""
    account = ACCOUNTS[nth % 2]
    try:
        if act == "submit":
            asked_for = [output(f"{n}", price=amount) for n in range(nth % 3 + 1)]
            enqueue(db, account=account, plan=[Stage.CLIP], outputs=asked_for)
        elif act == "grant":
            ledger.grant(db, account, amount, reference=f"{account} {nth} {amount}")
        elif act == "expire":
            leases.expire_some(db, Table.JOBS, 100)
        else:
            _move(db, act, nth, amount)
    except InsufficientCredits:
        pass


def _move(db: Database, act: str, nth: int, amount: int) -> None:
    found = rows(db, "SELECT id FROM jobs ORDER BY created_at OFFSET :nth LIMIT 1", nth=nth)
    if not found:
        return
    job, _ = jobs.read(db, found[0]["id"])
    people: dict[str, Callable[[], Any]] = {
        "cancel": lambda: Cancel(by="ann"),
        "requeue": lambda: Requeue(by="op", failed_only=job.status is Status.COMPLETED),
        "rerender": lambda: Rerender(by="ann", only=("0",) if amount % 2 else None),
    }
    if act in people:
        jobs.apply(db, job.id, people[act]())
        return
    held = jobs.apply(db, job.id, a_claim(job))
    if isinstance(held, Refusal):
        return
    if amount % 5 == 0:
        make_late(db, held)  # the reaper may take it while its holder goes on
    _hold_and_end(db, act, held, amount)


def _hold_and_end(db: Database, act: str, job: Job, amount: int) -> None:
    assert job.fence is not None
    for n, each in enumerate(outputs.of(db, job.id, job.building)):
        status = OutputStatus.FAILED if (n + amount) % 3 == 0 else OutputStatus.COMPLETED
        told = {"error_code": "X"} if status is OutputStatus.FAILED else {"files": [FILE]}
        outputs.record(db, job.id, job.fence, each.id, status, **told)
    move = {
        "finish": Complete(fence=job.fence, outcome=Outcome.PARTIAL),
        "fail": Fail(fence=job.fence, code="X", reason="y"),
        "retry": Retry(fence=job.fence, code="X", reason="y", delay=timedelta(0)),
    }[act]
    jobs.apply(db, job.id, move)


@given(history=rounds)
@few
def test_whatever_three_do_at_once_the_balance_is_the_sum_and_holds_end_once(
    db: Database, crowd: tuple[list[Database], Start], history: list[list[tuple[str, int, int]]]
):
    views, start = crowd
    _empty(db)
    for account in ACCOUNTS:
        grant(db, account, 60)

    for asked in history:
        start.together(*(partial(ask, view, *each) for view, each in zip(views, asked, strict=True)))

        assert_balanced(db)
    for job in rows(db, "SELECT id FROM jobs WHERE status IN ('queued', 'processing')"):
        jobs.apply(db, UUID(str(job["id"])), Cancel(by="end"))
    assert_balanced(db)
    charged = value(db, "SELECT coalesce(sum(-h.amount), 0) FROM credit_entries h JOIN credit_entries c"
                        " USING (job_id, output_id, run) WHERE h.kind = 'hold' AND c.kind = 'charge'")  # fmt: skip
    granted = value(db, "SELECT sum(amount) FROM credit_entries WHERE kind = 'grant'")
    assert sum(balance_of(db, account) for account in ACCOUNTS) == granted - charged


@pytest.fixture
def crowd(another: Another) -> Any:
    views = [another() for _ in range(3)]
    with Start(3) as start:
        yield views, start


def _empty(db: Database) -> None:
    for table in ("credit_entries", "job_attempts", "job_events", "jobs", "accounts"):
        db.run(text(f"DELETE FROM {table}"))
