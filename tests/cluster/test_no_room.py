"""What does a worker do when its disk is full? It takes nothing new, says why, and goes on when there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline import enqueue
from pipeline.core.job import Status
from pipeline.core.routing import GPU, QUEUES, WORK
from pipeline.store import workers
from tests.cluster.system import System, wait_for
from tests.needs import mounted

MIB = 1024**2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, "size=24m"):
        yield disk


def paused(system: System) -> str | None:
    (worker,) = [w for w in workers.newest(system.db) if w["status"] != "offline"]
    return worker["paused"]


def test_a_worker_without_room_takes_nothing_new_and_goes_on_when_there_is_room(
    make_system: Callable[..., System], sample: Path, small_disk: Path
) -> None:
    system = make_system(SCRATCH_DIR=str(small_disk), MIN_FREE_DISK_BYTES=str(12 * MIB))
    system.beat(wait=False)
    worker = system.worker(queues=(*QUEUES, GPU))
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(16 * MIB))
    wait_for("the worker to pause", lambda: paused(system))
    worker.wait_for_log("worker paused")
    wait_for("it to listen to no queue with work", lambda: not WORK & set(system.queues_of(worker)))

    job = enqueue({"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False})
    wait_for("a sweep since then", system.ran_again("sweep"))

    assert "MiB are free on the scratch disk" in str(paused(system))
    assert system.claims(job.id) == []
    ballast.unlink()
    assert system.finished(job.id)["outcome"] == "full"
    assert paused(system) is None


def test_a_disk_that_fills_up_under_a_stage_costs_no_attempt_and_publishes_nothing_by_halves(
    make_system: Callable[..., System], sample: Path, small_disk: Path
) -> None:
    system = make_system(SCRATCH_DIR=str(small_disk))
    system.beat(wait=False)
    system.worker()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(23 * MIB + MIB // 2))

    job = enqueue({"source": str(sample), "clips": [{"start": 0.5, "end": 18}], "captions": False})
    wait_for("the job to wait", lambda: system.events(job.id, "deferred"))

    waiting = system.job(job.id)
    assert (waiting.status, waiting.attempt_count, waiting.waiting_on) == (Status.QUEUED, 0, "scratch")
    assert waiting.last_error is not None
    assert waiting.last_error.startswith("SCRATCH_FULL")
    assert system.published() == {}
    ballast.unlink()
    system.now_due(job.id)
    assert system.finished(job.id)["outcome"] == "full"
    assert sorted(Path(name).suffix for name in system.published()) == [".json", ".mp4"]
