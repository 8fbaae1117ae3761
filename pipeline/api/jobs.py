"""Jobs over HTTP: submit, list, show, cancel, requeue, rerender."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Body, Header, Query, Response

from pipeline import intake
from pipeline.api import cursor as cursors
from pipeline.api import models, showing, sources
from pipeline.api.access import Doors
from pipeline.api.caller import Asking, Caller
from pipeline.core.errors import Forbidden, NoSuchJob
from pipeline.core.job import Job, Priority, Stage, Status
from pipeline.store import listing
from pipeline.store.engine import database

router = Doors(tags=["jobs"])


@router.post("/api/jobs", status_code=201, summary="Submit a job")
def submit(
    caller: Asking,
    response: Response,
    request: Annotated[models.Submission, Body()],
    idempotency_key: Annotated[str | None, Header(description="Same key and body: same job.")] = None,
) -> models.Accepted:
    """The row is committed when this returns. The same Idempotency-Key with the same body is the same job; with
    another body it is a conflict."""
    job = intake.enqueue(sources.resolved(caller, _of_account(caller, request)), idempotency_key=idempotency_key)
    response.headers["Location"] = f"/api/jobs/{job.id}"
    return _accepted(job)


@router.get("/api/jobs", summary="List jobs, newest first")
def list_jobs(
    caller: Asking,
    status: Status | None = None,
    stage: Stage | None = None,
    priority: Priority | None = None,
    account: Annotated[str | None, Query(max_length=64, description="For operators; others see their own.")] = None,
    waiting_on: Annotated[str | None, Query(max_length=300, description="A breaker, such as target:local.")] = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    search: Annotated[str | None, Query(min_length=1, max_length=200, description="In source or id.")] = None,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> models.Page:
    """Pages are stable: jobs that come in meanwhile move nothing."""
    wanted = listing.Filter(
        account=caller.account or account,
        status=status,
        stage=stage,
        priority=priority,
        waiting_on=waiting_on,
        created_after=created_after,
        created_before=created_before,
        search=search,
    )
    seen = None if cursor is None else cursors.read(cursor)
    rows = listing.page(database(), wanted, seen=seen, limit=limit + 1)
    shown = [models.Job(**showing.without_secrets(row)) for row in rows[:limit]]
    return models.Page(jobs=shown, next=cursors.write(rows[limit - 1]) if len(rows) > limit else None)


@router.get("/api/jobs/{job_id}", summary="Everything about a job")
def show(caller: Asking, job_id: UUID) -> models.WholeJob:
    check_owner(caller, job_id)
    return showing.whole(database(), job_id)


@router.post("/api/jobs/{job_id}/cancel", summary="Take a job away from whoever has it, and end it")
def cancel(caller: Asking, job_id: UUID) -> models.Accepted:
    check_owner(caller, job_id)
    return _accepted(intake.cancel(job_id, caller.name))


@router.post("/api/jobs/{job_id}/requeue", summary="Run a job again that failed or was cancelled")
def requeue(caller: Asking, job_id: UUID, how: models.Requeue | None = None) -> models.Accepted:
    check_owner(caller, job_id)
    how = how or models.Requeue()
    return _accepted(intake.requeue(job_id, caller.name, stage=how.stage, failed_only=how.failed_only))


@router.post("/api/jobs/{job_id}/rerender", summary="Make a completed job anew, beside what is published")
def rerender(caller: Asking, job_id: UUID, what: models.Rerender | None = None) -> models.Accepted:
    check_owner(caller, job_id)
    what = what or models.Rerender()
    again = intake.rerender(job_id, caller.name, qualities=what.qualities, transcription=what.transcription)
    return _accepted(again)


def check_owner(caller: Caller, job_id: UUID) -> None:
    """NoSuchJob also for what belongs to somebody else: who asks must not learn that it exists."""
    there, account = listing.account_of(database(), job_id)
    if not there or (caller.account is not None and account != caller.account):
        raise NoSuchJob(f"There is no job {job_id}.")


def _of_account(caller: Caller, request: dict[str, Any]) -> dict[str, Any]:
    """The request as this caller may make it."""
    if caller.account is None:
        return request
    if request.get("account") not in (None, caller.account):
        raise Forbidden("A client submits for its own account only.")
    return {**request, "account": caller.account}


def _accepted(job: Job) -> models.Accepted:
    return models.Accepted(id=job.id, status=job.status, stage=job.stage, run=job.run, generation=job.generation)
