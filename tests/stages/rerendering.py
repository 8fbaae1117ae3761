"""Words for tests of rerenders: a finished job, all that people see of it, and time that has passed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from pipeline import doctor
from pipeline.core.job import Stage
from pipeline.media import asr as engines
from pipeline.store import reads
from pipeline.store.engine import database
from pipeline.upkeep import prune
from pipeline.upkeep.prune import Pruned
from tests.stages.conftest import Runner
from tests.stages.crashing import Quick

QUALITIES = ["240p", "source"]
CLIP = [{"start": 0, "end": 1}]
STAGES = [Stage.CLIP, Stage.UPLOAD, Stage.FINALIZE]


@pytest.fixture
def finished(runner: Runner, silent: Path) -> UUID:
    job = runner.submit(silent, clips=CLIP, qualities=QUALITIES, captions=False)
    assert runner.finish(job)["outcome"] == "full"
    return job


@pytest.fixture
def away(tmp_path: Path, use: Callable[..., None]) -> Path:
    """The root of a second target that is there."""
    root, told = tmp_path / "mount", tmp_path / "targets.toml"
    root.mkdir()
    told.write_text(f'[targets.away]\nkind = "file"\npath = "{root}"\n')
    use(TARGETS_FILE=str(told))
    return root


@pytest.fixture
def quick_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "engine", lambda _settings: Quick())


def keys(job: UUID) -> dict[str, set[str]]:
    """Where the published outputs lie."""
    published = reads.newest_outputs(database(), job)
    return {o["name"]: {f["key"] for d in o["deliveries"] for f in d["files"]} for o in published}


def as_published(runner: Runner, job: UUID) -> dict[str, Any]:
    """All that people see of a completed job, and every object with its content."""
    shown = runner.show(job)
    seen = {name: shown[name] for name in ("status", "outcome", "generation", "building", "outputs", "fail_code")}
    return seen | {
        "finalize": shown["context"],
        "newest": reads.newest_outputs(database(), job),
        "objects": {path: path.read_bytes() for path in runner.objects() if "/g1/" in str(path)},
    }


def assert_healthy() -> None:
    broken = doctor.examine(database(), deep=True)

    assert {each.invariant.name: each.found for each in broken if each.invariant.name != "queues_are_served"} == {}


def clear_away(runner: Runner, job: UUID) -> Pruned:
    """Prune, as if everything had been there for hours."""
    database().run(text("UPDATE jobs SET finished_at = finished_at - interval '2 h' WHERE id = :id"), id=job)
    for path in runner.objects():
        os.utime(path, (1, 1))
    return prune()


def outputs_of(job: UUID) -> list[dict[str, Any]]:
    rows = database().run(text("SELECT * FROM outputs WHERE job_id = :id ORDER BY id"), id=job)
    return [dict(row._mapping) for row in rows]
