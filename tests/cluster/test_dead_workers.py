"""Who counts as dead, and how soon? Whoever is proved to be, at once; whoever is silent, after a while; nobody else."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from pipeline import enqueue
from pipeline.store import reads, workers
from pipeline.store.upkeep import ages_s
from tests.cluster.cable import Cable
from tests.cluster.system import System, wait_for

NEVER = "3600"  # no lease of these tests ends by itself


def encode(sample: Path) -> dict[str, object]:
    pieces = [{"start": 0.5, "end": 16.0}]
    return {"source": str(sample), "clips": pieces, "captions": False}


def proofs(system: System, job_id: object) -> list[str]:
    """Why each lease of the job was taken away."""
    return [event["data"]["details"]["reason"] for event in system.events(job_id, "requeued:stale")]


def test_a_tree_that_was_killed_and_comes_back_finds_its_own_jobs_without_beat(
    make_system: Callable[..., System], sample: Path
) -> None:
    system = make_system(DEFAULT_LEASE_SEC=NEVER, WORKER_OFFLINE_SEC=NEVER)
    doomed = system.worker()
    job = enqueue(encode(sample))
    ffmpeg = system.hold_up(job.id)

    doomed.kill()
    wait_for("ffmpeg to end", lambda: not any(each.is_running for each in ffmpeg))
    system.worker()

    assert system.finished(job.id)["outcome"] == "full"
    assert proofs(system, job.id) == ["worker_dead"]
    assert [w["status"] for w in workers.newest(system.db)].count("offline") == 1


def test_a_neighbour_takes_over_from_a_tree_that_never_comes_back(
    make_system: Callable[..., System], sample: Path
) -> None:
    system = make_system(DEFAULT_LEASE_SEC=NEVER, WORKER_OFFLINE_SEC=NEVER)
    doomed = system.worker(slots=1)
    job = enqueue(encode(sample))
    system.hold_up(job.id)
    system.worker(slots=1)

    doomed.kill()

    assert system.finished(job.id)["outcome"] == "full"
    assert proofs(system, job.id) == ["worker_dead"]


def test_a_worker_that_is_silent_for_too_long_is_replaced(make_system: Callable[..., System], sample: Path) -> None:
    system = make_system(DEFAULT_LEASE_SEC=NEVER, WORKER_OFFLINE_SEC="5")
    stopped = system.worker(slots=1)
    job = enqueue(encode(sample))
    system.hold_up(job.id)
    system.worker(slots=1)

    tree = stopped.container.process.tree()
    for each in tree:
        each.send(signal.SIGSTOP)

    assert system.finished(job.id)["outcome"] == "full"
    assert proofs(system, job.id) == ["worker_dead"]
    for each in tree:
        each.send(signal.SIGCONT)
    stopped.wait_for_log("lease lost")


def test_a_second_worker_of_the_same_name_takes_nobodys_lease(make_system: Callable[..., System], sample: Path) -> None:
    system = make_system(DEFAULT_LEASE_SEC=NEVER, WORKER_OFFLINE_SEC=NEVER)
    system.worker(slots=1, name="twin")
    job = enqueue(encode(sample))
    ffmpeg = system.hold_up(job.id)
    held = system.job(job.id).fence

    second = system.worker(slots=1, name="twin")
    wait_for("its upkeep", lambda: "worker registered" in second.logs() and overdue_was_done(system))

    assert system.job(job.id).fence == held
    for each in ffmpeg:
        each.send(signal.SIGCONT)
    assert system.finished(job.id)["outcome"] == "full"
    assert system.claims(job.id) == ["resolve", "clip", "upload", "finalize"]


def overdue_was_done(system: System) -> bool:
    return "reap" in ages_s(system.db)


def test_a_worker_that_cannot_reach_postgres_stops_its_ffmpeg_before_anybody_takes_over(
    system: System, sample: Path
) -> None:
    system.beat(wait=False)
    with Cable(system.env["DATABASE_URL"]) as cable:
        alone = system.worker(slots=1, DATABASE_URL=cable.url)
        job = enqueue(encode(sample))
        ffmpeg = system.hold_up(job.id)
        system.worker(slots=1)

        cable.pull()

        wait_for("somebody to take over", lambda: system.claims(job.id).count("clip") == 2)
        assert not any(each.is_running for each in ffmpeg)
        assert system.finished(job.id)["outcome"] == "full"
        cable.plug_in()
        alone.wait_for_log("lease lost")
    assert [a["ended_by"] for a in reads.attempts(system.db, job.id) if a["stage"] == "clip"] == [
        "requeued:stale",
        "stage_completed",
    ]
