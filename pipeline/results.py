"""What does `AsyncResult(job id)` answer? What the row says.

A small result backend for Celery that only reads: state, progress, result or error of a job come from Postgres, so
they outlive the broker, the workers and the web app's restart.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from celery import states
from celery.backends.base import BaseBackend

from pipeline.core.errors import IronclipError, NoSuchJob
from pipeline.core.job import Status
from pipeline.store import reads
from pipeline.store.engine import database

STATES = {
    Status.QUEUED: states.PENDING,
    Status.PROCESSING: states.STARTED,
    Status.COMPLETED: states.SUCCESS,
    Status.FAILED: states.FAILURE,
    Status.CANCELLED: states.REVOKED,
}


class JobFailed(IronclipError):
    """The job has failed; `code` and the message say why."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.fail_code = code


class JobCancelled(IronclipError):
    """The job was cancelled."""

    code = "CANCELLED"


class RowBackend(BaseBackend):
    """Answers from the row; storing a result is somebody else's business."""

    def _get_task_meta_for(self, task_id: str) -> dict[str, Any]:
        try:
            job = reads.one(database(), UUID(task_id))
        except (NoSuchJob, ValueError):
            return {"status": states.PENDING, "result": None, "task_id": task_id}
        status = Status(job["status"])
        return {
            "task_id": task_id,
            "status": STATES[status],
            "result": _result(status, job),
            "traceback": None,
            "children": [],
            "date_done": job["finished_at"],
        }

    get_task_meta = _get_task_meta_for

    def store_result(self, task_id: str, *_args: Any, **_kwargs: Any) -> None:
        """Nothing to store: the row holds it."""

    def reload_task_result(self, task_id: str) -> None:
        """Nothing is cached."""


def _result(status: Status, job: dict[str, Any]) -> Any:
    if status is Status.FAILED:
        return JobFailed(job["fail_code"], job["fail_reason"])
    if status is Status.CANCELLED:
        return JobCancelled("The job was cancelled.")
    told = {name: job[name] for name in ("stage", "progress", "outcome")}
    if status is Status.COMPLETED:
        told["outputs"] = job["outputs"]
        told["manifest"] = job["context"].get("finalize", {}).get("manifest", {})
    return told
