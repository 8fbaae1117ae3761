"""A whole life of a job in one process that can be killed anywhere, and taken up again by the next.

The process is a person who asks, a worker and the upkeep in one. Messages go through the real broker and the real
Celery tasks, so what was sent and what was lost is as true as the row. Every act looks first whether it was done
before: so a second process carries on where the first one died. On the way somebody who is dead claims `upload`, and
the job is cancelled before `asr` and asked for again, so that reaper, sweep and people have their say too.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Mapping
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from pipeline import crashpoints, intake, settings, upkeep
from pipeline.core.job import Stage, Status
from pipeline.core.moves import Claim
from pipeline.crashpoints import At
from pipeline.media import asr as engines
from pipeline.media.captions import Line, Transcript, Word
from pipeline.store import jobs, reads
from pipeline.store.engine import database

MOST_ROUNDS = 400  # a job that needs more goes round in circles

PRELOADED = (
    *(__name__, "pipeline.runner", "celery.app.trace", "celery.events", "celery.worker"),
    *("kombu.transport.redis", "sqlalchemy.dialects.postgresql.psycopg2"),
)
_forks = multiprocessing.get_context("forkserver")  # a fresh process that need not import everything again
_forks.set_forkserver_preload(list(PRELOADED))


def live(env: Mapping[str, str], job: UUID, request: Mapping[str, Any]) -> BaseProcess:
    """Start a process that brings the job to its end, if it lives so long."""
    process = _forks.Process(target=_live, args=(dict(env), job, dict(request)))
    process.start()
    return process


def _live(env: dict[str, str], job: UUID, request: dict[str, Any]) -> None:
    os.environ.update(env)
    settings.current.cache_clear()
    engines.engine = lambda _settings: Quick()  # type: ignore[assignment]
    if "CRASH_SEEN" in env:
        _note_points(Path(env["CRASH_SEEN"]))
    intake.enqueue(request, job_id=job)
    worker = _Worker()
    for _ in range(MOST_ROUNDS):
        now, _ = jobs.read(database(), job)
        if now.stage is Stage.UPLOAD and not _was(job, "claimed", Stage.UPLOAD):
            jobs.apply(database(), job, Claim(stage=now.stage, holder="a dead one", fence=uuid4(), lease=timedelta(0)))
        elif now.stage is Stage.ASR and not _was(job, "cancelled", Stage.ASR):
            intake.cancel(job, by="ann")
        elif now.status is Status.CANCELLED:
            intake.requeue(job, by="ann")
        elif not worker.work() and now.is_final:
            os._exit(0)  # nothing of it is needed any more
    raise AssertionError(f"the job never ended: {reads.one(database(), job)}")


def _note_points(seen: Path) -> None:
    """Write down every point that is passed."""
    names: list[str] = []

    def reached(point: At) -> None:
        names.append(point.said)
        seen.write_text(json.dumps(names))

    crashpoints.reached = reached


def _was(job: UUID, kind: str, stage: Stage) -> bool:
    return any((event["type"], event["stage"]) == (kind, stage) for event in reads.events(database(), job))


class _Worker:
    """Takes messages as a Celery worker does, and does the upkeep when there are none."""

    def __init__(self) -> None:
        from celery.app.trace import build_tracer

        from tasks import app
        from tasks.worker import identity, register

        app.loader.import_default_modules()
        app.finalize()
        self._app, self._tracer_of = app, build_tracer
        register(SimpleNamespace(hostname=f"w{os.getpid()}", app=app, concurrency=1), UUID(identity()))
        self._queues = list(app.amqp.queues.consume_from)
        self._channel = app.connection_for_read().channel()

    def work(self) -> bool:
        """Run one message, or else the upkeep; whether there was one."""
        message = next((got for queue in self._queues if (got := self._channel.basic_get(queue))), None)
        if message is None:
            upkeep.reap()
            upkeep.sweep()
            return False
        args, kwargs, embed = message.payload
        task = self._app.tasks[message.headers["task"]]
        request = {**message.headers, **embed, "args": args, "kwargs": kwargs, "delivery_info": message.delivery_info}
        self._tracer_of(task.name, task, app=self._app)(message.headers["id"], args, kwargs, request)
        message.ack()
        return True


class Quick:
    """An engine that hears the same word in everything."""

    name = "quick"

    def ping(self) -> None:
        """It is there."""

    def must_know(self, _language: str | None) -> None:
        """It knows them all."""

    def transcribe(self, *_: Any, **__: Any) -> Transcript:
        word = Word(0.0, 0.5, "ping")
        return Transcript("en", (word,), (Line(0.0, 0.5, "ping"),), self.name, 2.0)
