"""What does time ask for, and how often? Every chore of `pipeline.upkeep`, a little sooner or later each time.

A run that nobody picked up before the next one is due expires: upkeep never piles up.
"""

import random
from datetime import timedelta
from typing import Any

from celery.schedules import schedule

from pipeline import settings
from pipeline.core.routing import CONTROL
from pipeline.upkeep import CHORES

JITTER = 0.1  # a fleet whose clocks all tick together would come to Postgres all at once


class Around(schedule):  # type: ignore[misc]
    """Every so many seconds, give or take a tenth."""

    def is_due(self, last_run_at: Any) -> Any:
        due, seconds = super().is_due(last_run_at)
        return due, seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret


def _every(seconds: float, task: str) -> dict[str, Any]:
    return {
        "task": task,
        "schedule": Around(timedelta(seconds=seconds)),
        "options": {"queue": CONTROL, "expires": max(seconds, 1.0)},
    }


_now = settings.current()
SCHEDULE = {name: _every(chore.every_s(_now), f"pipeline.{name}") for name, chore in CHORES.items()}
