"""How is one stage of one job run? Claim, work, settle.

The row decides at every step: a message that comes late, twice or for nothing meets a refusal and ends quietly. For
a death after each line, somebody else finds the row as it was left: before the claim, queued; during the work,
leased until the reaper looks; after the settling, queued at the next stage for sweep to publish.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import assert_never
from uuid import UUID, uuid4

from pipeline import crashpoints, delivery, log, metrics, settings, signals
from pipeline.core import backoff
from pipeline.core.errors import Kind, LeaseLost, NoSuchJob
from pipeline.core.job import Job, Stage
from pipeline.core.moves import Claim, Complete, Crash, Defer, Fail, HolderMove, Refusal, Release, Retry, Rewind
from pipeline.core.request import parse
from pipeline.core.routing import QUEUE_OF
from pipeline.core.verdict import Verdict, classify
from pipeline.crashpoints import At
from pipeline.heartbeat import Pulse
from pipeline.scratch import Scratch, leases_of, remove_leases
from pipeline.settings import Settings
from pipeline.stages import STAGES, services
from pipeline.stages.alone import Alone, transcribe
from pipeline.stages.context import Context
from pipeline.store import checkpoints, due, jobs, workers
from pipeline.store.engine import Database, database
from pipeline.store.jobs import Table

logger = log.get("runner")


@dataclass(frozen=True)
class Delivery:
    """The message that asks for a stage, and the worker that got it."""

    worker: str
    request_id: str


@dataclass(frozen=True)
class Answer:
    """What became of the message. `onward`: the next link of its chain has something to do."""

    onward: bool
    word: str


def run_stage(stage: Stage, job_id: UUID, delivery: Delivery, table: Table = Table.JOBS) -> Answer:
    """Run the stage if the row says that it is due, and write down how it ended.

    With the other table the row is a transcription that stands alone: all of it is one stage.
    """
    db, now = database(), settings.current()
    left = leases_of(now.scratch_dir, job_id)
    try:
        claimed = _claim(db, now, stage, job_id, delivery, table)
    except NoSuchJob:
        logger.warning("message for no job", extra={"job_id": str(job_id)})
        return Answer(onward=False, word=NoSuchJob.code)
    if isinstance(claimed, Refusal):
        if claimed is Refusal.FINISHED:  # whoever finished it may have died before it tidied up
            remove_leases(now.scratch_dir, job_id, left)
        if claimed is Refusal.ELSEWHERE:
            due.put_back(db, job_id, stage, table)
        if claimed is Refusal.HELD:
            metrics.count("worker_acquire_conflicts_total")
        return Answer(onward=claimed is Refusal.ALREADY_DONE, word=claimed)
    assert claimed.fence is not None
    crashpoints.reached(At.CLAIMED)
    scratch = Scratch(now.scratch_dir, job_id, claimed.fence)
    with log.bind(job_id=str(job_id), stage=str(stage), attempt=claimed.attempt_count, worker=delivery.worker):
        logger.info("stage started")
        if claimed.recovery:
            _tell_recovery(db, claimed)
        began = time.monotonic()
        try:
            move = attempt(db, now, claimed, scratch, table)
        except BaseException:
            # We are being stopped: give the job back, so that nobody has to wait for the lease to run out.
            _settle(db, claimed, Release(fence=claimed.fence), scratch, table)
            raise
        _measure(stage, move, time.monotonic() - began)
        return _settle(db, claimed, move, scratch, table)


def crashed(job_id: UUID, delivery: Delivery, evidence: str, table: Table = Table.JOBS) -> None:
    """The process that ran this delivery is dead: if it held the job, the job goes back at once."""
    db = database()
    job, _ = jobs.read(db, job_id, table)
    lease = job.lease
    if lease is None or (lease.holder, lease.request_id) != (delivery.worker, delivery.request_id):
        return  # it died before its claim or after its end; the redelivered message finds that out
    after = jobs.apply(db, job_id, Crash(fence=lease.fence, evidence=evidence), table=table)
    if isinstance(after, Job) and not after.is_final:
        metrics.count("worker_recovered_jobs_total", reason="crash")
    logger.error(
        "worker process lost",
        extra={"job_id": str(job_id), "stage": job.stage, "attempt": job.attempt_count, "evidence": evidence}
        | {"status": after.status if isinstance(after, Job) else after},
    )


def _measure(stage: Stage, move: HolderMove | None, took_s: float) -> None:
    by = "lease_lost" if move is None else type(move).__name__.lower()
    metrics.observe("stage_duration_seconds", took_s, stage=stage, by=by)
    if isinstance(move, Retry):
        metrics.count("worker_retry_attempts_total", code=move.code)


def _tell_recovery(db: Database, job: Job) -> None:
    logger.info("[Worker] RECOVERY MODE: Resuming from checkpoint")
    logger.info("Recovery: Skipping %d already completed", len(checkpoints.of(db, job.id, job.building)))


def _claim(db: Database, now: Settings, stage: Stage, job_id: UUID, delivery: Delivery, table: Table) -> Job | Refusal:
    claim = Claim(
        stage=stage,
        holder=delivery.worker,
        fence=uuid4(),
        lease=timedelta(seconds=now.default_lease_sec),
        request_id=delivery.request_id,
        sla_factor=STAGES[stage].sla(now),
        burn_in_factor=STAGES[stage].burn_in_sla(now),
    )
    crashpoints.reached(At.CLAIMING)
    answer = jobs.apply(db, job_id, replace(claim, has_others=True), table=table)
    if answer is Refusal.ELSEWHERE and not workers.others_serve(db, QUEUE_OF[stage], delivery.worker):
        return jobs.apply(db, job_id, claim, table=table)
    return answer


def attempt(db: Database, now: Settings, job: Job, scratch: Scratch, table: Table = Table.JOBS) -> HolderMove | None:
    """Do the stage's work; the move that follows from how it went, None if the lease was lost on the way."""
    assert job.fence is not None
    try:
        with Pulse(db, job, now, table) as pulse:
            given = (job, parse(job.request), scratch, delivery.load(now), now, pulse, db)
            done = STAGES[job.stage].run(Context(*given)) if table is Table.JOBS else transcribe(Alone(*given))
    except LeaseLost:
        return None
    except Exception as exc:
        verdict = classify(exc)
        if not verdict.known:
            logger.exception("unclassified error", extra={"code": verdict.code})
        return _move_for(db, verdict, job, now)
    return Complete(fence=job.fence, found=done.found, expected_duration=done.expected_duration, outcome=done.outcome)


def _move_for(db: Database, verdict: Verdict, job: Job, now: Settings) -> HolderMove:
    """What a holder does about an error."""
    assert job.fence is not None
    reason = verdict.reason + (f"\n{verdict.evidence}" if verdict.evidence else "")
    match verdict.kind:
        case Kind.RETRY:
            base, cap = timedelta(milliseconds=now.backoff_base_ms), timedelta(milliseconds=now.backoff_max_ms)
            delay = backoff.delay(job.id, job.attempt_count, base, cap)
            return Retry(fence=job.fence, code=verdict.code, reason=reason, delay=delay)
        case Kind.DEFER:
            return Defer(
                fence=job.fence,
                code=verdict.code,
                reason=reason,
                service=verdict.service or "scratch",
                delay=services.wait_for(db, verdict.service),
                max_wait=timedelta(seconds=now.max_wait_sec),
            )
        case Kind.REWIND:
            back = STAGES[job.stage].rewinds_to
            if back not in job.plan:
                return Fail(fence=job.fence, code=verdict.code, reason=reason)
            return Rewind(fence=job.fence, to=back, reason=reason)
        case Kind.FAIL:
            return Fail(fence=job.fence, code=verdict.code, reason=reason)
        case _:
            assert_never(verdict.kind)


def _settle(db: Database, claimed: Job, move: HolderMove | None, scratch: Scratch, table: Table) -> Answer:
    """Write down how the execution ended, and clear away what nobody needs any more."""
    root = settings.current().scratch_dir
    left = leases_of(root, claimed.id)
    if move is None:
        after: Job | Refusal = Refusal.LEASE_LOST
    else:
        crashpoints.reached(At.SETTLING)
        seen = claimed if isinstance(move, Complete) else None
        after = jobs.apply(db, claimed.id, move, snapshot=seen, table=table)
    if isinstance(after, Refusal):
        logger.warning("lease lost", extra={"refusal": after})
        scratch.remove_own()
        return Answer(onward=False, word=after)
    crashpoints.reached(At.SETTLED)
    signals.moved(after)
    logger.info(
        "stage ended", extra={"by": type(move).__name__.lower(), "status": after.status, "error": after.last_error}
    )
    if after.is_final:
        remove_leases(root, claimed.id, left)
    return Answer(onward=isinstance(move, Complete) and not after.is_final, word=after.status)
