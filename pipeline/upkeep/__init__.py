"""What does time ask for? One file each; beat asks, and a worker that sees one overdue asks too.

Everything here may run anywhere, at any time, twice at once or after a death in the middle: it decides nothing that
the row does not decide again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.settings import Settings
from pipeline.upkeep.probe import Probed, probe
from pipeline.upkeep.reap import Reaped, reap
from pipeline.upkeep.sweep import Swept, sweep

__all__ = ["CHORES", "Chore", "Probed", "Reaped", "Swept", "probe", "reap", "sweep"]


@dataclass(frozen=True)
class Chore:
    """What is done (its answer is a dataclass), and how often."""

    run: Callable[[], Any]
    every_s: Callable[[Settings], float]


# The timetable: beat's schedule, the Celery tasks and the workers' own watch are made from it.
CHORES: Mapping[str, Chore] = {
    "sweep": Chore(sweep, lambda now: now.sweep_interval_sec),
    "probe": Chore(probe, lambda now: now.probe_interval_sec),
    "reap": Chore(reap, lambda now: now.reaper_interval_sec),
}
