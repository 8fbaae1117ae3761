"""Upkeep as Celery tasks: beat asks, one short task each answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pipeline import upkeep
from tasks import app


@app.task(name="pipeline.reap")
def reap() -> dict[str, Any]:
    return asdict(upkeep.reap())


@app.task(name="pipeline.sweep")
def sweep() -> dict[str, Any]:
    return asdict(upkeep.sweep())
