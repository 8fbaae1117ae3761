"""What if the process dies exactly here? For every point in the table: the job ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline import doctor
from pipeline.crashpoints import At
from pipeline.doctor import Severity
from pipeline.store import reads
from pipeline.store.engine import Database, database
from tests.stages import crashing
from tests.store.world import open_account, rows

PATIENCE_S = 60
BALANCE = 1000
OUTPUTS = 2  # a clip and its captions, a credit each
PAID = (("hold", 1), ("refund", 1), ("hold", 2), ("charge", 2))  # cancelled, asked for again, and made
ONCE = ("queued", "cancelled", "requeued:manual", "completed")
EVERY_VISIT = "IRONCLIP_EVERY_VISIT" in os.environ  # else the first and the last one of a life

# What takes minutes in production is over at once: who is dead is seen by the pid, what is lost by a marker.
QUICK = {
    "MARKER_GRACE_SEC": "0.001",
    "REPUBLISH_SEC": "0.05",
    "DATABASE_GRACE_SEC": "0",
    "HEARTBEAT_SEC": "1",
    "LOG_LEVEL": "ERROR",
}


@pytest.fixture
def world(env: dict[str, str], use: Callable[..., None]) -> dict[str, str]:
    use(**QUICK)
    open_account(database(), "ann", BALANCE)
    database().run(text("INSERT INTO credit_entries (account_id, kind, amount) VALUES ('ann', 'grant', :n)"), n=BALANCE)
    return {**env, **QUICK}


@pytest.fixture
def request_for(talkie: Path) -> dict[str, Any]:
    return {"source": str(talkie), "clips": [{"start": 0, "end": 2}], "captions": True, "account": "ann"}


def lived(env: dict[str, str], job: UUID, request: dict[str, Any]) -> int | None:
    """How a process ended that was to bring the job to its end."""
    process = crashing.live(env, job, request)
    process.join(PATIENCE_S)
    if process.is_alive():
        process.kill()
        pytest.fail("the process neither ended nor died")
    return process.exitcode


@pytest.fixture
def visits(world: dict[str, str], request_for: dict[str, Any], tmp_path: Path) -> Counter[str]:
    """How often each point is passed in a life without a death."""
    if not _visits:
        seen = tmp_path / "seen"
        assert lived({**world, "CRASH_SEEN": str(seen)}, uuid4(), request_for) == 0
        _visits.update(json.loads(seen.read_text()))
    return _visits


_visits: Counter[str] = Counter()


def test_a_life_passes_every_point_of_the_table(visits: Counter[str]) -> None:
    assert {point.said for point in At} - set(visits) == set()


@pytest.mark.parametrize("point", At, ids=lambda point: point.said)
def test_a_death_at_this_point_costs_nothing_but_time(
    world: dict[str, str], request_for: dict[str, Any], visits: Counter[str], point: At
) -> None:
    last = visits[point.said]
    for nth in range(1, last + 1) if EVERY_VISIT else sorted({1, last}):
        job = uuid4()

        fate = lived({**world, "IRONCLIP_CRASH_AT": f"{point.said}#{nth}"}, job, request_for)
        if fate != 0 or nth == 1:  # how often a duplicate comes by is not the same in each life
            assert fate == -signal.SIGKILL
            assert lived(world, job, request_for) == 0

        assert_all_is_well(database(), job, Path(world["OUTPUT_DIR"]), Path(world["SCRATCH_DIR"]))


def assert_all_is_well(db: Database, job: UUID, output: Path, scratch: Path) -> None:
    """The job ended, whole, once."""
    shown = reads.one(db, job)
    assert (shown["status"], shown["outcome"]) == ("completed", "full"), (shown["fail_code"], shown["last_error"])
    told = Counter((e["type"], e["stage"]) for e in reads.events(db, job))
    completed = {stage: n for (kind, stage), n in told.items() if kind == "stage_completed"}
    assert completed == dict.fromkeys(shown["plan"], 1)
    assert {n for (kind, _), n in told.items() if kind in ONCE} == {1}
    assert all(a["ended_at"] for a in reads.attempts(db, job))
    assert max(Counter((a["run"], a["stage"]) for a in reads.attempts(db, job)).values()) <= shown["max_attempts"]
    files = [path for path in (output / "jobs" / str(job)).rglob("*") if path.is_file()]
    seen = Counter(path.suffix for path in files if not path.name.startswith("."))
    assert seen == {".mp4": 1, ".json": 2, ".srt": 1, ".vtt": 1}
    paid = rows(db, "SELECT kind, run, amount FROM credit_entries WHERE job_id = :job", job=job)
    assert Counter((e["kind"], e["run"]) for e in paid) == dict.fromkeys(PAID, OUTPUTS)
    assert sum(e["amount"] for e in paid) == -OUTPUTS
    assert list(scratch.glob(f"jobs/{job}/**")) == []
    assert [b for b in doctor.examine(db, deep=True) if b.invariant.severity is Severity.ERROR] == []
