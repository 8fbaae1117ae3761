"""What may people ask for? To enqueue, cancel and requeue jobs.

A request is checked before anything is written: whoever gets an error finds no row and no file. A job's row, outputs,
first event and credit hold are one commit. Its message follows at once if its queue has room; if it has none, or the
broker is away, sweep sends it later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from pipeline import crashpoints, delivery, dispatch, log, settings
from pipeline.core import window
from pipeline.core.errors import BadRequest, BrokerUnavailable, NotAllowedNow
from pipeline.core.job import Job, Stage
from pipeline.core.moves import Cancel, Move, Refusal, Requeue
from pipeline.core.output import wanted
from pipeline.core.request import Request, parse
from pipeline.crashpoints import At
from pipeline.media import source
from pipeline.settings import Settings
from pipeline.store import due, jobs
from pipeline.store.engine import Session, after_commit, database, dumps, savepoint

logger = log.get("intake")

MAX_KEY = 200


def enqueue(
    raw: Mapping[str, Any],
    *,
    session: Session | None = None,
    job_id: UUID | None = None,
    idempotency_key: str | None = None,
) -> Job:
    """Write the job's row and publish it. The same idempotency key (or id) with the same request is the same job.

    With a `session` (SQLAlchemy Session or Connection) the row is part of the caller's transaction: it lives or dies
    with it, and it is published when that has committed.
    """
    now = settings.current()
    request = _checked(raw, now)
    key = _key(idempotency_key)
    columns = _columns(request, now, job_id or uuid4(), key)
    if session is None:
        with database().transaction() as conn:
            job, is_new = jobs.insert(conn, **columns, published=_goes_directly(conn, request.plan()[0], now))
            crashpoints.reached(At.ROW_INSERTED)
        crashpoints.reached(At.ROW_COMMITTED)
        if is_new and job.published_at is not None:
            _publish(job)
            crashpoints.reached(At.ROW_SENT)
        elif is_new:
            _leave_to_sweep(job.stage, now)
        return job
    with savepoint(session) as conn:
        # Until somebody has published it, sweep may: the caller's program can die right after its commit.
        job, is_new = jobs.insert(conn, **columns, published=False)
    if is_new:
        after_commit(session, lambda: _publish_committed(job))
    return job


def cancel(job_id: UUID, by: str) -> Job:
    """Take the job away from whoever has it. NotAllowedNow if it has ended."""
    return _act(job_id, Cancel(by=by), "cancelled")


def requeue(job_id: UUID, by: str, *, stage: Stage | None = None, failed_only: bool = False) -> Job:
    """Run a job again that failed or was cancelled, or only those outputs of it that failed."""
    job = _act(job_id, Requeue(by=by, stage=stage, failed_only=failed_only), "requeued")
    _publish_committed(job)
    return job


def _act(job_id: UUID, move: Move, done: str) -> Job:
    crashpoints.reached(At.ASKED)
    after = jobs.apply(database(), job_id, move)
    if not isinstance(after, Refusal):
        crashpoints.reached(At.ANSWERED)
        return after
    now, _ = jobs.read(database(), job_id)
    raise NotAllowedNow(f"A job that is {now.status} cannot be {done}.")


def _publish(job: Job) -> None:
    """Send the message; without a broker the row waits, and nobody gets an error."""
    try:
        dispatch.start(job)
    except BrokerUnavailable:
        logger.warning("message not sent", extra={"job_id": str(job.id)})
        due.unpublish(database(), [job.id])


def _publish_committed(job: Job) -> None:
    now = settings.current()
    if not _goes_directly(database(), job.stage, now, besides=job.id):
        return _leave_to_sweep(job.stage, now)
    taken = due.take_one(database(), job.id)
    if taken is not None:
        crashpoints.reached(At.HINT_MARKED)
        _publish(taken)
    return None


def _goes_directly(conn: due.Door, stage: Stage, now: Settings, besides: UUID | None = None) -> bool:
    sight = due.sight(conn, timedelta(seconds=now.worker_offline_sec), besides)
    return window.goes_directly(stage, sight, now.shape())


def _leave_to_sweep(stage: Stage, now: Settings) -> None:
    """The window is full, and markers wake sweep when it is not; a limit of the fleet may have room right now."""
    if stage in now.shape().fleet:
        dispatch.nudge()


# -- from a request to columns ---------------------------------------------------------------------------------------


def _checked(raw: Mapping[str, Any], now: Settings) -> Request:
    """The request, if its source and its targets exist."""
    request = parse(raw)
    source.validate(request.source)
    known = delivery.load(now)
    for n, name in enumerate(request.targets):
        if name not in known:
            raise BadRequest("UNKNOWN_TARGET", f"There is no target named {name!r}.", field=f"targets[{n}]")
    return request


def _key(key: str | None) -> str | None:
    if key is not None and (not key.strip() or len(key) > MAX_KEY or not key.isprintable()):
        raise BadRequest("BAD_IDEMPOTENCY_KEY", f"An idempotency key has 1-{MAX_KEY} printable characters.")
    return key


def _columns(request: Request, now: Settings, job_id: UUID, key: str | None) -> dict[str, Any]:
    body = dumps(request.as_json())
    expected_s = request.expected_duration_s()
    return {
        "id": job_id,
        "account": request.account,
        "key": key,
        "hash": hashlib.sha256(body.encode()).hexdigest(),
        "stage": str(request.plan()[0]),
        "plan": [str(stage) for stage in request.plan()],
        "priority": str(request.priority),
        "request": body,
        "max_attempts": request.max_attempts or now.job_max_attempts,
        "expected_duration_ms": None if expected_s is None else int(expected_s * 1000),
        "deadline_ms": None if request.deadline_s is None else int(request.deadline_s * 1000),
        "outputs": dumps([asdict(output) for output in wanted(request, now.credits_per_output)]),
    }
