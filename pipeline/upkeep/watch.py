"""Who does the upkeep when beat is dead? Every worker looks, and does what is overdue.

It also looks for neighbours that died on its machine, and recovers when it starts: so a tree that was killed and comes
back finds its own jobs first.
"""

from __future__ import annotations

import time

from pipeline import log, settings
from pipeline.repeat import Repeat
from pipeline.store import upkeep as runs
from pipeline.store.engine import database
from pipeline.upkeep import CHORES, leftovers
from pipeline.upkeep.reap import look_around

logger = log.get("upkeep")

LATE = 3  # times its interval: then it is overdue, and whoever sees it does it
LOOK_S = 2.0

_cleared_at = float("-inf")


def watch() -> Repeat:
    """The thread that looks; a worker starts it."""
    quickest = min(chore.every_s(settings.current()) for chore in CHORES.values())
    return Repeat("upkeep", min(LOOK_S, quickest), look, first=CHORES["recover"].run)


def look() -> list[str]:
    """Bury the neighbours that died, do what is overdue; the names of what was done."""
    found = look_around()
    _clear_scratch()
    done = overdue()
    if found.requeued and "sweep" not in done:
        done.append("sweep")  # at once: nobody has to wait for them twice
    for name in done:
        logger.info("overdue upkeep", extra={"chore": name})
        CHORES[name].run()
    return done


def _clear_scratch() -> None:
    """Each machine has scratch of its own, and beat asks only one of them."""
    global _cleared_at
    now = settings.current()
    if time.monotonic() - _cleared_at >= now.prune_interval_sec:
        _cleared_at = time.monotonic()
        leftovers.clear(database(), now)


def overdue() -> list[str]:
    """The chores that nobody has done for too long."""
    now, ages = settings.current(), runs.ages_s(database())
    return [name for name, chore in CHORES.items() if ages.get(name, float("inf")) > LATE * chore.every_s(now)]
