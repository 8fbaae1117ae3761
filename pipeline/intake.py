"""What may people ask for? To enqueue, cancel, requeue and rerender jobs.

A request is checked before anything is written: whoever gets an error finds no row and no file. A job's row, outputs,
first event and credit hold are one commit. Its message follows at once if its queue has room; if it has none, or the
broker is away, sweep sends it later.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from pipeline import breakers, crashpoints, delivery, dispatch, log, settings, signals, transcriptions
from pipeline.core import window
from pipeline.core.credits import priced
from pipeline.core.errors import BadRequest, BrokerUnavailable, IronclipError, NotAllowedNow
from pipeline.core.job import Job, Stage, Status
from pipeline.core.moves import Cancel, Move, Refusal, Requeue, Rerender
from pipeline.core.output import made_anew, wanted
from pipeline.core.request import Request, parse
from pipeline.core.request import account as check_account
from pipeline.core.routing import ON_GPU
from pipeline.crashpoints import At
from pipeline.delivery.buckets import Buckets
from pipeline.media import asr, source
from pipeline.settings import Settings
from pipeline.store import asr as transcripts
from pipeline.store import credits as ledger
from pipeline.store import due, jobs, outputs
from pipeline.store.engine import Session, after_commit, database, dumps, savepoint
from pipeline.store.jobs import Table

logger = log.get("intake")

MAX_KEY = 200
MAX_GRANT = 10**15


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
        signals.moved(job)
        return job
    with savepoint(session) as conn:
        # Until somebody has published it, sweep may: the caller's program can die right after its commit.
        job, is_new = jobs.insert(conn, **columns, published=False)
    if is_new:
        after_commit(session, lambda: _publish_committed(job))
    return job


def transcribe(
    file: str, *, language: str | None = None, targets: Sequence[str] | None = None, priority: str | None = None
) -> Job:
    """Have the words of a file written down, without a job: a row of its own, with its own lease and attempts."""
    now = settings.current()
    given = {"language": language, "targets": targets, "priority": priority}
    request = _checked({"source": file, "clips": [{"name": _named_after(file)}], **given}, now)
    seconds = _seconds_of(request.source)
    born = transcripts.insert(
        database(),
        id=uuid4(),
        priority=str(request.priority),
        request=dumps(request.as_json()),
        max_attempts=now.job_max_attempts,
        expected_duration_ms=None if seconds is None else int(seconds * 1000),
    )
    _publish_transcription(born, now)
    return born


def cancel(job_id: UUID, by: str, table: Table = Table.JOBS) -> Job:
    """Take the job (or transcription) away from whoever has it. NotAllowedNow if it has ended."""
    return _act(job_id, Cancel(by=by), "cancelled", table)


def requeue(job_id: UUID, by: str, *, stage: Stage | None = None, failed_only: bool = False) -> Job:
    """Run a job again that failed or was cancelled, or only those outputs of it that failed."""
    job = _act(job_id, Requeue(by=by, stage=stage, failed_only=failed_only), "requeued")
    _publish_committed(job)
    return job


def requeue_transcription(asr_job: UUID, by: str) -> Job:
    """Run a transcription again that failed, was cancelled, or was refused by a target; what was heard is kept."""
    again = _act(asr_job, Requeue(by=by, failed_only=True), "requeued", Table.ASR_JOBS)
    _publish_transcription(again, settings.current())
    return again


def rerender(job_id: UUID, by: str, *, qualities: Sequence[str] = (), transcription: bool = False) -> Job:
    """Make a completed job anew: all of it, or only these qualities, or only its captions (or both).

    What is published stays until the new generation is verified at every target, and for good if that comes to nothing.
    NotAllowedNow if the job is not completed, BadRequest if it has nothing of the kind or its source is gone.
    """
    job, _ = jobs.read(database(), job_id)
    if job.status is not Status.COMPLETED:
        raise NotAllowedNow(f"A job that is {job.status} cannot be rerendered.")
    _checked(job.request, settings.current())
    only = made_anew(outputs.of(database(), job_id, job.generation), qualities, transcription)
    again = _act(job_id, Rerender(by=by, only=only), "rerendered")
    _publish_committed(again)
    return again


def grant(account: str, amount: int, *, reference: str, note: str | None = None) -> bool:
    """Give credits to an account (or, below zero, take them), and open it if it is new; False: it was done before.

    A reference is granted once, whoever says it how often: with another account or amount it is a conflict.
    """
    check_account(account)
    if not amount or abs(amount) > MAX_GRANT:
        raise BadRequest("BAD_GRANT", "A grant is a whole number of credits other than 0.", field="amount")
    if not reference.strip() or len(reference) > MAX_KEY or not reference.isprintable():
        raise BadRequest("BAD_GRANT", f"A reference has 1-{MAX_KEY} printable characters.", field="reference")
    return ledger.grant(database(), account, amount, reference=reference, note=note)


def _act(job_id: UUID, move: Move, done: str, table: Table = Table.JOBS) -> Job:
    crashpoints.reached(At.ASKED)
    after = jobs.apply(database(), job_id, move, table=table)
    if not isinstance(after, Refusal):
        crashpoints.reached(At.ANSWERED)
        signals.moved(after)
        return after
    now, _ = jobs.read(database(), job_id, table)
    raise NotAllowedNow(f"A {table.noun} that is {now.status} cannot be {done}.")


def _publish(job: Job) -> None:
    """Send the message; without a broker the row waits, and nobody gets an error."""
    try:
        dispatch.start(job)
    except BrokerUnavailable as exc:
        logger.warning("message not sent", extra={"job_id": str(job.id)})
        due.unpublish(database(), [job.id])
        breakers.broker_failed(database(), job.id, exc.message)


def _publish_committed(job: Job) -> None:
    now = settings.current()
    if not _goes_directly(database(), job.stage, now, besides=job.id):
        return _leave_to_sweep(job.stage, now)
    taken = due.take_one(database(), job.id)
    if taken is not None:
        crashpoints.reached(At.HINT_MARKED)
        _publish(taken)
    return None


def _publish_transcription(row: Job, now: Settings) -> None:
    if row.stage in now.shape().fleet:
        return _leave_to_sweep(row.stage, now)
    transcriptions.publish(database(), due.sight(database(), now.silence()), now, only=row.id)
    return None


def _goes_directly(conn: due.Door, stage: Stage, now: Settings, besides: UUID | None = None) -> bool:
    return window.goes_directly(stage, due.sight(conn, now.silence(), besides), now.shape())


def _leave_to_sweep(stage: Stage, now: Settings) -> None:
    """The window is full, and markers wake sweep when it is not; where sweep chooses there may be room right now."""
    if stage in now.shape().fleet or stage in ON_GPU:
        dispatch.nudge()


# -- from a request to columns ---------------------------------------------------------------------------------------


def _named_after(file: str) -> str:
    """A name for what is made of a file: its own, without what names may not have."""
    stem = PurePosixPath(urlsplit(file).path).stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:64] or "transcript"


def _seconds_of(file: str) -> float | None:
    """How long a local file is, where whoever asks can look into it."""
    if not source.is_local(file):
        return None
    try:
        from pipeline.media import probe  # an app that only enqueues need not have it

        return probe.probe(Path(file)).duration_s
    except (ImportError, IronclipError):
        return None


def _checked(raw: Mapping[str, Any], now: Settings) -> Request:
    """The request, if its source and its targets exist."""
    request = parse(raw)
    known = delivery.load(now)
    source.validate(request.source, Buckets(known, now).names)
    for n, name in enumerate(request.targets):
        if name not in known:
            raise BadRequest("UNKNOWN_TARGET", f"There is no target named {name!r}.", field=f"targets[{n}]")
    if request.captions and not asr.is_known(request.language, now):
        raise BadRequest(
            "ASR_LANGUAGE_UNSUPPORTED",
            f"The engine that makes captions knows only English, not {request.language!r}.",
            field="language",
        )
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
        "outputs": dumps([asdict(output) for output in priced(wanted(request, 0), now.prices())]),
    }
