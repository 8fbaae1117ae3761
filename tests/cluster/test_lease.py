"""Who keeps a lease, who loses it, and what does the loser leave behind?"""

from __future__ import annotations

import signal
from pathlib import Path

from pipeline import enqueue, intake
from pipeline.core.job import Status
from pipeline.processes import Identity
from pipeline.store import jobs, reads
from tests.cluster.system import System, wait_for


def encode(sample: Path, clips: int = 1) -> dict[str, object]:
    """A job whose clips must be encoded: none begins at a keyframe."""
    pieces = [{"start": 0.5 + n / 10, "end": 16 + n / 10} for n in range(clips)]
    return {"source": str(sample), "clips": pieces, "captions": False}


def send(these: list[Identity], sig: signal.Signals) -> None:
    for each in these:
        each.send(sig)


def test_a_stage_that_runs_longer_than_its_lease_keeps_it(warm: System, sample: Path) -> None:
    job = enqueue(encode(sample))
    ffmpeg = warm.encoding(job.id)
    first = warm.job(job.id).lease
    assert first is not None

    send(ffmpeg, signal.SIGSTOP)  # so that it surely takes longer
    wait_for("the first lease to be over", lambda: jobs.read(warm.db, job.id)[1] > first.expires_at)
    wait_for("one more look of the reaper", warm.ran_again("reap"))
    held = warm.job(job.id).lease
    send(ffmpeg, signal.SIGCONT)

    assert held is not None
    assert held.fence == first.fence
    assert held.expires_at > first.expires_at
    warm.finished(job.id)
    assert warm.claims(job.id) == ["resolve", "clip", "upload", "finalize"]


def test_cancelling_ends_ffmpeg_and_clears_scratch_and_a_requeue_completes(warm: System, sample: Path) -> None:
    before = warm.published()
    job = enqueue(encode(sample))
    ffmpeg = warm.encoding(job.id)
    fence = warm.job(job.id).fence

    intake.cancel(job.id, by="test")

    wait_for("ffmpeg to end", lambda: not any(each.is_running for each in ffmpeg), 5)
    wait_for("the scratch to go", lambda: not (warm.scratch / "jobs" / str(job.id) / str(fence)).exists(), 5)
    assert warm.show(job.id)["status"] == Status.CANCELLED
    assert warm.published() == before
    assert [attempt["ended_by"] for attempt in reads.attempts(warm.db, job.id)] == ["stage_completed", "cancelled"]

    intake.requeue(job.id, by="test")

    assert warm.finished(job.id)["outcome"] == "full"
    new = warm.published().keys() - before.keys()
    assert sorted(Path(name).suffix for name in new) == [".json", ".mp4"]


def test_a_stopped_worker_that_wakes_after_its_heir_has_finished_changes_no_byte(system: System, sample: Path) -> None:
    system.beat(wait=False)
    ghost = system.worker(slots=1)
    job = enqueue(encode(sample, clips=2))
    system.encoding(job.id)
    wait_for("the first unit", lambda: system.checkpoints(job.id))
    wait_for("ffmpeg to be at the second one", system.programs)
    stopped = ghost.container.process.tree()

    send(stopped, signal.SIGSTOP)
    system.worker(slots=1)
    system.finished(job.id)
    made = everything(system, job.id)
    send(stopped, signal.SIGCONT)

    ghost.wait_for_log("lease lost")
    wait_for("the ghost's ffmpeg to end", lambda: not system.programs())
    assert everything(system, job.id) == made
    assert [a["ended_by"] for a in reads.attempts(system.db, job.id) if a["stage"] == "clip"] == [
        "requeued:stale",
        "stage_completed",
    ]


def everything(system: System, job_id: object) -> dict[str, object]:
    """All that can be seen of a job: its row, events, attempts, units and objects."""
    return {
        "row": system.show(job_id),
        "events": system.events(job_id),
        "attempts": reads.attempts(system.db, job_id),
        "units": system.checkpoints(job_id),
        "objects": system.published(),
    }
