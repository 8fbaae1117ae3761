"""What does time ask for, and how often? A line each.

A run that nobody picked up before the next one is due expires: upkeep never piles up.
"""

from typing import Any

from pipeline import settings
from pipeline.core.routing import CONTROL

_now = settings.current()


def _every(seconds: float, task: str) -> dict[str, Any]:
    return {"task": task, "schedule": seconds, "options": {"queue": CONTROL, "expires": max(seconds, 1.0)}}


SCHEDULE = {
    "sweep": _every(_now.sweep_interval_sec, "pipeline.sweep"),
    "reap": _every(_now.reaper_interval_sec, "pipeline.reap"),
}
