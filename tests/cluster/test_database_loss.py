"""What happens while Postgres is away? Everybody waits for it, and nobody is punished for the silence."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline import embedded, enqueue
from pipeline.embedded.postgres import Postgres
from pipeline.store import migrate, upkeep
from pipeline.upkeep.reap import reap
from tests.cluster.system import System, inside, wait_for


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Postgres]:
    """A Postgres that the test may stop."""
    with embedded.services(tmp_path / "servers") as own:
        migrate.upgrade(own.database_url)
        yield own.postgres


@pytest.fixture
def shaky(postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    """A system on that Postgres. Its leases are long enough for a restart on a busy machine."""
    system = System(tmp_path / "home", postgres.url, DEFAULT_LEASE_SEC="30", HEARTBEAT_SEC="1", DATABASE_GRACE_SEC="20")
    try:
        with inside(system, monkeypatch):
            yield system
    finally:
        system.close()


RESTARTS: dict[str, Callable[[Postgres], None]] = {
    "fast": lambda postgres: postgres.restart(),
    "immediate": lambda postgres: (postgres.kill(), postgres.start()),  # type: ignore[func-returns-value, return-value]
}


@pytest.mark.parametrize(
    "restart",
    [
        pytest.param(RESTARTS["fast"], id="fast", marks=pytest.mark.long),
        pytest.param(RESTARTS["immediate"], id="immediate"),
    ],
)
def test_every_job_completes_when_postgres_is_restarted_again_and_again_and_nobody_is_reaped(
    shaky: System, postgres: Postgres, sample: Path, restart: Callable[[Postgres], None]
) -> None:
    shaky.beat(wait=False)
    shaky.worker()
    clips = [{"start": 0.5, "end": 6}, {"start": 1.5, "end": 7}]
    jobs = [enqueue({"source": str(sample), "clips": clips, "captions": False}) for _ in range(6)]

    for job in jobs[:3]:
        wait_for("the job to begin", lambda job=job: shaky.claims(job.id))
        restart(postgres)

    for job in jobs:
        assert shaky.finished(job.id)["outcome"] == "full"
        completed = Counter(event["stage"] for event in shaky.events(job.id, "stage_completed"))
        assert completed == {str(stage): 1 for stage in job.plan}
        assert shaky.events(job.id, "requeued:stale") == []
        assert shaky.events(job.id, "failed") == []
    assert len(shaky.published()) == len(jobs) * 3


def test_a_stage_sits_out_an_outage_that_is_shorter_than_its_lease(
    shaky: System, postgres: Postgres, sample: Path
) -> None:
    shaky.worker()
    job = enqueue({"source": str(sample), "clips": [{"start": 0.5, "end": 4}], "captions": False})
    ffmpeg = shaky.encoding(job.id)

    postgres.stop()
    wait_for("ffmpeg to end", lambda: not any(each.is_running for each in ffmpeg))
    back = threading.Timer(7, postgres.start)  # longer than a web app would wait
    back.start()
    back.join()

    assert shaky.finished(job.id)["outcome"] == "full"
    assert shaky.claims(job.id) == ["resolve", "clip", "upload", "finalize"]


def test_after_an_outage_silence_and_expiry_wait_for_the_living(shaky: System, postgres: Postgres) -> None:
    upkeep.contact(shaky.db, timedelta(seconds=3))
    postgres.restart()

    assert reap().waits
