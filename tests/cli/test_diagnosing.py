"""What is wrong is asked for from the command line: of one job with `why`, of everything with `doctor`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline import intake, settings
from pipeline.core.job import Job, Stage, Status
from pipeline.core.moves import Claim
from pipeline.media import sample
from pipeline.runner import Delivery, run_stage
from pipeline.store import jobs, workers
from pipeline.store.engine import database

Type = Callable[..., Any]


def claim(job: UUID, worker: str) -> None:
    move = Claim(stage=Stage.RESOLVE, holder=worker, fence=uuid4(), lease=timedelta(minutes=5))
    assert isinstance(jobs.apply(database(), job, move), Job)


def a_worker() -> UUID:
    who = uuid4()
    told = {"name": "ironclip@a", "hostname": "a", "boot_id": None, "pid": 1, "pid_started": None}
    workers.register(database(), who, queues=["io", "media", "control"], slots=2, **told)
    return who


def late(job: UUID) -> None:
    """The lease of this job was over long ago."""
    database().run(text("UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 h' WHERE id = :id"), id=job)


# -- why -------------------------------------------------------------------------------------------------------------


def test_why_says_one_sentence_and_show_says_it_too(typed: Type, queued: UUID) -> None:
    code, out, err = typed("why", str(queued)[:8])
    _, shown, _ = typed("show", queued)
    _, as_json, _ = typed("show", queued, "--json")

    sentence = "No live worker serves its queue io for resolve: none was heard from within 90 s."
    assert (code, out, err) == (0, sentence + "\n", "")
    assert sentence in shown
    assert json.loads(as_json)["why"] == sentence


def test_why_gives_programs_a_code_and_the_facts(typed: Type, queued: UUID) -> None:
    claim(queued, str(a_worker()))

    told = json.loads(typed("why", queued, "--json")[1])

    assert (told["id"], told["code"]) == (str(queued), "running")
    assert told["sentence"].startswith("It runs resolve on ironclip@a ")
    assert (told["facts"]["worker"], told["facts"]["stage"], told["facts"]["attempt"]) == ("ironclip@a", "resolve", 1)


@pytest.mark.parametrize("job", ["0" * 8, str(UUID(int=1)), "not-an-id"])
def test_why_of_a_job_that_does_not_exist_ends_with_2(typed: Type, queued: UUID, job: str) -> None:
    code, out, err = typed("why", job)

    assert (code, out) == (2, "")
    assert err.startswith("NO_SUCH_JOB: ")


# -- doctor ----------------------------------------------------------------------------------------------------------


def test_doctor_finds_nothing_where_nothing_is_wrong(typed: Type) -> None:
    code, out, err = typed("doctor")
    as_json = typed("doctor", "--json")

    checked = json.loads(as_json[1])["checked"]
    assert (code, out, err) == (0, f"{checked} of {checked} invariants hold.\n", "")
    assert checked >= 20
    assert (as_json[0], json.loads(as_json[1])) == (0, {"clean": True, "checked": checked, "broken": []})


def test_doctor_tells_what_is_wrong_and_what_to_do_and_ends_with_1(typed: Type, queued: UUID) -> None:
    a_worker()
    claim(queued, "gone")
    late(queued)

    code, out, _ = typed("doctor")
    as_json = typed("doctor", "--json")

    assert code == 1
    assert "error leases_are_reaped\n  must be: A lease that is over" in out
    assert f"  {queued}  resolve by gone, over 36" in out
    assert "  to do: --repair runs the reaper" in out
    assert out.endswith("invariants hold.\n")
    told = json.loads(as_json[1])
    assert (as_json[0], told["clean"]) == (1, False)
    (broken,) = told["broken"]
    assert (broken["name"], broken["severity"], broken["repairable"], broken["repaired"]) == (
        "leases_are_reaped",
        "error",
        True,
        False,
    )
    assert [each["id"] for each in broken["found"]] == [str(queued)]
    assert jobs.read(database(), queued)[0].status is Status.PROCESSING


def test_doctor_repairs_when_asked_to_and_then_ends_with_0(
    typed: Type, queued: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_GRACE_SEC", "0")
    settings.current.cache_clear()
    a_worker()
    claim(queued, "gone")
    late(queued)

    code, out, _ = typed("doctor", "--repair")
    again = typed("doctor")

    assert code == 0
    assert "repaired leases_are_reaped" in out
    assert "1 of them after a repair" in out
    assert again[0] == 0
    assert jobs.read(database(), queued)[0].status is Status.QUEUED


def test_doctor_says_what_it_cannot_repair_and_ends_with_1(typed: Type, queued: UUID) -> None:
    database().run(text("DELETE FROM job_events"))
    a_worker()

    code, out, _ = typed("doctor", "--repair")

    assert code == 1
    assert "error stories_begin_with_queued" in out


def test_a_job_that_really_ran_leaves_nothing_wrong_and_a_missing_file_is_seen(
    typed: Type, env: dict[str, str], tmp_path: Path
) -> None:
    film = sample.make_sample(tmp_path / "film.mp4", seconds=4, size="320x240")
    request = {"source": str(film), "clips": [{"start": 0, "end": 2}], "captions": False}
    job = intake.enqueue(request).id
    a_worker()
    while (stage := jobs.read(database(), job)[0]).status is Status.QUEUED:
        run_stage(stage.stage, job, Delivery(worker="here", request_id=str(uuid4())))

    clean = typed("doctor", "--deep")
    why = json.loads(typed("why", job, "--json")[1])
    for file in Path(env["OUTPUT_DIR"]).rglob("*.mp4"):
        file.unlink()
    deep = json.loads(typed("doctor", "--deep", "--json")[1])

    assert clean[0] == 0, clean
    assert why["code"] == "completed"
    assert [each["name"] for each in deep["broken"]] == ["delivered_files_are_there"]
    assert typed("doctor")[0] == 0
