"""What is lost when a worker is killed? Nothing but time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pipeline import enqueue, processes
from pipeline.core.job import Status
from pipeline.processes import Identity
from pipeline.store import reads
from tests.cluster.system import System, wait_for


def test_killing_the_whole_worker_tree_in_the_middle_of_clip_costs_only_the_unit_under_way(
    system: System, sample: Path
) -> None:
    clips = [{"start": 0.5 + n / 10, "end": 18 + n / 10} for n in range(3)]
    system.beat(wait=False)
    doomed = system.worker()
    job = enqueue({"source": str(sample), "clips": clips, "captions": False, "precise": True})
    system.at(job.id, "clip")
    wait_for("the first unit", lambda: system.checkpoints(job.id))
    ffmpeg = wait_for("ffmpeg to be at the next one", system.programs)
    done = system.checkpoints(job.id)

    doomed.kill()

    wait_for("ffmpeg to end", lambda: not any(each.is_running for each in ffmpeg), 5)
    assert len(system.checkpoints(job.id)) < len(clips)
    heir = system.worker()
    assert system.finished(job.id)["outcome"] == "full"
    assert "unit reused" in heir.logs()
    after = system.checkpoints(job.id)
    assert {unit: after[unit] for unit in done} == done
    assert sorted(Path(name).suffix for name in system.published()) == [".json", ".mp4", ".mp4", ".mp4"]
    assert [a["ended_by"] for a in reads.attempts(system.db, job.id) if a["stage"] == "clip"] == [
        "requeued:stale",
        "stage_completed",
    ]


@pytest.mark.parametrize("who", ["child", "tree"])
def test_a_death_between_stage_done_and_the_next_link_published_delays_the_job_and_no_more(
    system: System, sample: Path, tmp_path: Path, who: str
) -> None:
    note = tmp_path / "crashed"
    system.beat(wait=False)
    doomed = system.worker(IRONCLIP_CRASH_AT="link-due", IRONCLIP_CRASH_NOTE=str(note), IRONCLIP_CRASH_OF=who)
    job = enqueue({"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False})
    wait_for("the crash", note.exists)
    if who == "tree":
        assert doomed.container.process.wait() == -signal.SIGKILL
        assert (system.job(job.id).stage, system.job(job.id).status) == ("clip", "queued")
        system.worker()

    shown = system.finished(job.id)

    assert shown["outcome"] == "full"
    assert system.claims(job.id) == ["resolve", "clip", "upload", "finalize"]
    assert len(system.published()) == 2


def test_a_killed_pool_process_costs_an_attempt_and_its_job_goes_back_at_once(warm: System, sample: Path) -> None:
    job = enqueue({"source": str(sample), "clips": [{"start": 0.5, "end": 16}], "captions": False})
    ffmpeg = warm.encoding(job.id)

    kill_the_pool_process_above(ffmpeg)

    assert warm.finished(job.id)["outcome"] == "full"
    assert not any(each.is_running for each in ffmpeg)
    assert [event["type"] for event in warm.events(job.id) if event["stage"] == "clip"] == [
        *("claimed", "worker_lost"),
        *("claimed", "stage_completed"),
    ]


def test_a_job_that_kills_every_process_that_runs_it_fails_with_the_evidence(system: System, sample: Path) -> None:
    system.beat(wait=False)
    worker = system.worker("tests.cluster.killing", slots=1)
    job = enqueue({"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False})

    shown = system.finished(job.id, Status.FAILED)

    assert shown["fail_code"] == "WORKER_KILLER"
    assert "signal 9" in shown["fail_reason"]
    assert system.claims(job.id) == ["resolve"] * 3
    assert worker.container.status == "running"


def kill_the_pool_process_above(programs: list[Identity]) -> None:
    """SIGKILL for whoever runs the stage: the nearest process above that is a Celery child."""
    (above,) = {parent for each in programs if (parent := processes.parent(each.pid)) not in {p.pid for p in programs}}
    os.kill(above, signal.SIGKILL)
