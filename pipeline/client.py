"""How does a web app hand in a job? `from pipeline import submit`, and then as with any Celery task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

from celery import Task
from celery.result import AsyncResult

from pipeline import dispatch, intake, settings
from pipeline.core.errors import BadRequest
from pipeline.core.request import parse
from pipeline.core.routing import SUBMIT

enqueue = intake.enqueue


class Submit(Task):
    """`submit.apply_async(kwargs=request)` writes the row before it returns; the result's id is the job's.

    Where the caller has no DATABASE_URL but a BROKER_URL, a worker writes the row.
    """

    name = SUBMIT

    def apply_async(
        self,
        args: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        *_ignored: Any,
        idempotency_key: str | None = None,
        **_options: Any,
    ) -> AsyncResult:
        if args:
            raise BadRequest("POSITIONAL_ARGUMENTS", "A request has named fields only: use kwargs.")
        job_id = _uuid(task_id)
        if settings.current().database_url:
            job = intake.enqueue(dict(kwargs or {}), job_id=job_id, idempotency_key=idempotency_key)
            return AsyncResult(str(job.id), app=dispatch.client, task_name=self.name)
        if idempotency_key is not None:
            raise BadRequest("NEEDS_DATABASE", "Idempotency keys need DATABASE_URL; without it, use the same task_id.")
        settings.current().need("broker_url")
        parse(kwargs or {})
        job_id = job_id or uuid4()
        dispatch.send_submission(dict(kwargs or {}), job_id)
        return AsyncResult(str(job_id), app=dispatch.client, task_name=self.name)

    def run(self, **request: Any) -> str:
        """Called like a function: enqueue here and now."""
        return str(intake.enqueue(request).id)


def _uuid(task_id: str | None) -> UUID | None:
    if task_id is None:
        return None
    try:
        return UUID(task_id)
    except ValueError:
        raise BadRequest("BAD_TASK_ID", "A task_id must be a UUID: it becomes the job's id.") from None


submit = dispatch.client.register_task(Submit())
