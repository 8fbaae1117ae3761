"""How does the pipeline flow? A few numbers for people who look, each from the rows of one partial index.

Living rows are counted by the queries that the metrics use. Rows that ended are read back to an hour ago, by the index
of those whose story is still whole: nobody's is cut that early. So a million finished rows cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from pipeline.core.job import Stage
from pipeline.core.routing import QUEUE_OF
from pipeline.store import gauges
from pipeline.store.engine import Database

MINUTES = 60

# The condition on `shortened_run` is the index's own.
ENDED = """
    SELECT date_trunc('minute', j.finished_at) AS minute, j.stage, j.status, count(*) AS jobs FROM jobs j
     WHERE j.finished_at > date_trunc('minute', clock_timestamp()) - interval '{minutes} min'
       AND j.finished_at IS NOT NULL AND j.shortened_run < j.run {whose}
     GROUP BY 1, 2, 3"""

EVERYBODYS = text(ENDED.format(minutes=MINUTES - 1, whose=""))
ONES = text(ENDED.format(minutes=MINUTES - 1, whose="AND j.account_id = :account"))

NOW = text("SELECT date_trunc('minute', clock_timestamp()) AS minute")


@dataclass(frozen=True)
class Flow:
    """One stage: who is in it now, and who ended there in the last hour without having been completed."""

    stage: str
    queue: str
    queued: int
    processing: int
    failed: int


@dataclass(frozen=True)
class Minute:
    """What ended in one minute."""

    at: datetime
    completed: int
    failed: int
    cancelled: int


@dataclass(frozen=True)
class Ended:
    minute: datetime
    stage: str
    status: str
    jobs: int


@dataclass(frozen=True)
class Overview:
    flow: list[Flow]
    minutes: list[Minute]  # those in which something ended, oldest first
    this_minute: datetime
    oldest_due_s: dict[str, float]  # of each queue; 0: nobody waits there


def overview(db: Database, account: str | None = None) -> Overview:
    """The pipeline at a glance, or the part of it that belongs to one account."""
    living = gauges.living(db, account)
    rows = db.run(EVERYBODYS) if account is None else db.run(ONES, account=account)
    ended = [Ended(**row._mapping) for row in rows]
    return Overview(
        flow=[_flow(stage, living, ended) for stage in Stage if stage in QUEUE_OF],
        minutes=[_minute(at, ended) for at in sorted({each.minute for each in ended})],
        this_minute=db.run(NOW)[0].minute,
        oldest_due_s={queue: _oldest(living, queue) for queue in dict.fromkeys(QUEUE_OF.values())},
    )


def _flow(stage: Stage, living: Iterable[gauges.Living], ended: Iterable[Ended]) -> Flow:
    now = {each.status: each.jobs for each in living if each.stage == stage}
    failed = sum(each.jobs for each in ended if each.stage == stage and each.status == "failed")
    return Flow(stage, QUEUE_OF[stage], now.get("queued", 0), now.get("processing", 0), failed)


def _minute(at: datetime, ended: Iterable[Ended]) -> Minute:
    def jobs(status: str) -> int:
        return sum(each.jobs for each in ended if each.minute == at and each.status == status)

    return Minute(at, jobs("completed"), jobs("failed"), jobs("cancelled"))


def _oldest(living: Iterable[gauges.Living], queue: str) -> float:
    waiting = [each.due_s for each in living if each.status == "queued" and each.queue == queue]
    return round(max([0.0, *(due for due in waiting if due is not None)]), 3)
