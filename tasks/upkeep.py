"""Upkeep as Celery tasks: beat asks, one short task each answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from celery import Task, signals

from pipeline import dispatch, limits
from pipeline.core.routing import CANARY, CONTROL, MARKER
from pipeline.upkeep import CHORES, Chore
from pipeline.upkeep.sweep import marker_came_back
from tasks import app
from tasks.worker import identity


def _task(name: str, chore: Chore) -> Task:
    @app.task(name=f"pipeline.{name}", queue=CONTROL)
    def run() -> dict[str, Any]:
        return asdict(chore.run())

    return run


TASKS = {name: _task(name, chore) for name, chore in CHORES.items()}


@app.task(name=MARKER)
def marker(queue: str, number: int, sent_at: str) -> dict[str, Any]:
    return asdict(marker_came_back(queue, number, sent_at, UUID(identity())))


@app.task(name=CANARY)
def canary() -> None:
    """Its arrival was the message."""


@signals.worker_ready.connect
def _ask_for_work(sender: Any, **_options: Any) -> None:
    """There is more room now than the last sweep knew of."""
    limits.tell_slots(sender.controller.concurrency)
    dispatch.nudge()
