"""sweep: whatever is due and has no message on its way gets a fresh chain."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pipeline import dispatch, log, settings
from pipeline.core.errors import BrokerUnavailable
from pipeline.store import jobs
from pipeline.store.engine import Database
from pipeline.upkeep.alone import alone

logger = log.get("sweep")


@dataclass(frozen=True)
class Swept:
    """What sweep did."""

    published: int = 0


def sweep() -> Swept:
    """Publish a fresh chain for every row that is due and has no message on its way."""
    return alone("sweep", _sweep, Swept())


def _sweep(db: Database) -> Swept:
    now = settings.current()
    lost_after = timedelta(seconds=now.republish_sec)
    due = jobs.take_due(db, now.sweep_batch, lost_after, dispatch.idle_stages())
    for n, job in enumerate(due):
        try:
            dispatch.start(job)
        except BrokerUnavailable:
            # Those that were not sent, and this one that perhaps was: the next sweep tries again.
            jobs.unpublish(db, [left.id for left in due[n:]])
            logger.warning("broker away", extra={"waiting": len(due) - n})
            return Swept(n)
    return Swept(len(due))
