"""What happens to a job that is stuck? It goes on where it was, or it is given up, and the log says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline import upkeep
from pipeline.core.job import Job, Stage, Status
from pipeline.core.moves import Claim
from pipeline.runner import Delivery, run_stage
from pipeline.store import jobs, leases, workers
from pipeline.store.engine import database
from tests.stages.conftest import Runner
from tests.store.world import SILENCE, let_pass


@pytest.fixture(autouse=True)
def _no_grace(use: Callable[..., None]) -> None:
    use(DATABASE_GRACE_SEC="0")


def stuck(runner: Runner, job_id: UUID, since: timedelta) -> Job:
    """The job in the hands of somebody who has not been heard of for so long."""
    claim = Claim(stage=runner.job(job_id).stage, holder="nobody", fence=uuid4(), lease=timedelta(minutes=5))
    held = jobs.apply(database(), job_id, claim)
    assert isinstance(held, Job)
    let_pass(database(), held, since)
    return held


def test_a_job_that_was_stuck_for_45_minutes_goes_on_from_its_checkpoint(
    runner: Runner, silent: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clips = [{"start": n / 2, "end": n / 2 + 1} for n in range(4)]
    job = runner.submit(silent, clips=clips)
    runner.until(job, Stage.CLIP)
    first = runner.step(job)
    assert first.onward
    units = runner.units(job)
    stuck(runner, job, timedelta(minutes=45))

    with caplog.at_level(logging.INFO):
        done = upkeep.recover()

    assert (done.recovered, done.failed) == ([str(job)], [])
    again = runner.job(job)
    assert (again.status, again.stage, again.recovery) == (Status.QUEUED, Stage.UPLOAD, True)
    assert again.published_at is not None  # it is on its way, before everything that waits
    for line in (
        "[Recovery] Starting job recovery...",
        "[Recovery] Found 1 stuck",
        f"[Recovery] Recovering {job} (4/4 completed)",
        f"[Recovery] Re-queuing {job} from checkpoint 4",
        "[Recovery] Recovery complete: 1 recovered, 0 failed",
    ):
        assert line in caplog.messages
    assert runner.finish(job)["outcome"] == "full"
    assert runner.units(job) == units


def test_a_job_that_was_stuck_for_3_hours_has_failed_and_says_why(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent)
    stuck(runner, job, timedelta(hours=3))

    done = upkeep.recover()

    assert (done.recovered, done.failed) == ([], [str(job)])
    shown = runner.show(job)
    assert (shown["status"], shown["fail_code"], shown["fail_reason"]) == (
        "failed",
        "TIMEOUT",
        "exceeded 2 hour limit",
    )


def test_the_limit_can_be_moved(runner: Runner, silent: Path, use: Callable[..., None]) -> None:
    use(RECOVERY_LIMIT_SEC=str(4 * 3600), DATABASE_GRACE_SEC="0")
    job = runner.submit(silent)
    stuck(runner, job, timedelta(hours=3))

    assert upkeep.recover().recovered == [str(job)]


def test_what_somebody_runs_is_left_alone_however_long_it_takes(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent)
    held = stuck(runner, job, timedelta(hours=3))
    database().run(
        text("UPDATE jobs SET lease_expires_at = clock_timestamp() + interval '5 min' WHERE id = :id"), id=job
    )

    done = upkeep.recover()

    assert (done.recovered, done.failed) == ([], [])
    assert runner.job(job).fence == held.fence


def test_recovering_twice_changes_nothing_the_second_time(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent)
    stuck(runner, job, timedelta(minutes=45))
    upkeep.recover()
    before = runner.show(job)

    done = upkeep.recover()

    assert (done.recovered, done.failed) == ([], [])
    assert runner.show(job) == before


# -- standstills -----------------------------------------------------------------------------------------------------


def held_since(runner: Runner, job_id: UUID, since: timedelta) -> Job:
    """The job under a lease that lives, without progress for so long."""
    held = stuck(runner, job_id, since)
    database().run(
        text(
            "UPDATE jobs SET lease_expires_at = clock_timestamp() + interval '5 min',"
            " deadline_at = clock_timestamp() + interval '2 h' WHERE id = :id"
        ),
        id=job_id,
    )
    return held


@pytest.mark.parametrize(
    ("stage", "minutes"), [(Stage.RESOLVE, 30), (Stage.CLIP, 10), (Stage.UPLOAD, 5), (Stage.FINALIZE, 5)]
)
def test_a_stage_that_stands_still_for_longer_than_it_may_is_stopped(
    runner: Runner, silent: Path, stage: Stage, minutes: int
) -> None:
    job = runner.submit(silent)
    runner.until(job, stage)
    held_since(runner, job, timedelta(minutes=minutes - 1))

    assert upkeep.stalls().stopped == []
    let_pass(database(), runner.job(job), timedelta(minutes=1))

    assert upkeep.stalls().stopped == [str(job)]
    after = runner.job(job)
    assert (after.status, after.attempt_count) == (Status.QUEUED, 1)
    assert after.last_error is not None
    assert after.last_error.startswith("STALLED: no progress for")
    assert runner.finish(job)["outcome"] == "full"


def test_a_stage_that_is_slow_but_moves_goes_on(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent)
    held = held_since(runner, job, timedelta(hours=1))
    assert held.fence is not None
    leases.pulse(database(), job, held.fence, None, 1234.0, SILENCE)

    assert upkeep.stalls().stopped == []
    assert runner.job(job).fence == held.fence


def test_a_stage_that_stood_still_is_left_to_another_worker_where_there_is_one(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent)
    held_since(runner, job, timedelta(hours=1))
    upkeep.stalls()

    told = {"hostname": "h", "queues": ["io"], "slots": 1, "boot_id": None, "pid": 1, "pid_started": None}
    workers.register(database(), uuid4(), name="another", **told)
    database().run(text("UPDATE jobs SET published_at = clock_timestamp()"))
    again = Delivery(worker="nobody", request_id="again")
    left_alone = run_stage(Stage.RESOLVE, job, again)
    waits = runner.job(job)
    database().run(text("UPDATE workers SET status = 'offline'"))
    run_stage(Stage.RESOLVE, job, again)

    assert left_alone.word == "elsewhere"
    assert (waits.status, waits.published_at, waits.attempt_count) == (Status.QUEUED, None, 1)
    assert runner.job(job).stage is Stage.CLIP
