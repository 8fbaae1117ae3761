"""What is said in a file? Its words with their times, as JSON, SRT and VTT, without making a job of it."""

from __future__ import annotations

import time
from typing import Annotated, Any
from uuid import UUID

import typer

from pipeline import intake
from pipeline.cli import finding, say
from pipeline.cli.failing import OF_STATUS, CommandFailed, end
from pipeline.cli.following import LOOK_EVERY_S, Screen, Sight, Silence, screen
from pipeline.cli.submit import source_of
from pipeline.core.job import Job, Status
from pipeline.store import asr, jobs, reads
from pipeline.store.engine import Database
from pipeline.store.jobs import Table


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
    row = asr.one(db, asr_job)
    found: dict[str, Any] = row.pop("context").get("asr", {})
    if as_json:
        said = row.pop("transcript") or {}
        say.document({**row, **found, "text": said.get("text"), "language": said.get("language")})
    elif row["status"] != Status.COMPLETED:
        say.line(f"Transcription {asr_job} is {row['status']}.")
    else:
        say.line(row["transcript"]["text"] or "Nothing is said.")
        for place in [each for files in found["files"].values() for each in files]:
            say.line(place["url"], "dim")
        for name, why in found["refused"].items():
            say.line(f"{name}: {why}", "yellow")
