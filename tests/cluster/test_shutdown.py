"""How does a worker stop? It finishes what it can in its grace period, and gives the rest back."""

from __future__ import annotations

import signal
from pathlib import Path

from pipeline import enqueue
from pipeline.store import reads, workers
from tests.cluster.system import System, wait_for

STOP_PATIENCE_S = 20.0


def test_a_worker_that_must_stop_gives_its_job_back_and_the_next_one_completes_it(system: System, sample: Path) -> None:
    clips = [{"start": 0.5 + n / 10, "end": 18 + n / 10} for n in range(4)]
    system.beat(wait=False)
    leaving = system.worker(SHUTDOWN_GRACE_SEC="0.5")
    job = enqueue({"source": str(sample), "clips": clips, "captions": False})
    system.encoding(job.id)

    leaving.kill("SIGTERM")

    assert leaving.container.process.wait(STOP_PATIENCE_S) == 0
    assert not system.programs()
    assert len(system.events(job.id, "aborted:shutdown")) == 1
    given_back = system.job(job.id)
    assert (given_back.status, given_back.attempt_count, given_back.release_count) == ("queued", 0, 1)
    assert said_goodbye(system)
    system.worker()
    assert system.finished(job.id)["outcome"] == "full"
    assert [a["ended_by"] for a in reads.attempts(system.db, job.id) if a["stage"] == "clip"] == [
        "aborted:shutdown",
        "stage_completed",
    ]
    assert len(system.published()) == len(clips) + 1


def test_a_stage_that_can_finish_in_the_grace_period_finishes(system: System, sample: Path) -> None:
    leaving = system.worker(SHUTDOWN_GRACE_SEC="60")
    job = enqueue({"source": str(sample), "clips": [{"start": 0.5, "end": 6}], "captions": False})
    ffmpeg = system.encoding(job.id)
    for each in ffmpeg:  # so that it is surely under way when the worker is told to stop
        each.send(signal.SIGSTOP)

    leaving.kill("SIGTERM")
    wait_for("the worker to hear it", lambda: "worker stopping" in leaving.logs())
    for each in ffmpeg:
        each.send(signal.SIGCONT)

    assert leaving.container.process.wait(STOP_PATIENCE_S) == 0
    assert [e["stage"] for e in system.events(job.id, "stage_completed")][:2] == ["resolve", "clip"]
    assert not system.events(job.id, "aborted:shutdown")
    assert said_goodbye(system)


def said_goodbye(system: System) -> bool:
    (row,) = workers.newest(system.db)
    return row["status"] == "offline" and row["stopped_at"] is not None
