"""What does the main process do when one of its pool processes dies? It gives the job back at once.

The child can say nothing any more, and its lease would live on: Celery delivers the message again within seconds, and
would meet a row that somebody seems to hold. So the request tells the row first, and is redelivered after that.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from billiard.exceptions import WorkerLostError
from celery.worker.request import Request

from pipeline import log, runner
from pipeline.store.jobs import Table
from tasks.worker import identity

logger = log.get("worker")


class StageRequest(Request):
    """A delivery of a stage, as the main process sees it."""

    table = Table.JOBS

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(error, WorkerLostError):
            try:
                runner.crashed(UUID(self.args[0]), runner.Delivery(identity(), self.id), str(error), self.table)
            except Exception:  # the lease runs out by itself, later
                logger.warning("crash not written down", exc_info=True, extra={"task_id": self.id})
        return super().on_failure(exc_info, send_failed_event, return_ok)


class TranscriptionRequest(StageRequest):
    """A delivery of a transcription that belongs to no job."""

    table = Table.ASR_JOBS
