"""Jobs are handed in, looked at, cancelled and run again from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from pipeline.core.job import Job, Stage
from pipeline.core.moves import Claim, Fail
from pipeline.store import jobs
from pipeline.store.engine import database

Type = Callable[..., Any]


def test_submit_answers_with_the_id_of_a_job_that_is_published(ironclip: Type, source: Path) -> None:
    typed = ironclip("submit", source.name, "--clip", "00:00:01-2.5=intro", "--clip", "3-", "--quality", "720p",
                     "--no-captions", "--priority", "high", "--json", cwd=source.parent)  # fmt: skip
    shown = ironclip("show", typed.json["id"][:8], "--json").json

    assert typed.code == 0
    assert typed.err == ""
    assert (typed.json["status"], typed.json["published"]) == ("queued", True)
    assert shown["request"]["source"] == str(source)
    assert shown["request"]["clips"] == [
        {"name": "intro", "start": 1.0, "end": 2.5},
        {"name": "clip2", "start": 3.0, "end": None},
    ]
    assert shown["plan"] == ["resolve", "clip", "upload", "finalize"]
    assert [output["name"] for output in shown["outputs"]] == ["intro-720p", "clip2-720p"]
    assert "fence" not in shown


def test_options_complete_a_request_in_json(ironclip: Type, source: Path) -> None:
    request = json.dumps({"source": str(source), "clips": [{"end": 2}], "priority": "low"})

    typed = ironclip("submit", "--from-json", "-", "--priority", "high", "--json", stdin=request)

    assert typed.json["priority"] == "high"


def test_the_same_key_is_the_same_job_and_another_request_is_a_conflict(typed: Type, source: Path) -> None:
    first = typed("submit", source, "--clip", "1-2", "--idempotency-key", "k", "--json")
    again = typed("submit", source, "--clip", "1-2", "--idempotency-key", "k", "--json")
    other = typed("submit", source, "--clip", "1-3", "--idempotency-key", "k")

    assert json.loads(first[1])["id"] == json.loads(again[1])["id"]
    assert other[0] == 4
    assert other[2].startswith("IDEMPOTENCY_CONFLICT: ")


def test_a_job_is_accepted_while_the_broker_is_away(ironclip: Type, env: dict[str, str], source: Path) -> None:
    away = env | {"BROKER_URL": "redis://127.0.0.1:1/0"}

    typed = ironclip("submit", str(source), "--clip", "1-2", "--json", env=away)
    told = ironclip("submit", str(source), "--clip", "1-2", env=away)

    assert (typed.code, typed.json["status"], typed.json["published"]) == (0, "queued", False)
    assert "The broker is away" in told.out


def test_list_shows_the_newest_first_a_page_at_a_time(typed: Type, source: Path) -> None:
    ids = [json.loads(typed("submit", source, "--clip", f"1-{n}", "--json")[1])["id"] for n in (2, 3, 4)]

    first = json.loads(typed("list", "--limit", 2, "--json")[1])
    rest = json.loads(typed("list", "--before", first["before"], "--json")[1])
    none = json.loads(typed("list", "--status", "failed", "--json")[1])

    assert [job["id"] for job in first["jobs"]] == ids[:0:-1]
    assert [job["id"] for job in rest["jobs"]] == ids[:1]
    assert rest["before"] is None
    assert none == {"jobs": [], "before": None}
    assert typed("list", "--status", "asleep")[0] == 2


def test_what_people_read_names_the_job_and_its_outputs(typed: Type, queued: UUID) -> None:
    code, listed, _ = typed("list")
    _, shown, _ = typed("show", queued)
    _, told, _ = typed("logs", queued)

    assert code == 0
    assert str(queued)[:8] in listed
    assert str(queued) in shown
    assert "clip1-source" in shown
    assert told.rstrip().endswith("queued (normal priority)")


def test_a_job_is_cancelled_and_run_again_and_its_story_told(typed: Type, queued: UUID) -> None:
    cancelled = typed("cancel", str(queued)[:13], "--json")
    twice = typed("cancel", queued)
    watched = typed("watch", queued, "--json")
    requeued = typed("requeue", queued, "--stage", "resolve", "--json")
    story = [json.loads(line) for line in typed("logs", queued, "--json")[1].splitlines()]

    assert (cancelled[0], json.loads(cancelled[1])["status"]) == (0, "cancelled")
    assert twice[0] == 4
    assert twice[2] == "NOT_ALLOWED_NOW: A job that is cancelled cannot be cancelled.\n"
    assert watched[0] == 3
    assert json.loads(watched[1].splitlines()[-1])["status"] == "cancelled"
    assert (requeued[0], json.loads(requeued[1])) == (
        0,
        {"id": str(queued), "status": "queued", "stage": "resolve", "run": 2},
    )
    assert [event["type"] for event in story] == ["queued", "cancelled", "requeued:manual"]
    assert story[1]["data"]["by"].startswith("cli:")
    assert typed("requeue", queued)[0] == 4


def test_watching_a_job_that_fails_ends_with_1_and_says_why(typed: Type, queued: UUID) -> None:
    _fail(queued)

    code, out, _ = typed("watch", queued)
    _, shown, _ = typed("show", queued)
    followed = typed("logs", queued, "--follow")

    assert code == 1
    assert "SOURCE_UNREADABLE: It is no film." in out
    assert "SOURCE_UNREADABLE: It is no film." in shown
    assert followed[0] == 0


def test_watching_everything_ends_at_once_where_nothing_runs(typed: Type) -> None:
    assert typed("watch") == (0, "No job is queued or running.\n", "")
    assert typed("watch", "--json") == (0, "", "")


@pytest.mark.parametrize("command", ["show", "logs", "cancel", "watch", "requeue"])
@pytest.mark.parametrize("job", ["0" * 8, str(UUID(int=1)), "%", "not-an-id"])
def test_a_job_that_does_not_exist_is_said_to_be_none(typed: Type, queued: UUID, command: str, job: str) -> None:
    code, out, err = typed(command, job)
    as_json = typed(command, job, "--json")

    assert (code, out) == (2, "")
    assert err.startswith("NO_SUCH_JOB: ")
    assert as_json[0] == 2
    assert json.loads(as_json[1])["error"]["code"] == "NO_SUCH_JOB"


def test_credentials_in_a_source_are_never_shown(typed: Type) -> None:
    _, out, _ = typed("submit", "https://user:secret@example.org/f.mp4?token=hidden", "--clip", "1-2", "--json")
    job = json.loads(out)["id"]

    told = "".join(
        typed(*words)[1] for words in [("show", job), ("show", job, "--json"), ("list", "--json"), ("list",)]
    )

    assert "example.org/f.mp4" in told
    assert "secret" not in told
    assert "hidden" not in told


def _fail(job_id: UUID) -> None:
    fence = uuid4()
    claimed = jobs.apply(
        database(), job_id, Claim(stage=Stage.RESOLVE, holder="test", fence=fence, lease=timedelta(minutes=1))
    )
    assert isinstance(claimed, Job)
    jobs.apply(database(), job_id, Fail(fence=fence, code="SOURCE_UNREADABLE", reason="It is no film."))
