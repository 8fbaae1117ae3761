"""Upkeep as Celery tasks: beat asks, one short task each answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from celery import Task

from pipeline.core.routing import CONTROL
from pipeline.upkeep import CHORES, Chore
from tasks import app


def _task(name: str, chore: Chore) -> Task:
    @app.task(name=f"pipeline.{name}", queue=CONTROL)
    def run() -> dict[str, Any]:
        return asdict(chore.run())

    return run


TASKS = {name: _task(name, chore) for name, chore in CHORES.items()}
