"""The five stages as Celery tasks, made from one table."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from celery import Task

from pipeline import crashpoints, limits
from pipeline.core.job import Stage
from pipeline.core.routing import QUEUE_OF, TRANSCRIBE, task_of
from pipeline.crashpoints import At
from pipeline.runner import Answer, Delivery, run_stage
from pipeline.stages import STAGES
from pipeline.store.jobs import Table
from tasks import app
from tasks.worker import identity

NO_PLACE = Answer(onward=False, word="no_place")


def _task(stage: Stage) -> Task:
    @app.task(bind=True, name=task_of(stage), queue=QUEUE_OF[stage], Request="tasks.crashes:StageRequest")
    def run(self: Task, job_id: str) -> dict[str, Any]:
        job, delivery = UUID(job_id), Delivery(worker=identity(), request_id=self.request.id)
        answer = limits.in_turn(stage, job, lambda: run_stage(stage, job, delivery)) or NO_PLACE
        if not answer.onward or limits.left_to_sweep(job):
            # Nothing is left for the next link: end the chain without noise. Flower shows SUCCESS and what was said.
            self.request.chain = None
            self.request.callbacks = None
        crashpoints.reached(At.LINK_DUE)
        return {"job": job_id, "stage": stage, "answer": answer.word}

    return run


TASKS = {stage: _task(stage) for stage in STAGES}


@app.task(bind=True, name=TRANSCRIBE, queue=QUEUE_OF[Stage.ASR], Request="tasks.crashes:TranscriptionRequest")
def transcribe(self: Task, asr_job: str) -> dict[str, Any]:
    """A transcription that belongs to no job."""
    row, delivery = UUID(asr_job), Delivery(worker=identity(), request_id=self.request.id)

    def run() -> Answer:
        return run_stage(Stage.ASR, row, delivery, Table.ASR_JOBS)

    answer = limits.in_turn(Stage.ASR, row, run, Table.ASR_JOBS) or NO_PLACE
    return {"transcription": asr_job, "answer": answer.word}
