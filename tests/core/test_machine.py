"""What does every move answer at every point of a job's life?"""

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from pipeline.core.job import Job, Outcome, Stage, Status, allowed_time
from pipeline.core.machine import transition
from pipeline.core.moves import Cancel, Claim, Expire, Move, Proof, Refusal, Requeue, Rerender, Settlement, Transition
from tests.core.lives import (
    DELAY,
    HOLDER_MOVES,
    LEASE,
    NOW,
    THRESHOLD,
    after,
    at_stage,
    cancelled,
    claim,
    claimed,
    complete,
    completed,
    crash,
    defer,
    expired,
    fail,
    failed,
    new,
    release,
    rerendering,
    retry,
    rewind,
    stall,
    stalled,
    step,
    types,
)

# -- every move x every status ---------------------------------------------------------------------------------------


def waiting() -> Job:
    running = claimed()
    return after(running, retry(running.fence))


POINTS: dict[str, Callable[[], Job]] = {
    "queued": lambda: at_stage(Stage.CLIP),
    "waiting": waiting,
    "processing": lambda: claimed(at_stage(Stage.CLIP)),
    "completed": completed,
    "partial": lambda: completed(Outcome.PARTIAL),
    "failed": lambda: failed(at_stage(Stage.CLIP)),
    "cancelled": cancelled,
}

MOVES: dict[str, Callable[[Job], Move]] = {
    "claim": claim,
    "claim what is done": lambda job: claim(job, stage=Stage.RESOLVE),
    "claim what is to come": lambda job: claim(job, stage=Stage.FINALIZE),
    "complete": lambda job: complete(job.fence),
    "retry": lambda job: retry(job.fence),
    "defer": lambda job: defer(job.fence),
    "rewind": lambda job: rewind(job.fence),
    "fail": lambda job: fail(job.fence),
    "release": lambda job: release(job.fence),
    "crash": lambda job: crash(job.fence),
    "stall": lambda job: stall(job.fence),
    "expire": lambda job: Expire(),
    "expire, its holder dead": lambda job: Expire(proof=Proof.WORKER_DEAD, fence=job.fence),
    "cancel": lambda job: Cancel(by="ann"),
    "requeue": lambda job: Requeue(by="ann"),
    "requeue what failed": lambda job: Requeue(by="ann", failed_only=True),
    "rerender": lambda job: Rerender(by="ann"),
}

LOST, DONE, NO = Refusal.LEASE_LOST, Refusal.FINISHED, Refusal.NOT_ALLOWED
QUEUED, RUNNING, CANCELLED = Status.QUEUED, Status.PROCESSING, Status.CANCELLED

# At the moment of the claim: no lease has expired and nothing stalls.
ANSWERS: dict[str, tuple[Status | Refusal, ...]] = {
    # queued, waiting, processing, completed, partial, failed, cancelled
    "claim": (RUNNING, Refusal.NOT_DUE, Refusal.HELD, DONE, DONE, DONE, DONE),
    "claim what is done": (Refusal.ALREADY_DONE, Refusal.NOT_DUE, Refusal.ALREADY_DONE, DONE, DONE, DONE, DONE),
    "claim what is to come": (Refusal.TOO_EARLY, Refusal.TOO_EARLY, Refusal.TOO_EARLY, DONE, DONE, DONE, DONE),
    "complete": (LOST, LOST, QUEUED, LOST, LOST, LOST, LOST),
    "retry": (LOST, LOST, QUEUED, LOST, LOST, LOST, LOST),
    "defer": (LOST, LOST, QUEUED, LOST, LOST, LOST, LOST),
    "rewind": (LOST, LOST, QUEUED, LOST, LOST, LOST, LOST),
    "fail": (LOST, LOST, Status.FAILED, LOST, LOST, LOST, LOST),
    "release": (LOST, LOST, QUEUED, LOST, LOST, LOST, LOST),
    "crash": (LOST, LOST, QUEUED, LOST, LOST, LOST, LOST),
    "stall": (LOST, LOST, Refusal.STILL_ALIVE, LOST, LOST, LOST, LOST),
    "expire": (LOST, LOST, Refusal.STILL_ALIVE, DONE, DONE, DONE, DONE),
    "expire, its holder dead": (LOST, LOST, QUEUED, DONE, DONE, DONE, DONE),
    "cancel": (CANCELLED, CANCELLED, CANCELLED, DONE, DONE, DONE, DONE),
    "requeue": (NO, NO, NO, NO, NO, QUEUED, QUEUED),
    "requeue what failed": (NO, NO, NO, NO, QUEUED, QUEUED, QUEUED),
    "rerender": (NO, NO, NO, QUEUED, QUEUED, NO, NO),
}


@pytest.mark.parametrize(
    ("move", "point", "answer"),
    [(move, point, row[n]) for move, row in ANSWERS.items() for n, point in enumerate(POINTS)],
)
def test_every_move_has_its_answer_at_every_point(move: str, point: str, answer: Status | Refusal):
    job = POINTS[point]()

    change = transition(job, MOVES[move](job), NOW)

    assert (change if isinstance(change, Refusal) else change.job.status) is answer


def test_the_table_of_answers_leaves_nothing_out():
    kinds = {type(make(claimed())) for make in MOVES.values()}

    assert kinds == set(Move.__args__)
    assert ANSWERS.keys() == MOVES.keys()
    # Whoever must go elsewhere is told by the job's history, not by its state.
    assert {answer for row in ANSWERS.values() for answer in row} >= set(Refusal) - {Refusal.ELSEWHERE}


@pytest.mark.parametrize("make", HOLDER_MOVES)
def test_another_fence_than_the_rows_writes_nothing(make: Callable[..., Move]):
    job = claimed(at_stage(Stage.CLIP))

    assert transition(job, make(uuid4()), NOW + THRESHOLD) is Refusal.LEASE_LOST


@pytest.mark.parametrize("make", HOLDER_MOVES)
def test_a_fence_opens_nothing_after_it_was_used(make: Callable[..., Move]):
    running = claimed(at_stage(Stage.CLIP))
    free = after(running, release(running.fence))
    heir = claimed(free)

    assert transition(free, make(running.fence), NOW + THRESHOLD) is Refusal.LEASE_LOST
    assert transition(heir, make(running.fence), NOW + THRESHOLD) is Refusal.LEASE_LOST


# -- claim -----------------------------------------------------------------------------------------------------------


def test_a_claim_gives_a_lease_with_its_fence_and_spends_an_attempt():
    job = new(next_earliest_run_at=NOW, recovery=True)
    move = claim(job, request_id="message 1")

    change = step(job, move)

    lease = change.job.lease
    assert lease is not None
    assert (lease.holder, lease.fence, lease.request_id) == ("worker", move.fence, "message 1")
    assert lease.expires_at == NOW + LEASE
    assert change.job.attempt_count == 1
    assert change.job.due_at() is None
    assert types(change) == ["claimed"]
    assert change.events[0].data == {"stage": Stage.RESOLVE, "attempt": 1, "worker": "worker", "recovery": True}


def test_a_stage_that_is_not_in_the_plan_counts_as_done():
    job = at_stage(Stage.UPLOAD, plan=(Stage.RESOLVE, Stage.CLIP, Stage.UPLOAD, Stage.FINALIZE))

    assert transition(job, claim(job, stage=Stage.ASR), NOW) is Refusal.ALREADY_DONE


def test_a_lease_is_never_longer_than_the_deadline():
    job = new(deadline_ms=1000)

    lease = claimed(job).lease

    assert lease is not None
    assert lease.expires_at == lease.deadline_at == NOW + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("facts", "factor", "allowed"),
    [
        ({}, None, timedelta(hours=2)),
        ({}, 6.0, timedelta(hours=2)),
        ({"expected_duration_ms": 3_600_000}, None, timedelta(hours=2)),
        ({"expected_duration_ms": 3_600_000}, 6.0, timedelta(hours=6)),
        ({"expected_duration_ms": 1_000}, 6.0, timedelta(minutes=10)),
        ({"expected_duration_ms": 3_600_000, "deadline_ms": 5_000}, 6.0, timedelta(seconds=5)),
    ],
)
def test_the_deadline_is_what_was_asked_for_else_the_factor_else_two_hours(
    facts: dict[str, int], factor: float | None, allowed: timedelta
):
    assert allowed_time(new(**facts), factor) == allowed


def test_waiting_never_counts_towards_the_deadline():
    running = claimed(new(deadline_ms=60_000))
    waits = after(running, defer(running.fence, delay=timedelta(hours=3)))

    lease = claimed(waits, NOW + timedelta(hours=3)).lease

    assert lease is not None
    assert lease.deadline_at == NOW + timedelta(hours=3, minutes=1)


# -- on, out and back ------------------------------------------------------------------------------------------------


def test_completing_a_stage_leads_to_the_next_with_fresh_attempts():
    job = new(attempt_count=1, crash_count=1, first_deferred_at=NOW, recovery=True)
    running = claimed(job)

    change = step(running, complete(running.fence, found={"width": 640}, expected_duration=timedelta(seconds=9)))

    on = change.job
    assert (on.status, on.stage, on.attempt_count, on.crash_count) == (Status.QUEUED, Stage.CLIP, 0, 0)
    assert (on.first_deferred_at, on.recovery, on.published_at) == (None, False, NOW)
    assert on.context == {"resolve": {"width": 640}}
    assert on.expected_duration_ms == 9000
    assert types(change) == ["stage_completed"]
    assert change.settlement is None


@pytest.mark.parametrize("outcome", Outcome)
def test_completing_the_last_stage_publishes_and_settles(outcome: Outcome):
    running = claimed(at_stage(Stage.FINALIZE))

    change = step(running, complete(running.fence, outcome=outcome))

    assert (change.job.status, change.job.outcome, change.job.generation) == (Status.COMPLETED, outcome, 1)
    assert (change.job.progress, change.job.finished_at) == (100.0, NOW)
    assert types(change) == ["stage_completed", "completed"]
    assert change.settlement is Settlement.SETTLE


def test_a_retry_waits_and_is_told():
    running = claimed()

    change = step(running, retry(running.fence))

    assert (change.job.status, change.job.attempt_count) == (Status.QUEUED, 1)
    assert (change.job.next_earliest_run_at, change.job.published_at) == (NOW + DELAY, None)
    assert change.job.last_error == "CLIP_TIMEOUT: too slow"
    assert types(change) == ["retry_scheduled"]
    assert change.events[0].data == {"code": "CLIP_TIMEOUT", "reason": "too slow", "delay_s": 60.0}


def test_a_last_retry_fails_and_promises_no_other():
    running = claimed(new(max_attempts=1))

    change = step(running, retry(running.fence))

    assert (change.job.status, change.job.fail_code) == (Status.FAILED, "RETRIES_EXHAUSTED")
    assert change.job.fail_reason == "failed after 1 attempts: CLIP_TIMEOUT: too slow"
    assert types(change) == ["failed"]
    assert change.settlement is Settlement.REFUND


def test_a_failure_says_its_code_and_refunds():
    running = claimed()

    change = step(running, fail(running.fence))

    assert (change.job.status, change.job.fail_code, change.job.fail_reason) == (
        Status.FAILED,
        "FFMPEG_FAILED",
        "no such filter",
    )
    assert change.events[0].data == {"code": "FFMPEG_FAILED", "reason": "no such filter", "stage": Stage.RESOLVE}
    assert types(change) == ["failed"]
    assert change.settlement is Settlement.REFUND


def test_a_deferral_waits_for_its_service_and_gives_the_attempt_back():
    running = claimed()

    change = step(running, defer(running.fence))

    waits = change.job
    assert (waits.attempt_count, waits.skip_until, waits.waiting_on) == (0, NOW + DELAY, "target:nas")
    assert waits.first_deferred_at == NOW
    assert types(change) == ["deferred"]
    assert change.events[0].data["service"] == "target:nas"


def test_waiting_ends_at_max_wait_from_the_first_deferral():
    now, job = NOW, new()
    while not job.is_final:
        running = claimed(job, now)
        job = after(running, defer(running.fence, delay=timedelta(hours=5)), now)
        now = job.skip_until or now

    assert (job.status, job.fail_code) == (Status.FAILED, "SERVICE_UNAVAILABLE")
    assert now - NOW == timedelta(hours=24)
    assert job.attempt_count == 0


def test_a_rewind_goes_back_and_gives_the_attempt_back():
    running = claimed(at_stage(Stage.UPLOAD))

    change = step(running, rewind(running.fence, to=Stage.CLIP))

    assert (change.job.status, change.job.stage, change.job.attempt_count) == (Status.QUEUED, Stage.CLIP, 0)
    assert change.job.rewind_count == 1
    assert types(change) == ["rewound"]
    assert change.events[0].data == {"from": Stage.UPLOAD, "to": Stage.CLIP, "reason": "the source is gone"}


@pytest.mark.parametrize("to", [Stage.UPLOAD, Stage.FINALIZE, Stage.ASR])
def test_a_rewind_leads_only_to_a_stage_that_was_done(to: Stage):
    running = claimed(at_stage(Stage.UPLOAD, plan=(Stage.RESOLVE, Stage.CLIP, Stage.UPLOAD, Stage.FINALIZE)))

    assert transition(running, rewind(running.fence, to=to), NOW) is Refusal.NOT_ALLOWED


def test_a_fourth_rewind_fails_as_scratch_lost():
    job = at_stage(Stage.CLIP)
    for _ in range(3):
        running = claimed(job)
        job = after(running, rewind(running.fence))
        job = after(r := claimed(job), complete(r.fence))
    running = claimed(job)

    change = step(running, rewind(running.fence))

    assert (change.job.status, change.job.fail_code) == (Status.FAILED, "SCRATCH_LOST")
    assert types(change) == ["failed"]


def test_a_release_gives_the_attempt_back_twenty_times_and_no_more():
    job, executions = new(max_attempts=3), 0
    while not job.is_final:
        running = claimed(job)
        executions += 1
        change = step(running, release(running.fence))
        job = change.job

    assert executions == 20 + 3
    assert job.fail_code == "RETRIES_EXHAUSTED"
    assert types(change) == ["aborted:shutdown", "failed"]


def test_a_release_is_back_at_once():
    running = claimed()

    change = step(running, release(running.fence))

    assert (change.job.status, change.job.attempt_count, change.job.due_at()) == (Status.QUEUED, 0, None)
    assert types(change) == ["aborted:shutdown"]


# -- what others say about a holder ----------------------------------------------------------------------------------


def test_a_crash_is_counted_told_and_back_at_once():
    running = claimed()

    change = step(running, crash(running.fence))

    assert (change.job.attempt_count, change.job.crash_count, change.job.recovery) == (1, 1, True)
    assert change.job.due_at() is None
    assert types(change) == ["worker_lost"]
    assert change.events[0].data == {"worker": "worker", "evidence": "signal 9"}


def test_a_job_that_crashes_at_every_attempt_is_a_worker_killer_with_the_evidence():
    job = new(max_attempts=3)
    while not job.is_final:
        running = claimed(job)
        change = step(running, crash(running.fence))
        job = change.job

    assert (job.fail_code, job.crash_count) == ("WORKER_KILLER", 3)
    assert [entry["reason"] for entry in job.error_history] == ["signal 9"] * 3
    assert types(change) == ["worker_lost", "failed"]


def test_a_job_that_crashed_only_sometimes_is_no_worker_killer():
    job = after(r := claimed(new(max_attempts=2)), retry(r.fence, delay=timedelta(0)))
    running = claimed(job)

    change = step(running, crash(running.fence))

    assert change.job.fail_code == "RETRIES_EXHAUSTED"


def test_an_expired_lease_is_requeued_while_attempts_are_left():
    running = claimed()

    change = step(running, *expired(running))

    assert (change.job.status, change.job.lease, change.job.recovery) == (Status.QUEUED, None, True)
    assert (change.job.attempt_count, change.job.due_at()) == (1, None)
    assert types(change) == ["requeued:stale"]
    assert change.events[0].data == {
        "type": "reaper:requeued",
        "details": {"reason": "lease_expired", "locked_by": "worker"},
    }


def test_an_expired_lease_fails_the_job_when_attempts_are_used_up():
    running = claimed(new(max_attempts=1))

    change = step(running, *expired(running))

    assert (change.job.status, change.job.fail_code, change.job.fail_reason) == (
        Status.FAILED,
        "RETRIES_EXHAUSTED",
        "lease_expired",
    )
    assert types(change) == ["failed"]
    assert change.events[0].data["type"] == "reaper:failed(timeout)"
    assert change.events[0].data["details"] == {"reason": "lease_expired", "locked_by": "worker"}


def test_an_execution_past_its_deadline_is_a_timeout():
    running = claimed(new(max_attempts=1, deadline_ms=60_000))
    back = claimed(new(max_attempts=2, deadline_ms=60_000))

    change, again = step(running, *expired(running)), step(back, *expired(back))

    assert change.job.fail_code == "TIMEOUT"
    assert again.job.status is Status.QUEUED
    assert again.job.last_error == "TIMEOUT: lease_expired"


@pytest.mark.parametrize("early", [timedelta(microseconds=1), LEASE])
def test_a_lease_that_still_runs_does_not_expire(early: timedelta):
    running = claimed()
    move, end = expired(running)

    assert transition(running, move, end - early) is Refusal.STILL_ALIVE


def test_a_dead_worker_is_not_waited_for():
    running = claimed()

    change = step(running, Expire(proof=Proof.WORKER_DEAD, fence=running.fence))

    assert change.job.status is Status.QUEUED
    assert change.events[0].data["details"]["reason"] == "worker_dead"


def test_the_death_of_one_holder_takes_nothing_from_the_next():
    ghost = claimed()
    heir = claimed(after(ghost, crash(ghost.fence)))

    assert transition(heir, Expire(proof=Proof.WORKER_DEAD, fence=ghost.fence), NOW) is Refusal.LEASE_LOST
    assert transition(heir, Expire(proof=Proof.WORKER_DEAD), NOW) is Refusal.LEASE_LOST


def test_a_stall_is_told_with_the_value_that_stood_still():
    running = claimed()

    change = step(running, *stalled(running))

    assert (change.job.status, change.job.attempt_count) == (Status.QUEUED, 1)
    assert change.job.last_error == "STALLED: no progress for 600 s"
    assert types(change) == ["stalled"]


def test_after_a_stall_another_worker_tries_first_where_there_is_one():
    running = claimed()
    move, at = stalled(running)
    stopped = step(running, move, at).job
    soon, later = at + timedelta(seconds=59), at + timedelta(seconds=60)

    def answer(holder: str, others: bool, now: datetime):
        claim = Claim(stage=stopped.stage, holder=holder, fence=uuid4(), lease=LEASE, has_others=others)
        return transition(stopped, claim, now)

    assert answer("worker", True, soon) is Refusal.ELSEWHERE
    assert isinstance(answer("worker", True, later), Transition)
    assert isinstance(answer("worker", False, soon), Transition)
    assert isinstance(answer("another", True, soon), Transition)


def test_a_stall_at_the_last_attempt_fails():
    running = claimed(new(max_attempts=1))

    change = step(running, *stalled(running))

    assert change.job.fail_code == "RETRIES_EXHAUSTED"
    assert types(change) == ["stalled", "failed"]


# -- what people want ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [new, waiting, claimed])
def test_a_cancel_takes_the_fence_away_at_once_and_refunds(make: Callable[[], Job]):
    change = step(make(), Cancel(by="ann"))

    assert (change.job.status, change.job.lease, change.job.finished_at) == (Status.CANCELLED, None, NOW)
    assert change.job.due_at() is None
    assert types(change) == ["cancelled"]
    assert change.events[0].data["by"] == "ann"
    assert change.settlement is Settlement.REFUND


@pytest.mark.parametrize("make", [failed, cancelled])
def test_a_requeue_is_a_new_run_with_everything_reset(make: Callable[[], Job]):
    ended = make()

    change = step(ended, Requeue(by="op"))

    again = change.job
    assert (again.status, again.run, again.attempt_count, again.finished_at) == (Status.QUEUED, 2, 0, None)
    assert (again.crash_count, again.release_count, again.rewind_count) == (0, 0, 0)
    assert (again.fail_code, again.fail_reason, again.published_at) == (None, None, None)
    assert types(change) == ["requeued:manual"]
    assert change.settlement is Settlement.HOLD


def test_a_requeue_begins_where_it_stopped_or_at_an_earlier_stage():
    ended = failed(at_stage(Stage.UPLOAD))

    there, back = after(ended, Requeue(by="op")), after(ended, Requeue(by="op", stage=Stage.CLIP))

    assert (there.stage, back.stage) == (Stage.UPLOAD, Stage.CLIP)


def test_a_requeue_cannot_leave_out_a_stage_that_was_never_reached():
    ended = failed(at_stage(Stage.CLIP))

    assert transition(ended, Requeue(by="op", stage=Stage.UPLOAD), NOW) is Refusal.NOT_ALLOWED


def test_a_requeue_leads_only_to_a_stage_of_the_plan():
    ended = failed(at_stage(Stage.UPLOAD, plan=(Stage.RESOLVE, Stage.UPLOAD)))

    assert transition(ended, Requeue(by="op", stage=Stage.CLIP), NOW) is Refusal.NOT_ALLOWED


def test_a_requeue_is_nobodys_recovery():
    running = claimed(new(max_attempts=1))
    reaped = after(running, *expired(running))

    again = after(reaped, Requeue(by="op"))

    assert again.recovery is False


def test_only_what_failed_of_a_partial_job_can_be_made_again():
    partial = completed(Outcome.PARTIAL)

    change = step(partial, Requeue(by="op", failed_only=True))

    again = change.job
    assert (again.status, again.stage, again.run) == (Status.QUEUED, Stage.RESOLVE, 2)
    assert (again.generation, again.building) == (1, 1)
    assert change.events[0].data["failed_only"] is True
    assert change.settlement is Settlement.HOLD


def test_a_partial_job_whose_second_try_is_cancelled_stays_partial():
    again = after(completed(Outcome.PARTIAL), Requeue(by="op", failed_only=True))

    ended = after(again, Cancel(by="ann"))

    assert (ended.status, ended.outcome, ended.generation) == (Status.COMPLETED, Outcome.PARTIAL, 1)


def test_a_rerender_makes_a_new_generation_beside_the_old():
    change = step(completed(), Rerender(by="ann"))

    again = change.job
    assert (again.status, again.stage, again.run) == (Status.QUEUED, Stage.CLIP, 2)
    assert (again.generation, again.building) == (1, 2)
    assert types(change) == ["rerender"]
    assert change.settlement is Settlement.HOLD


def test_a_rerender_that_completes_moves_the_pointer():
    running = rerendering(Outcome.PARTIAL)
    while running.next_stage():
        running = claimed(after(running, complete(running.fence)))

    done = after(running, complete(running.fence, outcome=Outcome.FULL))

    assert (done.status, done.generation, done.building, done.outcome) == (Status.COMPLETED, 2, 2, Outcome.FULL)


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize(
    "ending",
    [
        lambda job: (fail(job.fence), NOW),
        lambda job: (Cancel(by="ann"), NOW),
        lambda job: (defer(job.fence, max_wait=timedelta(0)), NOW),
    ],
    ids=["fail", "cancel", "give up waiting"],
)
def test_a_rerender_that_comes_to_nothing_is_completed_again_at_the_old_generation(
    outcome: Outcome, ending: Callable[[Job], tuple[Move, datetime]]
):
    running = rerendering(outcome)

    change = step(running, *ending(running))

    ended = change.job
    assert (ended.status, ended.outcome, ended.stage) == (Status.COMPLETED, outcome, Stage.FINALIZE)
    assert (ended.generation, ended.building, ended.fail_code) == (1, 1, None)
    assert types(change)[-1] in ("failed", "cancelled")
    assert change.settlement is Settlement.REFUND


def test_a_rerender_that_expires_for_good_is_completed_again():
    job = rerendering()
    while not job.is_final:
        job = after(job, *expired(job))
        job = job if job.is_final else claimed(job)

    assert (job.status, job.generation, job.building) == (Status.COMPLETED, 1, 1)


def test_a_job_without_pictures_cannot_be_rerendered():
    words = claimed(new(plan=(Stage.ASR,), stage=Stage.ASR))
    done = after(words, complete(words.fence))

    assert transition(done, Rerender(by="ann"), NOW) is Refusal.NOT_ALLOWED


# -- what is remembered ----------------------------------------------------------------------------------------------


def test_the_history_of_errors_is_bounded_and_keeps_the_newest():
    job = new(max_attempts=30)
    for n in range(25):
        running = claimed(job)
        job = after(running, retry(running.fence, reason=f"error {n}", delay=timedelta(0)))

    assert [entry["reason"] for entry in job.error_history] == [f"error {n}" for n in range(5, 25)]
    assert job.last_error == "CLIP_TIMEOUT: error 24"


def test_an_error_is_remembered_with_its_stage_attempt_and_time():
    running = claimed(at_stage(Stage.CLIP))

    job = after(running, retry(running.fence))

    assert job.error_history[-1] == {
        "code": "CLIP_TIMEOUT",
        "reason": "too slow",
        "stage": Stage.CLIP,
        "attempt": 1,
        "at": NOW.isoformat(),
    }


def test_a_claim_of_a_held_job_is_refused_whoever_asks():
    running = claimed()
    again = Claim(stage=running.stage, holder="worker", fence=uuid4(), lease=LEASE)

    assert transition(running, again, NOW) is Refusal.HELD
