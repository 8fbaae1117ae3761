"""How does a job move?

`transition(job, move, now)` is the only place that decides. It is pure: it answers with the next `Job` and the events
that tell the story, or with a `Refusal`. A refusal is a value, because losing a race is normal.
`docs/how-a-job-moves.md` draws this file; a test compares the two. It is longer than our other files because the
whole machine should be read in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, assert_never

from pipeline.core import errors
from pipeline.core.job import Job, Lease, Outcome, Stage, Status, allowed_time
from pipeline.core.moves import (
    Cancel,
    Claim,
    Complete,
    Crash,
    Defer,
    Event,
    Expire,
    Fail,
    HolderMove,
    Move,
    Proof,
    Refusal,
    Release,
    Requeue,
    Rerender,
    Retry,
    Rewind,
    Settlement,
    Stall,
    Transition,
)

MAX_RELEASES = 20  # after that a shutdown costs the attempt: no fleet restarts a job for ever
MAX_REWINDS = 3
OTHERS_FIRST = timedelta(minutes=1)  # after a stall
ERRORS_KEPT = 20
WAS = "was"  # in the context of a rerender: the context that counts if it comes to nothing


def transition(job: Job, move: Move, now: datetime) -> Transition | Refusal:
    """What becomes of the job, or why nothing does."""
    match move:
        case Claim():
            return _claim(job, move, now)
        case Cancel():
            return _cancel(job, move, now)
        case Requeue():
            return _requeue(job, move)
        case Rerender():
            return _rerender(job, move)
        case Expire():
            return _expire(job, move, now)
        case Complete() | Retry() | Defer() | Rewind() | Fail() | Release() | Crash() | Stall():
            if job.status is not Status.PROCESSING or job.fence != move.fence:
                return Refusal.LEASE_LOST
            return _end(job, move, now)
        case _:
            assert_never(move)


def attempts_after(job: Job, move: Move) -> int:
    """The one place where attempts are counted: executions started at the current stage."""
    match move:
        case Claim():
            return job.attempt_count + 1
        case Defer() | Rewind():
            return job.attempt_count - 1
        case Release():
            return job.attempt_count - (1 if job.release_count < MAX_RELEASES else 0)
        case Complete() | Requeue() | Rerender():
            return 0
        case Retry() | Fail() | Crash() | Expire() | Stall() | Cancel():
            return job.attempt_count
        case _:
            assert_never(move)


def _claim(job: Job, move: Claim, now: datetime) -> Transition | Refusal:
    if job.is_final:
        return Refusal.FINISHED
    if job.has_done(move.stage):
        return Refusal.ALREADY_DONE
    if move.stage is not job.stage:
        return Refusal.TOO_EARLY
    if job.status is Status.PROCESSING:
        return Refusal.HELD
    if not job.is_due(now):
        return Refusal.NOT_DUE
    if move.has_others and _stalled_here(job, move.holder, now):
        return Refusal.ELSEWHERE

    deadline = now + allowed_time(job, move.sla_factor, move.burn_in_factor)
    lease = Lease(
        holder=move.holder,
        fence=move.fence,
        request_id=move.request_id,
        expires_at=min(now + move.lease, deadline),
        deadline_at=deadline,
    )
    claimed = replace(
        job,
        status=Status.PROCESSING,
        lease=lease,
        processing_started_at=now,
        last_heartbeat_at=now,
        attempt_count=attempts_after(job, move),
        next_earliest_run_at=None,
        skip_until=None,
        waiting_on=None,
        progress=0.0,
        last_progress_value=None,
        last_progress_update=now,
        queue=None,
    )
    data = {"stage": job.stage, "attempt": claimed.attempt_count, "worker": move.holder, "recovery": job.recovery}
    return Transition(claimed, (Event("claimed", data),))


def _end(job: Job, move: HolderMove, now: datetime) -> Transition | Refusal:
    """The holder's execution is over, one way or another."""
    free = _freed(job, move)
    match move:
        case Complete():
            return _complete(free, move, now)
        case Retry():
            event = Event("retry_scheduled", {"code": move.code, "reason": move.reason, "delay_s": _s(move.delay)})
            return _again(_noted(free, move.code, move.reason, now), now, event, delay=move.delay, told={})
        case Defer():
            return _defer(free, move, now)
        case Rewind():
            return _rewind(free, move, now)
        case Fail():
            return _failed(_noted(free, move.code, move.reason, now), now, move.code, move.reason)
        case Release():
            released = replace(free, release_count=job.release_count + 1)
            return _again(released, now, Event("aborted:shutdown", {"worker": _holder(job)}))
        case Crash():
            crashed = replace(free, crash_count=job.crash_count + 1, recovery=True)
            every = crashed.crash_count >= crashed.attempt_count
            event = Event("worker_lost", {"worker": _holder(job), "evidence": move.evidence})
            code = errors.WORKER_KILLER if every else errors.RETRIES_EXHAUSTED
            return _again(_noted(crashed, "WORKER_LOST", move.evidence, now), now, event, code=code)
        case Stall():
            if job.last_progress_update is None or now - job.last_progress_update < move.threshold:
                return Refusal.STILL_ALIVE
            reason = f"no progress for {_s(now - job.last_progress_update):.0f} s"
            event = Event("stalled", {"worker": _holder(job), "value": job.last_progress_value, "reason": reason})
            return _again(_noted(free, errors.STALLED, reason, now, worker=_holder(job)), now, event)
        case _:
            assert_never(move)


def _expire(job: Job, move: Expire, now: datetime) -> Transition | Refusal:
    if job.lease is None:
        return Refusal.FINISHED if job.is_final else Refusal.LEASE_LOST
    # A death says nothing about whoever holds the job by now: only an expiry may speak without naming its lease.
    if move.fence != job.fence and (move.fence is not None or move.proof is not Proof.LEASE_EXPIRED):
        return Refusal.LEASE_LOST
    if move.proof is Proof.LEASE_EXPIRED and job.lease.expires_at > now:
        return Refusal.STILL_ALIVE

    code = errors.TIMEOUT if job.lease.deadline_at <= now else errors.RETRIES_EXHAUSTED
    details = {"reason": str(move.proof), "locked_by": job.lease.holder}
    free = replace(_freed(job, move), recovery=True)
    noted = _noted(free, errors.TIMEOUT if code == errors.TIMEOUT else "LEASE_EXPIRED", str(move.proof), now)
    event = Event("requeued:stale", {"type": "reaper:requeued", "details": details})
    told = {"type": "reaper:failed(timeout)", "details": details}
    if move.limit is not None and job.processing_started_at and now - job.processing_started_at > move.limit:
        return _failed(noted, now, errors.TIMEOUT, f"exceeded {_s(move.limit) / 3600:g} hour limit", told)
    return _again(noted, now, event, code=code, reason=str(move.proof), told=told)


def _complete(free: Job, move: Complete, now: datetime) -> Transition:
    done = replace(
        free,
        context={**free.context, str(free.stage): dict(move.found)},
        expected_duration_ms=_ms(move.expected_duration) or free.expected_duration_ms,
        crash_count=0,
        first_deferred_at=None,
        recovery=False,
    )
    event = Event("stage_completed", {"stage": free.stage, "found": dict(move.found)})
    onward = free.next_stage()
    if onward is not None:
        # The chain's next link carries the hint, so the row counts as published; sweep looks again after a while.
        return Transition(
            replace(done, status=Status.QUEUED, stage=onward, progress=0.0, published_at=now),
            (event,),
        )
    final = replace(
        _closed(done, Status.COMPLETED, now),
        context={name: found for name, found in done.context.items() if name != WAS},
        outcome=move.outcome,
        generation=free.building,
        progress=100.0,
        fail_code=None,
        fail_reason=None,
    )
    ended = Event("completed", {"outcome": move.outcome, "generation": free.building})
    return Transition(final, (event, ended), Settlement.SETTLE)


def _defer(free: Job, move: Defer, now: datetime) -> Transition:
    since = free.first_deferred_at or now
    gives_up_at = since + move.max_wait
    noted = _noted(free, move.code, move.reason, now)
    if gives_up_at <= now:
        return _failed(noted, now, errors.SERVICE_UNAVAILABLE, f"waited {_s(now - since):.0f} s for {move.service}")
    until = min(now + move.delay, gives_up_at)
    waiting = replace(noted, skip_until=until, waiting_on=move.service, first_deferred_at=since)
    data = {"service": move.service, "code": move.code, "reason": move.reason, "delay_s": _s(until - now)}
    return _queued(waiting, Event("deferred", data))


def _rewind(free: Job, move: Rewind, now: datetime) -> Transition | Refusal:
    if move.to not in free.plan or not free.has_done(move.to):
        return Refusal.NOT_ALLOWED
    noted = _noted(free, errors.ScratchLost.code, move.reason, now)
    if free.rewind_count >= MAX_REWINDS:
        return _failed(noted, now, errors.ScratchLost.code, move.reason)
    back = replace(noted, stage=move.to, rewind_count=free.rewind_count + 1)
    return _queued(back, Event("rewound", {"from": free.stage, "to": move.to, "reason": move.reason}))


def _cancel(job: Job, move: Cancel, now: datetime) -> Transition | Refusal:
    if job.is_final:
        return Refusal.FINISHED
    event = Event("cancelled", {"by": move.by, "worker": _holder(job)})
    free = _freed(job, move)
    ended = _as_it_was(free, now) if job.generation else _closed(free, Status.CANCELLED, now)
    return Transition(ended, (event,), Settlement.REFUND)


def _requeue(job: Job, move: Requeue) -> Transition | Refusal:
    partial = job.status is Status.COMPLETED and job.outcome is Outcome.PARTIAL
    if not (job.status in (Status.FAILED, Status.CANCELLED) or (move.failed_only and partial)):
        return Refusal.NOT_ALLOWED
    stage = move.stage or (job.plan[0] if move.failed_only else job.stage)
    if stage not in job.plan or stage in job.remaining()[1:]:  # it builds on what the stages before it found out
        return Refusal.NOT_ALLOWED
    data = {"by": move.by, "stage": stage, "failed_only": move.failed_only}
    return Transition(_new_run(job, move, stage), (Event("requeued:manual", data),), Settlement.HOLD)


def _rerender(job: Job, move: Rerender) -> Transition | Refusal:
    if job.status is not Status.COMPLETED or Stage.CLIP not in job.plan:
        return Refusal.NOT_ALLOWED
    again = _new_run(job, move, Stage.CLIP)
    # Named after its run: a number that came to nothing is never used again, and neither are its keys.
    beside = replace(again, building=again.run, context={**job.context, WAS: dict(job.context)})
    data = {"by": move.by, "generation": beside.building, "only": move.only}
    return Transition(beside, (Event("rerender", data),), Settlement.HOLD, move.only)


# -- the few ways a job is left behind -------------------------------------------------------------------------------


def _freed(job: Job, move: Move) -> Job:
    """Without its lease: from here on the old fence opens nothing."""
    return replace(job, lease=None, last_heartbeat_at=None, attempt_count=attempts_after(job, move))


def _queued(job: Job, event: Event) -> Transition:
    """Back in the backlog; sweep will publish it when it is due."""
    return Transition(replace(job, status=Status.QUEUED, published_at=None), (event,))


def _again(
    job: Job,
    now: datetime,
    event: Event,
    *,
    delay: timedelta | None = None,
    code: str = errors.RETRIES_EXHAUSTED,
    reason: str | None = None,
    told: Mapping[str, Any] | None = None,
) -> Transition:
    """Queued while attempts are left, failed when they are used up.

    A failure is told after `event`; where `told` is given, `event` would be untrue then and `told` joins the failure.
    """
    if job.attempt_count < job.max_attempts:
        return _queued(replace(job, next_earliest_run_at=now + delay if delay else None), event)
    spent = reason or f"failed after {job.attempt_count} attempts: {job.last_error or event.type}"
    failed = _failed(job, now, code, spent, told)
    return failed if told is not None else replace(failed, events=(event, *failed.events))


def _failed(job: Job, now: datetime, code: str, reason: str, told: Mapping[str, Any] | None = None) -> Transition:
    event = Event("failed", {"code": code, "reason": reason, "stage": job.stage, **(told or {})})
    if job.generation:
        return Transition(_as_it_was(job, now), (event,), Settlement.REFUND)
    ended = replace(_closed(job, Status.FAILED, now), fail_code=code, fail_reason=reason)
    return Transition(ended, (event,), Settlement.REFUND)


def _closed(job: Job, status: Status, now: datetime) -> Job:
    return replace(
        job,
        status=status,
        next_earliest_run_at=None,
        skip_until=None,
        waiting_on=None,
        finished_at=now,
    )


def _as_it_was(job: Job, now: datetime) -> Job:
    """A new generation that came to nothing leaves what was published before."""
    return replace(
        _closed(job, Status.COMPLETED, now),
        building=job.generation,
        stage=job.plan[-1],
        context=job.context.get(WAS, job.context),
        progress=100.0,
    )


def _new_run(job: Job, move: Requeue | Rerender, stage: Stage) -> Job:
    return replace(
        _freed(job, move),
        status=Status.QUEUED,
        stage=stage,
        run=job.run + 1,
        recovery=False,
        crash_count=0,
        release_count=0,
        rewind_count=0,
        first_deferred_at=None,
        published_at=None,
        progress=0.0,
        fail_code=None,
        fail_reason=None,
        finished_at=None,
    )


def _stalled_here(job: Job, holder: str, now: datetime) -> bool:
    """Whether this worker let it stand still a moment ago."""
    if not job.error_history:
        return False
    last = job.error_history[-1]
    is_here = (last["code"], last["stage"], last.get("worker")) == (errors.STALLED, job.stage, holder)
    return is_here and now - datetime.fromisoformat(last["at"]) < OTHERS_FIRST


def _noted(job: Job, code: str, reason: str, now: datetime, **more: Any) -> Job:
    """With this error as the last one; the history is bounded."""
    entry = {"code": code, "reason": reason, "stage": job.stage, "attempt": job.attempt_count, "at": now.isoformat()}
    entry |= more
    return replace(job, last_error=f"{code}: {reason}", error_history=(*job.error_history, entry)[-ERRORS_KEPT:])


def _holder(job: Job) -> str | None:
    return job.lease.holder if job.lease else None


def _ms(span: timedelta | None) -> int | None:
    return None if span is None else int(span.total_seconds() * 1000)


def _s(span: timedelta) -> float:
    return round(span.total_seconds(), 3)
