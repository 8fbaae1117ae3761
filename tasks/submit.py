"""The way in for an app that has only the broker: it sends `pipeline.submit`, and a worker writes the row."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from celery import Task
from celery.exceptions import Reject

from pipeline.core.errors import DatabaseUnavailable
from pipeline.core.routing import SUBMIT
from pipeline.intake import enqueue
from tasks import app


@app.task(bind=True, name=SUBMIT)
def submit(self: Task, **request: Any) -> dict[str, str]:
    """The task's id becomes the job's id, so a message that comes twice makes one job."""
    try:
        job = enqueue(request, job_id=UUID(self.request.id))
    except DatabaseUnavailable as exc:
        # The message is all there is of this job: keep it until there is a row.
        raise Reject(str(exc), requeue=True) from exc
    return {"job": str(job.id)}
