"""What if a rerender fails, is cancelled, dies or leaves a ghost? The job is as it was, and nothing old is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from pipeline import crashpoints, delivery, intake, settings
from pipeline.core.errors import LeaseLost
from pipeline.core.job import Job, Stage
from pipeline.core.moves import Claim, Fail
from pipeline.core.request import parse
from pipeline.crashpoints import At
from pipeline.heartbeat import Pulse
from pipeline.runner import Delivery, run_stage
from pipeline.scratch import Scratch
from pipeline.stages.context import Context
from pipeline.store import jobs
from pipeline.store.engine import database
from tests.stages.conftest import Runner
from tests.stages.rerendering import CLIP, STAGES, as_published, assert_healthy, away, clear_away, finished, outputs_of
from tests.store.world import make_late, reap

__all__ = ["away", "finished"]  # fixtures

# -- one that comes to nothing ---------------------------------------------------------------------------------------


def _held(job: UUID, stage: Stage) -> Job:
    claim = Claim(stage=stage, holder="test", fence=uuid4(), lease=timedelta(minutes=5))
    got = jobs.apply(database(), job, claim)
    assert isinstance(got, Job)
    return got


def _cancelled(_runner: Runner, job: UUID, _stage: Stage) -> None:
    intake.cancel(job, by="ann")


def _cancelled_in_the_middle(_runner: Runner, job: UUID, stage: Stage) -> None:
    _held(job, stage)
    intake.cancel(job, by="ann")


def _failed(_runner: Runner, job: UUID, stage: Stage) -> None:
    held = _held(job, stage)
    assert held.fence is not None
    jobs.apply(database(), job, Fail(fence=held.fence, code="X", reason="y"))


def _killed_every_time(_runner: Runner, job: UUID, stage: Stage) -> None:
    while not jobs.read(database(), job)[0].is_final:
        make_late(database(), _held(job, stage))
        reap(database())


ENDINGS = [_cancelled, _cancelled_in_the_middle, _failed, _killed_every_time]


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda each: each.__name__.strip("_"))
def test_whenever_a_rerender_comes_to_nothing_the_job_is_as_it_was(
    runner: Runner, finished: UUID, ending: Callable[[Runner, UUID, Stage], None]
) -> None:
    before = as_published(runner, finished)
    for stage in STAGES:
        intake.rerender(finished, by="ann")
        runner.until(finished, stage)

        ending(runner, finished, stage)

        assert as_published(runner, finished) == before
    clear_away(runner, finished)
    assert as_published(runner, finished) == before
    assert {o["generation"] for o in outputs_of(finished)} == {1}
    assert {path.parent.name for path in runner.objects()} == {"g1"}
    assert_healthy()


def test_a_new_generation_that_a_target_refuses_does_not_replace_the_old_one(
    runner: Runner, silent: Path, away: Path
) -> None:
    job = runner.submit(silent, clips=CLIP, targets=["local", "away"])
    runner.finish(job)
    before = as_published(runner, job)
    intake.rerender(job, by="ann")
    runner.until(job, Stage.UPLOAD)
    away.rename(away.with_name("unmounted"))

    shown = runner.finish(job)

    away.with_name("unmounted").rename(away)
    assert as_published(runner, job) == before
    assert shown["last_error"].startswith("RERENDER_INCOMPLETE: The new generation lacks clip1-source at away")
    assert runner.events(job, "failed")[-1]["code"] == "RERENDER_INCOMPLETE"


# -- ghosts ----------------------------------------------------------------------------------------------------------


def _context_of(job: Job) -> Context:
    now = settings.current()
    assert job.fence is not None
    scratch = Scratch(now.scratch_dir, job.id, job.fence)
    return Context(job, parse(job.request), scratch, delivery.load(now), now, Pulse(database(), job, now), database())


def test_a_ghost_of_the_old_generation_writes_nothing_into_the_new_one(
    runner: Runner, silent: Path, finished: UUID
) -> None:
    job = runner.submit(silent, clips=CLIP)
    runner.until(job, Stage.FINALIZE)
    ghost = _context_of(_held(job, Stage.FINALIZE))
    make_late(database(), ghost.job)
    reap(database())
    runner.finish(job)
    intake.rerender(job, by="ann")
    runner.until(job, Stage.UPLOAD)
    before = outputs_of(job)

    for write in (
        lambda: ghost.completed(ghost.outputs()[0]),
        lambda: ghost.delivered(ghost.outputs()[0], "local", []),
        lambda: ghost.remember("unit", {}),
    ):
        with pytest.raises(LeaseLost):
            write()

    assert outputs_of(job) == before
    assert run_stage(Stage.FINALIZE, job, Delivery(worker="ghost", request_id="old")).word == "too_early"


def test_what_a_ghost_of_a_cancelled_rerender_brings_late_is_cleared_away(runner: Runner, finished: UUID) -> None:
    before = as_published(runner, finished)
    intake.rerender(finished, by="ann")
    runner.until(finished, Stage.UPLOAD)
    runner.step(finished)
    late = [path for path in runner.objects() if "/g2/" in str(path)]
    intake.cancel(finished, by="ann")
    (late[0].parent / ".part-0123").write_bytes(b"half")

    clear_away(runner, finished)

    assert late
    assert [path for path in runner.output.rglob("*") if "g2" in str(path)] == []
    assert as_published(runner, finished) == before


# -- deaths ----------------------------------------------------------------------------------------------------------

ON_THE_WAY = (
    *(
        At.CLAIMING,
        At.CLAIMED,
        At.UNIT_MADE,
        At.UNIT_NAMED,
        At.UNIT_RECORDED,
        At.OUTPUT_NOTED,
        At.PUTTING,
        At.PUT_HIDDEN,
    ),
    *(At.PUT, At.DELIVERY_RECORDED, At.MANIFEST_MADE, At.MANIFEST_PUT, At.SETTLING),
)


def killed_at(runner: Runner, job: UUID, point: At) -> None:
    """Let another process go on with the job until it dies at this point."""
    pid = os.fork()
    if pid == 0:
        os.environ["IRONCLIP_CRASH_AT"] = point.said
        crashpoints._plan.cache_clear()
        try:
            runner.finish(job)
        finally:
            os._exit(0)
    _, how = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(how)


@pytest.mark.parametrize("point", ON_THE_WAY, ids=lambda point: point.said)
def test_wherever_a_rerender_dies_it_can_be_cancelled_or_finished_and_nothing_old_is_lost(
    runner: Runner, silent: Path, point: At
) -> None:
    job = runner.submit(silent, clips=CLIP)
    runner.finish(job)
    before = as_published(runner, job)

    intake.rerender(job, by="ann")
    killed_at(runner, job, point)
    intake.cancel(job, by="ann")
    cancelled = as_published(runner, job)
    intake.rerender(job, by="ann")
    killed_at(runner, job, point)
    make_late(database(), runner.job(job))
    reap(database())
    finished = runner.finish(job)

    assert cancelled == before
    assert (finished["status"], finished["generation"]) == ("completed", 3)
    clear_away(runner, job)
    assert {path.parent.name for path in runner.objects()} == {"g3"}
    assert_healthy()
