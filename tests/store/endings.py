"""Words for tests of what comes after a job: jobs that ended long ago, and a doctor who finds nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import text

from pipeline import doctor
from pipeline.core.job import Job, OutputStatus, Stage
from pipeline.core.moves import Complete
from pipeline.core.output import File
from pipeline.store import outputs, prune
from pipeline.store.engine import Database
from tests.store.world import (
    claim,
    enqueue,
    let_pass,
    now_of,
    play,
)

FILE = File(name="a-final.mp4", sha256="0" * 64, size=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LONG = timedelta(days=40)
REQUEST = '{"targets": ["local"]}'
Use = Callable[..., None]


def ended(db: Database, *, ago: timedelta = LONG, **changes: object) -> Job:
    """A job that was completed this long ago; its one output lies at `local`."""
    begun = claim(db, enqueue(db, **{"plan": [Stage.CLIP, Stage.FINALIZE], "request": REQUEST, **changes}))
    job = claim(db, play(db, begun, Complete(fence=begun.fence)))
    for each in outputs.of(db, job.id, 1):
        outputs.record(db, job.id, job.fence, each.id, OutputStatus.COMPLETED, files=[FILE])
        files = [{"key": f"jobs/{job.id}/g1/a.mp4", "sha256": "0" * 64, "url": "file:///a", "size": 1}]
        outputs.delivered(db, job.id, job.fence, each.id, "local", files=files)
    manifest = {"manifest": {"local": f"file:///x/jobs/{job.id}/g1/m.json"}, "key": f"jobs/{job.id}/g1/m.json"}
    done = play(db, job, Complete(fence=job.fence, found=manifest))
    return pass_by(db, done, ago)


def pass_by(db: Database, job: Job, span: timedelta) -> Job:
    let_pass(db, job, span)
    db.run(text("UPDATE deliveries SET updated_at = updated_at - CAST(:span AS interval)"), span=span)
    return now_of(db, job)


def tidy(db: Database, job: Job) -> None:
    with prune.tidying(db, job.id, HOUR) as work:
        assert work is not None
        work.is_done = True


def assert_healthy(db: Database) -> None:
    assert [each for each in doctor.examine(db) if each.invariant.name != "upkeep_is_on_time"] == []
