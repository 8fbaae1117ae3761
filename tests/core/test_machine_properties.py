"""What stays true, whatever happens to a job and in whatever order?"""

from datetime import timedelta
from itertools import cycle
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.job import Job, Stage, Status
from pipeline.core.machine import ERRORS_KEPT, MAX_RELEASES, MAX_REWINDS, transition
from pipeline.core.moves import Claim, HolderMove, Refusal, Settlement, Transition
from tests.core.histories import HOLDING, Act, Clock, acts, plans
from tests.core.lives import NOW, after, claim, claimed, crash, defer, expired, new, release, retry, stalled

STAGES_PASSED = 5 + 3 * 4  # every stage once, and again after each rewind


def assert_lawful(job: Job) -> None:
    """The sentences of the database's CHECKs, for a job that no database has seen."""
    assert (job.lease is not None) == (job.status is Status.PROCESSING)
    assert (job.last_heartbeat_at is not None) == (job.lease is not None)
    assert 0 <= job.attempt_count <= job.max_attempts
    assert job.status is not Status.QUEUED or job.attempt_count < job.max_attempts
    assert job.status is not Status.PROCESSING or job.attempt_count > 0
    assert job.stage in job.plan
    assert (job.finished_at is not None) == job.is_final
    assert (job.status is Status.FAILED) == (job.fail_code is not None) == (job.fail_reason is not None)
    assert job.status is not Status.COMPLETED or (job.outcome is not None and job.generation > 0)
    assert job.generation <= job.building <= job.run
    assert (job.skip_until is None) == (job.waiting_on is None)
    assert job.skip_until is None or job.first_deferred_at is not None
    assert job.status is Status.QUEUED or job.due_at() is None
    assert 0 <= job.rewind_count <= MAX_REWINDS
    assert len(job.error_history) <= ERRORS_KEPT
    assert 0 <= job.progress <= 100
    assert job.lease is None or job.lease.expires_at <= job.lease.deadline_at


def assert_told(before: Job, change: Transition) -> None:
    """Each transition tells its story, and money moves exactly when a run begins or ends."""
    job = change.job
    assert change.events
    assert (change.settlement in (Settlement.SETTLE, Settlement.REFUND)) == job.is_final
    assert (change.settlement is Settlement.HOLD) == before.is_final == (job.run == before.run + 1)
    assert job.id == before.id
    assert job.plan == before.plan
    assert job.version == before.version


@given(plan=plans(), max_attempts=st.integers(1, 4), history=st.lists(acts, max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_order_of_moves_keeps_every_invariant(plan: tuple[Stage, ...], max_attempts: int, history: list[Act]):
    job, clock = new(plan=plan, stage=plan[0], max_attempts=max_attempts), Clock(NOW)
    fences: list[UUID] = []
    for act in history:
        move = act.move(job, fences)
        change = transition(job, move, clock.pass_by(act.wait))
        if isinstance(change, Refusal):
            continue
        if isinstance(move, HolderMove):
            assert move.fence == job.fence, "an old fence wrote"
        if isinstance(move, Claim):
            fences.append(move.fence)
        assert_told(job, change)
        assert_lawful(change.job)
        job = change.job


SPENDERS = {
    "retry": lambda job: (retry(job.fence, delay=timedelta(0)), NOW),
    "crash": lambda job: (crash(job.fence), NOW),
    "expire": expired,
    "stall": stalled,
}
GIVERS = {
    "defer": lambda job: (defer(job.fence, delay=timedelta(0)), NOW),
    "release": lambda job: (release(job.fence), NOW),
}


@given(
    max_attempts=st.integers(1, 10),
    endings=st.lists(st.sampled_from(sorted(SPENDERS)), min_size=1, max_size=10),
)
@settings(deadline=None)
def test_a_stage_is_executed_exactly_max_attempts_times(max_attempts: int, endings: list[str]):
    job, executions, ways = new(max_attempts=max_attempts), 0, cycle(endings)
    while not job.is_final:
        job = claimed(job)
        executions += 1
        job = after(job, *SPENDERS[next(ways)](job))

    assert executions == max_attempts
    assert job.status is Status.FAILED


@given(
    max_attempts=st.integers(1, 5),
    free=st.lists(st.sampled_from(("defer", "release")), max_size=MAX_RELEASES),
    spent=st.lists(st.sampled_from(sorted(SPENDERS)), min_size=5, max_size=5),
    data=st.data(),
)
@settings(deadline=None)
def test_what_is_given_back_never_costs_an_execution(
    max_attempts: int, free: list[str], spent: list[str], data: st.DataObject
):
    job, executions = new(max_attempts=max_attempts), 0
    for ending in data.draw(st.permutations(free + spent[: max_attempts - 1])) + spent[-1:]:
        job = claimed(job)
        executions += 1
        job = after(job, *(SPENDERS | GIVERS)[ending](job))

    assert executions == max_attempts + len(free)
    assert job.status is Status.FAILED


@given(
    plan=plans(),
    max_attempts=st.integers(1, 4),
    habits=st.lists(st.tuples(st.sampled_from((*HOLDING, "expire")), st.sampled_from(Stage)), min_size=1, max_size=12),
)
@settings(max_examples=300, deadline=None)
def test_nothing_loops_for_ever(plan: tuple[Stage, ...], max_attempts: int, habits: list[tuple[str, Stage]]):
    job, clock, ways = new(plan=plan, stage=plan[0], max_attempts=max_attempts), Clock(NOW), cycle(habits)
    # Per stage all its attempts, and at most 2 h of waiting in steps of 20 min; releases and rewinds are counted once.
    bound = STAGES_PASSED * (max_attempts + 8) + MAX_RELEASES + MAX_REWINDS
    executions = 0
    while not job.is_final:
        job = claimed(job, clock.pass_by(max(job.due_at() or clock.now, clock.now) - clock.now))
        executions += 1
        while job.lease is not None:
            kind, stage = next(ways)
            wait = timedelta(minutes=11)  # past a lease and past the stall limit
            act = Act(kind, wait, 0, stage)
            change = transition(job, act.move(job, [job.lease.fence]), clock.pass_by(wait))
            if change is Refusal.NOT_ALLOWED:  # a rewind to nowhere: this holder just dies
                change = transition(job, *expired(job))
            assert isinstance(change, Transition)
            job = change.job
        assert executions <= bound


@given(history=st.lists(acts, max_size=40))
@settings(deadline=None)
def test_a_claim_is_refused_or_gives_a_lease_that_nobody_else_has(history: list[Act]):
    job, clock, fences = new(), Clock(NOW), []
    for act in history:
        move = act.move(job, fences)
        change = transition(job, move, clock.pass_by(act.wait))
        if isinstance(change, Transition):
            if isinstance(move, Claim):
                assert job.lease is None
                fences.append(move.fence)
            job = change.job
        held = transition(job, claim(job), clock.now + timedelta(days=2))
        assert isinstance(held, Transition) == (job.status is Status.QUEUED)
