"""What can a stage still write when its job was taken away? Nothing, and it stops at the first try."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from pipeline import delivery, intake, settings
from pipeline.core.errors import LeaseLost, TargetRefused
from pipeline.core.job import Job
from pipeline.core.moves import Claim
from pipeline.core.request import parse
from pipeline.heartbeat import Pulse
from pipeline.scratch import Scratch
from pipeline.stages.context import Context, Unit
from pipeline.store import jobs, reads
from pipeline.store.engine import database
from tests.stages.conftest import Runner

WRITES: dict[str, Callable[[Context], object]] = {
    "a unit": lambda ctx: ctx.remember("unit", {}),
    "a file": lambda ctx: ctx.file_once("unit", ".txt", lambda work: {"size": work.write_text("boo")}),
    "an output begun": lambda ctx: ctx.began(ctx.outputs()[0]),
    "an output made": lambda ctx: ctx.made(ctx.outputs()[0]),
    "an output missed": lambda ctx: ctx.missed(ctx.outputs()[0]),
    "an output completed": lambda ctx: ctx.completed(ctx.outputs()[0]),
    "an output skipped": lambda ctx: ctx.skipped(ctx.outputs()[0], "boo"),
    "an output failed": lambda ctx: ctx.failed(ctx.outputs()[0], TargetRefused("boo")),
    "a delivery": lambda ctx: ctx.delivered(ctx.outputs()[0], "local", []),
    "a refusal": lambda ctx: ctx.refused(ctx.outputs()[0], "local", TargetRefused("boo")),
    "a transcript": lambda ctx: ctx.transcribed(ctx.outputs()[0], {"text": "boo"}),
}


@pytest.fixture
def ghost(runner: Runner, silent: Path) -> Context:
    """What a stage holds whose job was cancelled a moment ago; nobody has told it yet."""
    now, job_id = settings.current(), runner.submit(silent)
    claim = Claim(stage=runner.job(job_id).stage, holder="ghost", fence=uuid4(), lease=timedelta(minutes=5))
    job = jobs.apply(database(), job_id, claim)
    assert isinstance(job, Job)
    scratch = Scratch(now.scratch_dir, job_id, claim.fence)
    intake.cancel(job_id, by="ann")
    untold = Pulse(database(), job, now)
    return Context(job, parse(job.request), scratch, delivery.load(now), now, untold, database())


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_stage_that_lost_its_job_stops_at_its_first_write(
    ghost: Context, runner: Runner, write: Callable[[Context], object]
) -> None:
    before = runner.show(ghost.job.id), reads.events(database(), ghost.job.id), runner.units(ghost.job.id)

    with pytest.raises(LeaseLost):
        write(ghost)

    assert (runner.show(ghost.job.id), reads.events(database(), ghost.job.id), runner.units(ghost.job.id)) == before


def test_a_unit_whose_file_was_damaged_is_made_again(ghost: Context) -> None:
    made = ghost.scratch.path("unit-final.txt")
    work = ghost.scratch.path("unit-work.txt")
    work.write_text("whole")
    good = ghost.scratch.publish(work, made)
    ghost._records["unit"] = {"file": {"name": made.name, "sha256": good.sha256, "size": good.size}, "facts": {}}
    assert isinstance(ghost.reuse("unit"), Unit)

    made.write_text("whol!")

    assert ghost.reuse("unit") is None
