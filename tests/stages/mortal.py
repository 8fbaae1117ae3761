"""A process that brings a job to its end, stage by stage, and can be killed at any moment.

It writes down every unit that it begins to make, so that whoever killed it can count what was done twice.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import UUID

from pipeline import settings
from pipeline.core.job import Status
from pipeline.runner import Delivery, run_stage
from pipeline.stages.context import Context
from pipeline.store import jobs
from pipeline.store.engine import database

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__, "sqlalchemy.dialects.postgresql.psycopg2"])


def live(env: Mapping[str, str], job: UUID, delivery: Delivery, began: Path) -> BaseProcess:
    """Start such a process; `began` gets a line for each unit."""
    process = _forks.Process(target=_live, args=(dict(env), job, delivery, began))
    process.start()
    return process


def _live(env: dict[str, str], job: UUID, delivery: Delivery, began: Path) -> None:
    os.environ.update(env)
    settings.current.cache_clear()
    for method in ("file_once", "files_once"):
        setattr(Context, method, _noting(getattr(Context, method), began))
    while (now := jobs.read(database(), job)[0]).status is Status.QUEUED:
        run_stage(now.stage, job, delivery)
    os._exit(0 if now.status is Status.COMPLETED else 1)


def _noting(once: Callable[..., Any], began: Path) -> Callable[..., Any]:
    def noted(self: Context, key: str, *rest: Any) -> Any:
        *others, make = rest

        def make_and_note(place: Path) -> Any:
            with began.open("a") as lines:
                lines.write(f"{key}\n")
            return make(place)

        return once(self, key, *others, make_and_note)

    return noted
