"""What does the chore clear away, at targets and in scratch, and what does it leave alone?"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline import settings
from pipeline.core.errors import TargetDown
from pipeline.core.job import Status
from pipeline.delivery.file import FileTarget
from pipeline.store import breakers, engine, prune
from pipeline.store import doctor as asked
from pipeline.upkeep import prune as run_prune
from pipeline.upkeep import watch
from tests.store.endings import DAY, HOUR, LONG, assert_healthy, ended
from tests.store.world import (
    events,
    now_of,
    running,
    value,
)

Use = Callable[..., None]

# -- the chore -------------------------------------------------------------------------------------------------------


@pytest.fixture
def use(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Use:
    def change(**values: str) -> None:
        for name, told in values.items():
            monkeypatch.setenv(name, told)
        settings.current.cache_clear()

    return change


def put(env: dict[str, str], name: str, *, age: timedelta = LONG) -> Path:
    path = Path(env["OUTPUT_DIR"]) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    at = time.time() - age.total_seconds()
    os.utime(path, (at, at))
    return path


def test_what_nobody_refers_to_is_removed_and_a_job_that_we_do_not_know_is_not_touched(env: dict[str, str]):
    db = engine.database()
    job = ended(db)
    kept = put(env, f"jobs/{job.id}/g1/a.mp4")
    ghost, part = put(env, f"jobs/{job.id}/g2/late.mp4"), put(env, f"jobs/{job.id}/g1/.part-0123")
    strange = put(env, f"jobs/{uuid4()}/g1/a.mp4")

    done = run_prune()

    assert (done.tidied, done.removed) == (1, 2)
    assert [path.exists() for path in (kept, strange, ghost, part)] == [True, True, False, False]
    assert not ghost.parent.exists()
    assert run_prune().tidied == 0


def test_what_is_still_young_waits_and_the_job_with_it(env: dict[str, str]):
    job = ended(engine.database())
    young = put(env, f"jobs/{job.id}/g1/late.mp4", age=timedelta(minutes=30))

    first = run_prune()
    put(env, f"jobs/{job.id}/g1/late.mp4")
    second = run_prune()

    assert (first.tidied, first.removed, second.tidied, second.removed) == (0, 0, 1, 1)
    assert not young.exists()


def test_a_target_that_is_down_keeps_its_jobs_for_later_and_no_others(
    env: dict[str, str], use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    told = tmp_path / "targets.toml"
    told.write_text(f'[targets.nas]\nkind = "file"\npath = "{tmp_path}"\n')
    use(TARGETS_FILE=str(told))
    db = engine.database()
    away = [ended(db, request='{"targets": ["nas", "local"]}') for _ in range(3)]
    here = ended(db, ago=2 * HOUR)
    asked: list[str] = []
    tidy_really = FileTarget.tidy

    def tidy_or_not(self: FileTarget, *args: object) -> object:
        asked.append(self.name)
        if self.name == "nas":
            raise TargetDown("nas: gone", service="target:nas")
        return tidy_really(self, *args)

    monkeypatch.setattr(FileTarget, "tidy", tidy_or_not)

    done = run_prune()

    assert done.tidied == 1
    assert asked.count("nas") <= 1
    assert [each.id for each in prune.untidied(db, HOUR, None)] == [job.id for job in away]
    assert now_of(db, here).status is Status.COMPLETED


def test_a_target_that_its_breaker_takes_for_down_is_not_asked(env: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    db = engine.database()
    ended(db)
    for _ in range(5):
        breakers.fault(db, "target:local", uuid4(), "no")
    monkeypatch.setattr(FileTarget, "tidy", lambda *_: pytest.fail("it was asked"))

    assert run_prune().tidied == 0


def test_expired_files_are_deleted_and_then_the_job_is_forgotten(env: dict[str, str], use: Use):
    use(RETENTION_ARTIFACTS_DAYS="10", RETENTION_JOBS_DAYS="20", RETENTION_EVENTS_DAYS="5")
    db = engine.database()
    old, middle, young = ended(db), ended(db, ago=15 * DAY), ended(db, ago=7 * DAY)
    db.run(text("UPDATE deliveries d SET updated_at = j.finished_at FROM jobs j WHERE j.id = d.job_id"))
    files = {job.id: put(env, f"jobs/{job.id}/g1/a.mp4") for job in (old, middle, young)}

    done = run_prune()

    assert (done.expired, done.tidied, done.shortened, done.forgotten) == (2, 3, 3, 1)
    assert [files[job.id].exists() for job in (old, middle, young)] == [False, False, True]
    assert value(db, "SELECT count(*) FROM jobs") == 2
    assert_healthy(db)


def test_by_default_nothing_that_belongs_to_a_job_is_ever_forgotten(env: dict[str, str]):
    db = engine.database()
    job = ended(db)
    kept = put(env, f"jobs/{job.id}/g1/a.mp4")

    done = run_prune()

    assert (done.expired, done.shortened, done.forgotten) == (0, 0, 0)
    assert kept.exists()
    assert len(events(db, job)) == 6


# -- scratch ---------------------------------------------------------------------------------------------------------


def scratch_of(env: dict[str, str], job: UUID, fence: str = "f", *, age: timedelta = LONG) -> Path:
    path = Path(env["SCRATCH_DIR"]) / "jobs" / str(job) / fence
    path.mkdir(parents=True)
    (path / "a-work.mp4").write_bytes(b"x")
    at = time.time() - age.total_seconds()
    for each in (path / "a-work.mp4", path, path.parent):
        os.utime(each, (at, at))
    return path


def test_scratch_of_the_ended_and_the_unknown_is_cleared_and_that_of_the_living_is_not(env: dict[str, str]):
    db = engine.database()
    over, unknown = scratch_of(env, ended(db).id), scratch_of(env, uuid4())
    just_over = scratch_of(env, ended(db, ago=timedelta(minutes=5)).id)
    new, living = scratch_of(env, uuid4(), age=HOUR), scratch_of(env, running(db).id)

    assert run_prune().scratch == 2

    assert [path.parent.exists() for path in (over, unknown, just_over, new, living)] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_whoever_claims_a_job_while_its_scratch_is_cleared_keeps_his_own_folder(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    db = engine.database()
    job = ended(db)
    old = scratch_of(env, job.id, "old")
    really = asked.ended_for_s

    def and_then_it_is_claimed(*args: object) -> object:
        found = really(*args)
        scratch_of(env, job.id, "new")
        return found

    monkeypatch.setattr(asked, "ended_for_s", and_then_it_is_claimed)

    assert run_prune().scratch == 1

    assert not old.exists()
    assert (old.parent / "new" / "a-work.mp4").exists()


def test_every_worker_clears_the_scratch_of_its_own_machine(env: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    over = scratch_of(env, ended(engine.database()).id)
    monkeypatch.setattr(watch, "_cleared_at", float("-inf"))
    monkeypatch.setattr(watch, "overdue", list)

    watch.look()

    assert not over.exists()
