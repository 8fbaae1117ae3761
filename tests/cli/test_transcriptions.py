"""Transcriptions that belong to no job are looked at, ended and run again from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from pipeline.core.job import Job, Outcome, Stage
from pipeline.core.moves import Claim, Complete, Fail, HolderMove
from pipeline.store import asr, jobs
from pipeline.store.engine import database
from pipeline.store.jobs import Table

Type = Callable[..., Any]


@pytest.fixture
def waiting(typed: Type, source: Path) -> UUID:
    return started(typed, source)


def started(typed: Type, source: object) -> UUID:
    code, out, _ = typed("transcribe", source, "--no-wait", "--json")
    assert code == 0
    return UUID(json.loads(out)["id"])


def ended(asr_job: UUID, how: Callable[[UUID], HolderMove]) -> None:
    fence = uuid4()
    claim = Claim(stage=Stage.ASR, holder="test", fence=fence, lease=timedelta(minutes=1))
    for move in (claim, how(fence)):
        if isinstance(move, Complete):
            asr.transcribed(database(), asr_job, fence, {"text": "Hello there.", "language": "en"})
        assert isinstance(jobs.apply(database(), asr_job, move, table=Table.ASR_JOBS), Job)


def broken(fence: UUID) -> HolderMove:
    return Fail(fence=fence, code="SOURCE_UNREADABLE", reason="It is no film.")


def partly(fence: UUID) -> HolderMove:
    found = {"files": {"local": [{"url": "file:///there/a.srt"}]}, "refused": {"nas": "TARGET_REFUSED: full"}}
    return Complete(fence=fence, found=found, outcome=Outcome.PARTIAL)


def test_the_newest_come_first_and_a_status_or_a_number_chooses(typed: Type, waiting: UUID, source: Path) -> None:
    newer = started(typed, source)
    ended(waiting, broken)

    both, failed, one = (
        json.loads(typed("transcriptions", *words, "--json")[1])["transcriptions"]
        for words in ((), ("list", "--status", "failed"), ("list", "--limit", 1))
    )
    _, table, _ = typed("transcriptions")

    assert [row["id"] for row in both] == [str(newer), str(waiting)]
    assert [row["id"] for row in failed] == [str(waiting)]
    assert [row["id"] for row in one] == [str(newer)]
    assert [line.split("\t")[:2] for line in table.splitlines()[1:]] == [
        [str(newer)[:8], "queued"],
        [str(waiting)[:8], "failed"],
    ]
    assert typed("transcriptions", "--status", "completed") == (0, "No transcription is completed.\n", "")


def test_one_that_waits_says_why_and_hides_what_is_secret(typed: Type) -> None:
    asr_job = started(typed, "https://user:secret@example.org/f.mp3?token=hidden")

    code, shown, _ = typed("transcriptions", "show", str(asr_job)[:8])
    _, document, _ = typed("transcriptions", "show", asr_job, "--json")
    _, listed, _ = typed("transcriptions", "--json")

    sentence = "No live worker serves its queue media for asr: none was heard from within 90 s."
    assert code == 0
    assert sentence in shown
    assert "asr, 0 %, attempt 0 of 3" in shown
    told = json.loads(document)
    assert (told["why"], told["status"], told["source"]) == (sentence, "queued", "https://example.org/f.mp3")
    assert (told["files"], told["text"], told["attempts"]) == ({}, None, [])
    assert "fence" not in told
    assert not [word for word in ("secret", "hidden") if word in shown + document + listed]


def test_one_that_is_done_shows_its_text_where_it_lies_and_who_refused_it(typed: Type, waiting: UUID) -> None:
    ended(waiting, partly)

    _, shown, _ = typed("transcriptions", "show", waiting)
    told = json.loads(typed("transcriptions", "show", waiting, "--json")[1])
    again = json.loads(typed("transcriptions", "requeue", waiting, "--json")[1])

    assert "file:///there/a.srt" in shown
    assert "refused: TARGET_REFUSED: full" in shown
    assert "stage_completed" in shown
    assert shown.endswith("\n\nHello there.\n")
    assert (told["text"], told["language"], told["outcome"]) == ("Hello there.", "en", "partial")
    assert [attempt["ended_by"] for attempt in told["attempts"]] == ["stage_completed"]
    assert again == {"id": str(waiting), "status": "queued", "stage": "asr", "run": 2}


def test_one_that_failed_says_with_what(typed: Type, waiting: UUID) -> None:
    ended(waiting, broken)

    _, shown, _ = typed("transcriptions", "show", waiting)

    assert "asr: SOURCE_UNREADABLE: It is no film." in shown


def test_one_is_cancelled_and_run_again(typed: Type, waiting: UUID) -> None:
    cancelled = typed("transcriptions", "cancel", str(waiting)[:13], "--json")
    twice = typed("transcriptions", "cancel", waiting)
    again = typed("transcriptions", "requeue", waiting)
    too_early = typed("transcriptions", "requeue", waiting)

    assert (cancelled[0], json.loads(cancelled[1])["status"]) == (0, "cancelled")
    assert twice == (4, "", "NOT_ALLOWED_NOW: A transcription that is cancelled cannot be cancelled.\n")
    assert again == (0, f"Transcription {waiting} is queued at asr.\n", "")
    assert too_early == (4, "", "NOT_ALLOWED_NOW: A transcription that is queued cannot be requeued.\n")
    row, _ = jobs.read(database(), waiting, Table.ASR_JOBS)
    assert row.published_at is not None


@pytest.mark.parametrize("command", ["show", "why", "cancel", "requeue", "logs", "watch"])
def test_commands_for_jobs_name_the_right_one(typed: Type, waiting: UUID, command: str) -> None:
    short = str(waiting)[:12]

    sentence = f"NO_SUCH_JOB: {short} is not a job but a transcription: `ironclip transcriptions show {short}`.\n"
    assert typed(command, short) == (2, "", sentence)
    assert typed(command, waiting) == (2, "", sentence.replace(short, str(waiting)))


@pytest.mark.parametrize("act", ["show", "cancel", "requeue"])
def test_what_is_no_transcription_is_said_to_be_none(typed: Type, queued: UUID, act: str) -> None:
    none, job, bad, unsaid = (typed("transcriptions", act, *given) for given in ((UUID(int=1),), (queued,), ("%",), ()))

    assert none == (2, "", f"NO_SUCH_JOB: There is no transcription {UUID(int=1)}.\n")
    assert job == (2, "", f"NO_SUCH_JOB: {queued} is not a transcription but a job: `ironclip show {queued}`.\n")
    assert bad == (2, "", "NO_SUCH_JOB: '%' is not a transcription's id, nor the beginning of one.\n")
    assert unsaid[2].startswith("TRANSCRIPTION_REQUIRED: ")
    assert typed("transcriptions", act, "-", "--json")[0] == 2
