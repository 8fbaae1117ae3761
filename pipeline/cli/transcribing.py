"""What is said in a file? Its words with their times, as JSON, SRT and VTT, without making a job of it.

Whoever does not wait for them finds the transcription again by its id.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import typer

from pipeline import intake
from pipeline.cli import finding, say, words
from pipeline.cli.failing import OF_STATUS, CommandFailed, end
from pipeline.cli.following import LOOK_EVERY_S, Screen, Sight, Silence, screen
from pipeline.cli.jobs import acted, how_far, tell_attempts, without_secrets
from pipeline.cli.submit import source_of
from pipeline.core.errors import BadRequest
from pipeline.core.job import Job, Status
from pipeline.store import asr, jobs, reads
from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from pipeline.why import why

NOUN = Table.ASR_JOBS.noun


class Act(StrEnum):
    LIST = "list"
    SHOW = "show"
    CANCEL = "cancel"
    REQUEUE = "requeue"


def transcribe(
    file: Annotated[str, typer.Argument(help="A file with sound, or an http(s) address.")],
    language: Annotated[str | None, typer.Option(help="Of the speech, such as en.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="Where the files go. Repeatable.")] = None,
    priority: Annotated[str | None, typer.Option(help="high, normal or low.")] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until it has ended.")] = False,
    as_json: say.Json = False,
) -> None:
    """Write down what is said in a file."""
    db = finding.connect(broker=True)
    born = intake.transcribe(source_of(file), language=language, targets=target or None, priority=priority)
    if no_wait:
        _told(db, born.id, as_json=as_json)
        return
    with Silence() if as_json else screen(1) as shown:
        ended = _watched(db, born.id, shown)
    if ended.status is Status.FAILED and not as_json:
        raise CommandFailed(f"{ended.fail_code}: {ended.fail_reason}")
    _told(db, born.id, as_json=as_json)
    end(OF_STATUS[ended.status])


def transcriptions(
    act: Annotated[Act, typer.Argument(help="What to do.")] = Act.LIST,
    which: Annotated[
        str | None, typer.Argument(metavar="ID", help="A transcription's id, or the beginning of one.")
    ] = None,
    status: Annotated[Status | None, typer.Option(help="List only these.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many to list.")] = 20,
    as_json: say.Json = False,
) -> None:
    """List the newest transcriptions that belong to no job; show one and why it is not running, end it, or run it
    again."""
    db = finding.connect(broker=act is Act.REQUEUE)
    if act is Act.LIST:
        _list(asr.newest(db, status=status, limit=limit), status, as_json=as_json)
        return
    if which is None:
        raise BadRequest("TRANSCRIPTION_REQUIRED", f"Which one does {act} mean? `ironclip transcriptions` lists them.")
    found = finding.job_id(db, which, Table.ASR_JOBS)
    if act is Act.SHOW:
        _show(db, found, as_json=as_json)
    elif act is Act.CANCEL:
        acted(intake.cancel(found, finding.me(), Table.ASR_JOBS), as_json=as_json, noun=NOUN)
    else:
        acted(intake.requeue_transcription(found, finding.me()), as_json=as_json, noun=NOUN)


def _list(rows: list[dict[str, Any]], status: Status | None, *, as_json: bool) -> None:
    seen = [_document(row) for row in rows]
    if as_json:
        say.document({"transcriptions": seen})
        return
    if not seen:
        say.line("There are no transcriptions." if status is None else f"No transcription is {status}.")
        return
    say.table(
        ("TRANSCRIPTION", "STATUS", "PROGRESS", "TRY", "CREATED", "SOURCE", "LAST ERROR"),
        [
            (
                words.short(row["id"]),
                row["status"],
                f"{row['progress']:.0f} %",
                f"{row['attempt_count']}/{row['max_attempts']}" if row["finished_at"] is None else None,
                row["created_at"],
                row["source"],
                words.first_line(row["last_error"]) or None,
            )
            for row in seen
        ],
    )


def _show(db: Database, asr_job: UUID, *, as_json: bool) -> None:
    attempts = reads.attempts(db, asr_job)
    told = {**_document(asr.one(db, asr_job)), "attempts": attempts, "why": why(db, asr_job, Table.ASR_JOBS).sentence}
    if as_json:
        say.document(told)
        return
    say.facts(
        [
            (NOUN, told["id"]),
            *((name, told[name]) for name in ("status", "why", "outcome", "source", "targets", "priority", "language")),
            *how_far(told),
            *((target, place["url"]) for target, places in told["files"].items() for place in places),
            *((target, f"refused: {reason}") for target, reason in told["refused"].items()),
        ]
    )
    tell_attempts(attempts)
    if told["text"]:
        say.line()
        say.line(told["text"])


def _watched(db: Database, asr_job: UUID, shown: Screen) -> Job:
    """Show it until it has ended."""
    told, seen = 0, None
    while True:
        job, _ = jobs.read(db, asr_job, Table.ASR_JOBS)
        if (job.version, job.progress) != seen:
            seen = (job.version, job.progress)
            events = reads.events(db, asr_job, after=told)
            told = events[-1]["id"] if events else told
            shown.show(Sight(job, events))
        if job.is_final:
            return job
        time.sleep(LOOK_EVERY_S)


def _told(db: Database, asr_job: UUID, *, as_json: bool) -> None:
    told = _document(asr.one(db, asr_job))
    if as_json:
        say.document(told)
    elif told["status"] != Status.COMPLETED:
        say.line(f"Transcription {asr_job} is {told['status']}.")
    else:
        say.line(told["text"] or "Nothing is said.")
        for place in [each for files in told["files"].values() for each in files]:
            say.line(place["url"], "dim")
        for name, reason in told["refused"].items():
            say.line(f"{name}: {reason}", "yellow")


def _document(row: dict[str, Any]) -> dict[str, Any]:
    """A transcription for programs: its row, what was found out, and its words where they were read."""
    told = {"files": {}, "refused": {}, **without_secrets(row)}
    request, found = told.pop("request"), told.pop("context").get("asr", {})
    said = told.pop("transcript", None) or {}
    told |= {name: request[name] for name in ("source", "targets")}
    return {**told, **found, "text": said.get("text"), "language": said.get("language") or request.get("language")}
