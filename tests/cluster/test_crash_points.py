"""What if a real worker dies exactly here? tests/stages walks every point; a few of them again, with Celery's trees."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pipeline import enqueue
from pipeline.core.job import Status
from pipeline.crashpoints import At
from tests.cluster.system import System, wait_for

# A child whose main process sees it die and tells the row; a whole tree, of which only its neighbours can know.
DEATHS = [
    (At.CLAIMED, "child"),
    (At.MANIFEST_PUT, "tree"),
    (At.SWEEP_MARKED, "tree"),
]
FURTHER = [
    (At.UNIT_NAMED, "tree"),
    (At.PUT, "child"),
    (At.SETTLED, "tree"),
]


@pytest.mark.parametrize(
    ("point", "who"),
    [pytest.param(point, who, id=f"{point.said} {who}") for point, who in DEATHS]
    + [pytest.param(point, who, id=f"{point.said} {who}", marks=pytest.mark.long) for point, who in FURTHER],
)
def test_a_worker_that_dies_at_this_point_delays_the_job_and_no_more(
    system: System, sample: Path, tmp_path: Path, point: At, who: str
) -> None:
    note = tmp_path / "crashed"
    system.beat(wait=False)
    doomed = system.worker(IRONCLIP_CRASH_AT=point.said, IRONCLIP_CRASH_NOTE=str(note), IRONCLIP_CRASH_OF=who)
    with system.db.transaction() as conn:  # committed by somebody who tells nobody: sweep finds it
        job = enqueue({"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False}, session=conn)
    wait_for("the crash", note.exists)
    if who == "tree":
        assert doomed.container.process.wait() == -signal.SIGKILL
        system.worker()

    shown = system.finished(job.id)

    assert shown["outcome"] == "full"
    done = [event["stage"] for event in system.events(job.id, "stage_completed")]
    assert done == ["resolve", "clip", "upload", "finalize"]
    assert max(system.claims(job.id).count(stage) for stage in done) <= 2
    assert sorted(Path(name).suffix for name in system.published()) == [".json", ".mp4"]
    wait_for("scratch to be empty", lambda: not list(system.scratch.glob(f"jobs/{job.id}")))
    assert system.job(job.id).status is Status.COMPLETED
