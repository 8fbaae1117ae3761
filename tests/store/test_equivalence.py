"""Does Postgres do what the machine decided? The same history, played on both, goes the same way.

The machine lives by a pretended clock. For the row, time passes by moving its moments back, so the two may differ by
what the test itself takes: `SLACK`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pipeline.core.job import Job, Stage
from pipeline.core.machine import transition
from pipeline.core.moves import Claim, Complete, Move, Refusal
from pipeline.store import jobs
from pipeline.store.engine import Database
from tests.core.histories import HOLDING, Act, Clock, acts, plans, waits
from tests.core.lives import NOW, claim, new
from tests.store.world import enqueue, events, let_pass, open_account, output, rows, value

SLACK = timedelta(seconds=20)
PRICE = 10
ACTS = 25

# Acts in any order seldom get far, so whole executions stand between them, and new beginnings. A holder that completes
# may claim the next stage in the same move, and may do so from what its claim saw.
executions = st.builds(
    lambda kind, wait, stage: (Act("claim", timedelta(minutes=30), 0, stage), Act(kind, wait, 0, stage)),
    kind=st.sampled_from((*HOLDING, "complete", "complete", "expire", "worker dead")),
    wait=waits,
    stage=st.sampled_from(Stage),
)
beginnings = st.builds(
    lambda kind, stage: (Act(kind, timedelta(0), 0, stage),),
    kind=st.sampled_from(("requeue", "requeue failed", "rerender")),
    stage=st.sampled_from(Stage),
)
parts = st.one_of(executions, executions, beginnings, st.tuples(acts))
histories = (
    st.integers(1, ACTS)
    .flatmap(lambda n: st.lists(parts, min_size=n, max_size=n))
    .map(lambda told: list(chain.from_iterable(told))[:ACTS])
)
slowly = settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.reuse, Phase.generate],  # to shrink a history takes longer than a test may
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def moves_of(act: Act, job: Job, fences: list[UUID], *, hands_over: bool) -> tuple[Move, ...]:
    move = act.move(job, fences)
    onward = job.next_stage()
    if hands_over and isinstance(move, Complete) and onward is not None:
        return move, claim(job, stage=onward)
    return (move,)


def decided(job: Job, moves: tuple[Move, ...], now: datetime) -> tuple[Job, list[str]] | Refusal:
    """What the machine alone makes of the moves, all or none."""
    told: list[str] = []
    for move in moves:
        change = transition(job, move, now)
        if isinstance(change, Refusal):
            return change
        job = change.job
        told += [event.type for event in change.events]
    return job, told


def seen_from(now: datetime, job: Job) -> dict[str, Any]:
    """The job without its version, its moments as distances from now, and without the times that its texts tell."""
    return {name: _told(each, now) for name, each in asdict(job).items() if name != "version"}


def _told(each: Any, now: datetime) -> Any:
    match each:
        case datetime():
            return _Distance(each - now)
        case str():
            return re.sub(r"\d+ s\b", "… s", str(each))
        case Mapping():
            return {name: _told(value, now) for name, value in each.items() if name != "at"}
        case list() | tuple():
            return [_told(value, now) for value in each]
        case _:
            return each


class _Distance:
    """A span of time, as good as any other that differs by no more than the slack."""

    def __init__(self, span: timedelta) -> None:
        self.span = span

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Distance) and abs(self.span - other.span) < SLACK

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.span.total_seconds():+.3f} s"


@given(
    plan=plans(),
    max_attempts=st.integers(1, 4),
    history=histories,
    manners=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=ACTS, max_size=ACTS),
)
@slowly
def test_any_history_goes_the_same_way_on_postgres_as_in_the_machine(
    db: Database,
    plan: tuple[Stage, ...],
    max_attempts: int,
    history: list[Act],
    manners: list[tuple[bool, bool]],
):
    row = enqueue(db, plan=plan, max_attempts=max_attempts)
    job, clock = new(id=row.id, plan=plan, stage=plan[0], max_attempts=max_attempts), Clock(NOW)
    fences: list[UUID] = []
    completed: set[UUID] = set()
    told, moved, claimed = ["queued"], 0, row
    assert row == job

    for act, (hands_over, as_it_was_claimed) in zip(history, manners, strict=False):
        now = clock.pass_by(act.wait)
        let_pass(db, row, act.wait)
        moves = moves_of(act, job, fences, hands_over=hands_over)
        snapshot = claimed if isinstance(moves[0], Complete) and as_it_was_claimed else None

        expected = decided(job, moves, now)
        answer = jobs.apply(db, row.id, *moves, snapshot=snapshot)

        after, its_now = jobs.read(db, row.id)
        if isinstance(expected, Refusal):
            # Who completes twice from an old snapshot seems to have lost the first answer: it gets the row as it is.
            said_again = snapshot is not None and moves[0].fence in completed and answer == after
            assert answer is expected or said_again, f"{act.kind} after {told}"
        else:
            assert answer == after
            job, types = expected
            completed |= {move.fence for move in moves if isinstance(move, Complete)}
            told += types
            moved += 1
            if isinstance(moves[-1], Claim):
                fences.append(moves[-1].fence)
                claimed = after
        assert seen_from(its_now, after) == seen_from(now, job), f"{act.kind} after {told}"
        assert after.version == moved
    assert events(db, row) == told


@given(history=histories)
@slowly
def test_whatever_happens_an_open_run_is_held_for_and_a_closed_one_is_not(db: Database, history: list[Act]):
    account = f"account {value(db, 'SELECT count(*) FROM accounts')}"
    job = enqueue(db, account=open_account(db, account), plan=[Stage.FINALIZE], outputs=[output("a", price=PRICE)])
    fences: list[UUID] = []

    for act in history:
        let_pass(db, job, act.wait)
        move = act.move(job, fences)
        answer = jobs.apply(db, job.id, move)
        if isinstance(answer, Job):
            job = answer
            fences += [move.fence] if isinstance(move, Claim) else []

        balance = value(db, "SELECT balance FROM accounts WHERE id = :id", id=account)
        assert balance == 100 - (0 if job.is_final else PRICE)
    kinds = [row["kind"] for row in rows(db, "SELECT kind FROM credit_entries WHERE job_id = :id", id=job.id)]
    assert kinds.count("hold") == job.run
    assert len(kinds) == 2 * job.run - (0 if job.is_final else 1)
