"""What does time ask for? One file each; beat asks, and a worker that sees one overdue asks too.

Everything here may run anywhere, at any time, twice at once or after a death in the middle: it decides nothing that
the row does not decide again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.settings import Settings
from pipeline.upkeep.probe import probe
from pipeline.upkeep.prune import prune
from pipeline.upkeep.reap import reap
from pipeline.upkeep.recover import recover
from pipeline.upkeep.stalls import stalls
from pipeline.upkeep.sweep import sweep
from pipeline.upkeep.webhooks import webhooks

__all__ = ["CHORES", "Chore", "probe", "prune", "reap", "recover", "stalls", "sweep", "webhooks"]


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
    "stalls": Chore(stalls, lambda now: now.stall_interval_sec),
    "recover": Chore(recover, lambda now: now.recovery_scan_interval_sec),
    "prune": Chore(prune, lambda now: now.prune_interval_sec),
    "webhooks": Chore(webhooks, lambda now: now.webhook_interval_sec),
}
