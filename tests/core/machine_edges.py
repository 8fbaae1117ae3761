"""Which ways does the machine really know? Walk it, from a few beginnings, until nothing new turns up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from pipeline.core.job import Job, Outcome, Stage, Status
from pipeline.core.machine import MAX_RELEASES, MAX_REWINDS, transition
from pipeline.core.moves import Cancel, Move, Refusal, Requeue, Rerender
from tests.core.lives import (
    MAX_WAIT,
    NOW,
    claim,
    complete,
    crash,
    defer,
    expired,
    fail,
    new,
    release,
    retry,
    rewind,
    stalled,
)

Edge = tuple[str, str, str]  # move, from, to

# Two stages show everything that five do; CLIP is where a rerender begins.
PLAN = (Stage.CLIP, Stage.FINALIZE)


def edges() -> set[Edge]:
    """Every (move, status before, status after) that some job can go through; `enqueue` is the way in."""
    found: set[Edge] = {("enqueue", "[*]", str(Status.QUEUED))}
    todo = list(_beginnings())
    seen = {_point(job) for job in todo}
    while todo:
        job = todo.pop()
        for move, now in _moves(job):
            change = transition(job, move, now)
            if isinstance(change, Refusal):
                continue
            found.add((type(move).__name__.lower(), str(job.status), str(change.job.status)))
            if _point(change.job) not in seen:
                seen.add(_point(change.job))
                todo.append(change.job)
    return found


def _beginnings() -> Iterator[Job]:
    for max_attempts in (1, 2):
        yield new(stage=PLAN[0], plan=PLAN, max_attempts=max_attempts)
    # These have a long life behind them, so that the walk need not take every step of it.
    for published in ({}, {"generation": 1, "building": 2, "run": 2, "outcome": Outcome.FULL}):
        yield new(stage=PLAN[0], plan=PLAN, max_attempts=1, release_count=MAX_RELEASES, **published)
        yield new(stage=PLAN[1], plan=PLAN, rewind_count=MAX_REWINDS, **published)
        yield new(stage=PLAN[0], plan=PLAN, first_deferred_at=NOW - MAX_WAIT, **published)


def _moves(job: Job) -> Iterator[tuple[Move, datetime]]:
    now = job.due_at() or NOW
    yield claim(job), now
    for make in (complete, retry, defer, fail, release, crash):
        yield make(job.fence), now
    yield complete(job.fence, outcome=Outcome.PARTIAL), now
    yield rewind(job.fence, to=PLAN[0]), now
    if job.lease is not None:
        yield expired(job)
        yield stalled(job)
    yield Cancel(by="ann"), now
    yield Rerender(by="ann"), now
    yield Requeue(by="ann"), now
    yield Requeue(by="ann", failed_only=True), now


def _point(job: Job) -> tuple[object, ...]:
    """Where a job stands, as far as the rules look at it."""
    return (
        job.status,
        job.stage,
        job.attempt_count,
        job.max_attempts,
        job.crash_count,
        min(job.release_count, 1) if job.release_count < MAX_RELEASES else MAX_RELEASES,
        job.rewind_count,
        job.first_deferred_at is None or NOW - job.first_deferred_at < timedelta(hours=1),
        min(job.generation, 1),
        job.building > job.generation,
        job.outcome,
    )
