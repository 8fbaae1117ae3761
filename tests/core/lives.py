"""Words for tests of the machine: a job at every point of its life, reached by moves that really lead there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from pipeline.core.job import Job, Outcome, Stage
from pipeline.core.machine import transition
from pipeline.core.moves import (
    Cancel,
    Claim,
    Complete,
    Crash,
    Defer,
    Expire,
    Fail,
    HolderMove,
    Move,
    Refusal,
    Release,
    Rerender,
    Retry,
    Rewind,
    Stall,
    Transition,
)

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
LEASE = timedelta(minutes=5)
DELAY = timedelta(minutes=1)
MAX_WAIT = timedelta(hours=24)
THRESHOLD = timedelta(minutes=10)
PLAN = tuple(Stage)


def new(**changes: Any) -> Job:
    """A job that was just enqueued."""
    return Job(**{"id": uuid4(), "stage": PLAN[0], "plan": PLAN, **changes})


def claim(job: Job, **changes: Any) -> Claim:
    """The claim of whoever is sent to run the job's stage."""
    return Claim(**{"stage": job.stage, "holder": "worker", "fence": uuid4(), "lease": LEASE, **changes})


def complete(fence: UUID | None, **changes: Any) -> Complete:
    return Complete(**{"fence": _of(fence), **changes})


def retry(fence: UUID | None, **changes: Any) -> Retry:
    return Retry(**{"fence": _of(fence), "code": "CLIP_TIMEOUT", "reason": "too slow", "delay": DELAY, **changes})


def defer(fence: UUID | None, **changes: Any) -> Defer:
    told = {"code": "TARGET_DOWN", "reason": "no answer", "service": "target:nas", "delay": DELAY, "max_wait": MAX_WAIT}
    return Defer(**{"fence": _of(fence), **told, **changes})


def rewind(fence: UUID | None, **changes: Any) -> Rewind:
    return Rewind(**{"fence": _of(fence), "to": PLAN[0], "reason": "the source is gone", **changes})


def fail(fence: UUID | None) -> Fail:
    return Fail(fence=_of(fence), code="FFMPEG_FAILED", reason="no such filter")


def release(fence: UUID | None) -> Release:
    return Release(fence=_of(fence))


def crash(fence: UUID | None) -> Crash:
    return Crash(fence=_of(fence), evidence="signal 9")


def stall(fence: UUID | None) -> Stall:
    return Stall(fence=_of(fence), threshold=THRESHOLD)


HOLDER_MOVES = (complete, retry, defer, rewind, fail, release, crash, stall)


def holder_moves(fence: UUID | None) -> list[HolderMove]:
    """Everything that a holder of this fence could want to write."""
    return [make(fence) for make in HOLDER_MOVES]


def step(job: Job, move: Move, now: datetime = NOW) -> Transition:
    """What the move makes of the job; it must not be refused."""
    change = transition(job, move, now)
    assert not isinstance(change, Refusal), f"{move} was refused: {change}"
    return change


def after(job: Job, move: Move, now: datetime = NOW) -> Job:
    return step(job, move, now).job


def types(change: Transition) -> list[str]:
    return [event.type for event in change.events]


def claimed(job: Job | None = None, now: datetime = NOW, **changes: Any) -> Job:
    """The job (a new one), in the hands of a worker."""
    job = job or new()
    return after(job, claim(job, **changes), now)


def at_stage(stage: Stage, **changes: Any) -> Job:
    """A job that has got as far as this stage, and waits for it."""
    job = new(**changes)
    while job.stage is not stage:
        running = claimed(job)
        job = after(running, complete(running.fence))
    return job


def completed(outcome: Outcome = Outcome.FULL, **changes: Any) -> Job:
    running = claimed(at_stage(PLAN[-1], **changes))
    return after(running, complete(running.fence, outcome=outcome))


def failed(job: Job | None = None) -> Job:
    running = claimed(job)
    return after(running, fail(running.fence))


def cancelled() -> Job:
    return after(new(), Cancel(by="ann"))


def rerendering(outcome: Outcome = Outcome.FULL) -> Job:
    """A completed job of which a second generation is being made."""
    return claimed(after(completed(outcome), Rerender(by="ann")))


def expired(job: Job) -> tuple[Expire, datetime]:
    """The reaper's move, at the moment when the lease is over."""
    assert job.lease is not None
    return Expire(), job.lease.expires_at


def stalled(job: Job) -> tuple[Stall, datetime]:
    """The stall check's move, at the moment when it has waited long enough."""
    assert job.last_progress_update is not None
    return stall(job.fence), job.last_progress_update + THRESHOLD


def _of(fence: UUID | None) -> UUID:
    return fence or uuid4()
