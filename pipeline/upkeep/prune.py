"""prune: what nobody refers to any more is cleared away, after a safe delay.

At the targets of each job that has ended: files of a generation that was replaced or came to nothing, files that a
ghost brought late, and what broken uploads have left. A job that we do not know is not ours to clear: its files stay.
Rows, stories and files go only where a retention is set. What a target does not allow today is tried again next time,
and nothing here takes long: the rest comes next time too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from pipeline import delivery, log, settings
from pipeline.core.errors import TargetError
from pipeline.delivery import Target
from pipeline.settings import Settings
from pipeline.stages.services import of_target
from pipeline.store import breakers
from pipeline.store import prune as rows
from pipeline.store.engine import Database, database
from pipeline.upkeep import leftovers, uploads
from pipeline.upkeep.alone import alone

logger = log.get("prune")

BATCH = 200
BUDGET_S = 20.0  # a worker that does overdue upkeep has other things to do


@dataclass
class Pruned:
    """What was cleared away."""

    scratch: int = 0  # jobs on this machine
    uploads: int = 0  # sources that came over HTTP, on this machine
    tidied: int = 0  # jobs at their targets ...
    removed: int = 0  # ... and the files of them
    expired: int = 0  # jobs whose files were kept long enough
    shortened: int = 0
    forgotten: int = 0
    workers: int = 0


def prune() -> Pruned:
    """Clear away what nobody needs: on this machine, at targets and in the database."""
    here = {each: each.clear(database(), settings.current()) for each in (leftovers, uploads)}
    done = alone("prune", _prune, Pruned())
    done.scratch, done.uploads = here.values()
    if done != Pruned():
        logger.info("pruned", extra=vars(done))
    return done


def _prune(db: Database) -> Pruned:
    now, done, end = settings.current(), Pruned(), time.monotonic() + BUDGET_S

    def some(days: float, forget: Callable[[timedelta], int]) -> int:
        """How many were forgotten, batch by batch, while there is time; none where nothing is ever forgotten."""
        total = 0
        while days and time.monotonic() < end and (batch := forget(timedelta(days=days))):
            total += batch
        return total

    done.expired = some(now.retention_artifacts_days, lambda age: rows.expire_files(db, age, BATCH))
    _tidy(db, now, done, end)
    done.shortened = some(now.retention_events_days, lambda age: rows.shorten_stories(db, age, BATCH))
    keeps_files = not now.retention_artifacts_days
    done.forgotten = some(
        now.retention_jobs_days, lambda age: rows.forget_jobs(db, age, BATCH, keeps_files=keeps_files)
    ) + some(now.retention_jobs_days, lambda age: rows.forget_transcriptions(db, age, BATCH))
    done.workers = some(now.retention_workers_days, lambda age: rows.forget_workers(db, age, BATCH))
    return done


def _tidy(db: Database, now: Settings, done: Pruned, end: float) -> None:
    """Go through the jobs that ended and were not tidied; one whose target cannot be asked now is left for later."""
    delay = timedelta(seconds=now.prune_delay_sec)
    targets = delivery.load(now)
    away = {name for name in targets if not breakers.load(db, of_target(name)).breaker.lets_through()}
    last = None
    while time.monotonic() < end and (page := rows.untidied(db, delay, last)):
        for job in page:
            if time.monotonic() < end and not away & set(job.targets):
                _tidy_one(db, job, targets, delay, done, away)
        last = page[-1]


def _tidy_one(
    db: Database, job: rows.Untidied, targets: Mapping[str, Target], delay: timedelta, done: Pruned, away: set[str]
) -> None:
    with rows.tidying(db, job.id, delay) as work:
        if work is None:
            return
        young = 0
        for name in filter(targets.__contains__, job.targets):  # of one that is no longer configured we know nothing
            try:
                cleared = targets[name].tidy(f"jobs/{job.id}", work.keep.get(name, set()), delay)
            except TargetError as exc:
                logger.warning("target not tidied", extra={"target": name, "code": exc.code, "job_id": str(job.id)})
                away.add(name)
                return
            young += cleared.young
            done.removed += cleared.removed
        work.is_done = not young
        done.tidied += work.is_done
