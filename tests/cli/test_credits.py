"""Accounts are looked at and granted credits, and completed jobs made anew, from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline import intake
from pipeline.core.job import Job, OutputStatus
from pipeline.core.moves import Claim, Complete
from pipeline.core.output import File
from pipeline.store import jobs, outputs
from pipeline.store.engine import database

Type = Callable[..., Any]
GRANT = ("credits", "grant", "ann", "100", "--reference", "invoice 1")


@pytest.fixture
def asked(typed: Type, source: Path) -> UUID:
    """A job of ann's, who was granted 100."""
    typed(*GRANT)
    request = {"source": str(source), "clips": [{"end": 1}], "captions": False, "account": "ann"}
    return intake.enqueue(request).id


def test_without_accounts_there_is_nothing_to_see(typed: Type) -> None:
    assert typed("credits")[1] == "There are no accounts; `ironclip credits grant` opens one.\n"
    assert json.loads(typed("credits", "--json")[1]) == {"accounts": []}


def test_a_grant_is_granted_once(typed: Type) -> None:
    first, again = typed(*GRANT), typed(*GRANT, "--json")

    assert first == (0, "ann was granted 100; ann has 100.\n", "")
    assert json.loads(again[1])["granted"] is False
    assert typed(*GRANT)[1] == "invoice 1 was granted before; ann has 100.\n"


def test_what_was_granted_by_mistake_can_be_taken_back(typed: Type) -> None:
    typed(*GRANT)

    taken = typed("credits", "grant", "--reference", "mistake", "--note", "wrong account", "--", "ann", "-30")

    assert taken[1] == "ann was granted -30; ann has 70.\n"


def test_balances_and_entries_tell_what_is_held_and_for_what(typed: Type, asked: UUID) -> None:
    heading, line = typed("credits")[1].splitlines()
    shown = json.loads(typed("credits", "ann", "--json")[1])
    read = typed("credits", "ann", "--limit", 1)[1].splitlines()

    assert heading.split() == ["ACCOUNT", "BALANCE", "HELD", "SINCE"]
    assert line.split()[:3] == ["ann", "99", "1"]
    assert (shown["balance"], shown["held"], shown["before"]) == (99, 1, None)
    assert [(e["kind"], e["amount"], e["job_id"], e["output"]) for e in shown["entries"]] == [
        ("hold", -1, str(asked), "clip1-source"),
        ("grant", 100, None, None),
    ]
    assert read[0] == "ann has 99, and 1 held for jobs that are not finished."
    assert read[-1].startswith("Older ones: --before ")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["eve"], "UNKNOWN_ACCOUNT"),
        (["grant"], "BAD_ACCOUNT"),
        (["grant", "a b", "1", "--reference", "r"], "BAD_ACCOUNT"),
        (["grant", "ann", "--reference", "r"], "BAD_GRANT"),
        (["grant", "ann", "0", "--reference", "r"], "BAD_GRANT"),
        (["grant", "ann", "1.5", "--reference", "r"], "BAD_GRANT"),
        (["grant", "ann", "1"], "BAD_GRANT"),
    ],
    ids=str,
)
def test_what_cannot_be_done_ends_in_one_sentence(typed: Type, words: list[str], code: str) -> None:
    answered, out, err = typed("credits", *words)

    assert (answered, out) == (2, "")
    assert err.startswith(f"{code}: ")
    assert json.loads(typed("credits", "--json")[1]) == {"accounts": []}


def test_a_reference_that_means_something_else_and_an_overdraft_are_refused(typed: Type) -> None:
    typed(*GRANT)

    other = typed("credits", "grant", "bob", "100", "--reference", "invoice 1")
    overdraft = typed("credits", "grant", "--reference", "all of it", "--", "ann", "-101")

    assert other[2].startswith("IDEMPOTENCY_CONFLICT: ")
    assert overdraft[2].startswith("INSUFFICIENT_CREDITS: ")


# -- rerender --------------------------------------------------------------------------------------------------------


@pytest.fixture
def completed(asked: UUID) -> UUID:
    db = database()
    for stage in jobs.read(db, asked)[0].plan:
        fence = uuid4()
        held = jobs.apply(db, asked, Claim(stage=stage, holder="test", fence=fence, lease=timedelta(minutes=1)))
        assert isinstance(held, Job)
        for each in outputs.of(db, asked, 1):
            file = File(name="a-final.mp4", sha256="0" * 64, size=1)
            outputs.record(db, asked, fence, each.id, OutputStatus.COMPLETED, files=[file])
            outputs.delivered(db, asked, fence, each.id, "local", files=[{"key": "k", "url": "file:///k"}])
        jobs.apply(db, asked, Complete(fence=fence))
    return asked


def test_rerender_queues_a_completed_job_at_clip_and_holds_anew(typed: Type, completed: UUID) -> None:
    shown = json.loads(typed("rerender", str(completed)[:8], "--json")[1])

    assert (shown["status"], shown["stage"], shown["run"]) == ("queued", "clip", 2)
    assert "made anew by cli" in typed("logs", completed)[1]
    assert json.loads(typed("credits", "ann", "--json")[1])["held"] == 1


def test_rerender_of_one_quality_says_so_in_the_jobs_story(typed: Type, completed: UUID) -> None:
    assert typed("rerender", completed, "--quality", "source")[0] == 0

    (only,) = database().run(text("SELECT data->'only' AS only FROM job_events WHERE type = 'rerender'"))
    assert only.only == ["clip1-source"]


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--quality", "720p"], "UNKNOWN_QUALITY"), (["--transcription"], "NO_CAPTIONS")],
    ids=str,
)
def test_what_the_job_does_not_have_is_not_made_anew(typed: Type, completed: UUID, words: list[str], code: str) -> None:
    answered, _, err = typed("rerender", completed, *words)

    assert (answered, err.split(":")[0]) == (2, code)
    assert jobs.read(database(), completed)[0].run == 1


def test_a_job_that_is_not_completed_cannot_be_rerendered(typed: Type, asked: UUID) -> None:
    answered, _, err = typed("rerender", asked)

    assert answered != 0
    assert err == "NOT_ALLOWED_NOW: A job that is queued cannot be rerendered.\n"
