"""One target is down for the whole run: the others get theirs, nobody pays for it, and it gets its own in the end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from pipeline import delivery, enqueue
from pipeline.core.breaker import THRESHOLD
from pipeline.core.job import Status
from pipeline.store import breakers
from tests.cluster.system import System, wait_for
from tests.stages import flaky

NAS = "target:nas"


@pytest.fixture
def with_nas(
    make_system: Callable[..., System], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[System, Path]:
    """A system with a second target that is down, two workers, and probes every second."""
    monkeypatch.setattr(delivery, "KINDS", dict(delivery.KINDS))
    flaky.register()
    root = tmp_path / "nas"
    told = flaky.targets_file(tmp_path / "targets.toml", nas=root)
    flaky.switch(root).touch()
    system = make_system(TARGETS_FILE=str(told), PROBE_INTERVAL_SEC="1")
    system.beat(wait=False)
    system.worker("tests.cluster.flaky_worker", slots=1, wait=False)
    system.worker("tests.cluster.flaky_worker", slots=1)
    return system, root


def state(system: System) -> str:
    return str(breakers.load(system.db, NAS).breaker.state)


def let_pass(system: System, span: timedelta) -> None:
    """Make this much time go by, as far as the breaker can tell."""
    system.db.run(text("UPDATE circuit_breakers SET opens_at = opens_at - CAST(:span AS interval)"), span=span)


def test_a_target_that_is_down_delays_only_its_own_deliveries_and_its_jobs_go_on_by_themselves(
    with_nas: tuple[System, Path], sample: Path
) -> None:
    system, root = with_nas
    request = {
        "source": str(sample),
        "clips": [{"start": 2, "end": 4}],
        "captions": False,
        "targets": ["nas", "local"],
    }
    jobs = [enqueue(request).id for _ in range(THRESHOLD + 2)]
    wait_for("everybody to wait", lambda: all(system.job(job).waiting_on == NAS for job in jobs))

    assert state(system) == "open"
    assert len([name for name in system.published() if name.endswith(".mp4")]) == len(jobs)
    for job in jobs:
        waiting = system.job(job)
        assert (waiting.status, waiting.stage, waiting.attempt_count) == (Status.QUEUED, "upload", 0)
        assert system.events(job, "deferred")[-1]["data"]["service"] == NAS
    elsewhere = enqueue({**request, "targets": ["local"]}).id
    assert system.finished(elsewhere)["outcome"] == "full"

    let_pass(system, timedelta(minutes=5))
    wait_for("a probe to find it down", lambda: breakers.load(system.db, NAS).breaker.openings == 2)
    flaky.switch(root).unlink()
    let_pass(system, timedelta(minutes=10))

    for job in jobs:
        shown = system.finished(job)
        assert shown["outcome"] == "full"
        assert {d["target"] for o in shown["outputs"] for d in o["deliveries"]} == {"nas", "local"}
        assert system.claims(job).count("clip") == 1
    assert state(system) == "closed"
