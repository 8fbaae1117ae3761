"""How does one ask for a job on the command line? With options, or with a request in JSON that options complete."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline import intake
from pipeline.cli import finding, say, words
from pipeline.cli.failing import OF_STATUS, end
from pipeline.cli.following import Silence, screen, watch
from pipeline.cli.jobs import shown_job
from pipeline.core.errors import BadRequest
from pipeline.core.job import Status
from pipeline.store import reads
from pipeline.store.engine import Database

CLIP = re.compile(r"(?P<start>[^-=]*)-(?P<end>[^=]*)(?:=(?P<name>.*))?")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def submit(
    source: Annotated[str | None, typer.Argument(help="A file, or an http(s) address.")] = None,
    clip: Annotated[
        list[str] | None,
        typer.Option(help="START-END[=NAME], in seconds or h:mm:ss; without an END, up to the source's. Repeatable."),
    ] = None,
    quality: Annotated[list[str] | None, typer.Option(help="source, 1080p, 720p ... Repeatable.")] = None,
    format: Annotated[list[str] | None, typer.Option(help="mp4 or hls. Repeatable.")] = None,  # noqa: A002
    thumbnail: Annotated[bool, typer.Option("--thumbnail", help="Make a picture of each clip.")] = False,
    target: Annotated[list[str] | None, typer.Option(help="Where the files go. Repeatable.")] = None,
    no_captions: Annotated[bool, typer.Option("--no-captions", help="Make no captions.")] = False,
    burn_in: Annotated[bool, typer.Option("--burn-in", help="Also a video with its captions in the picture.")] = False,
    no_precise: Annotated[bool, typer.Option("--no-precise", help="Cut at keyframes, without encoding.")] = False,
    language: Annotated[str | None, typer.Option(help="Of the speech, such as en.")] = None,
    priority: Annotated[str | None, typer.Option(help="high, normal or low.")] = None,
    account: Annotated[str | None, typer.Option(help="Who pays.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key and request is the same job.")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Runs of one stage at most.")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds that one run of a stage may take.")] = None,
    from_json: Annotated[str | None, typer.Option(metavar="FILE", help="A request in JSON; - for stdin.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Watch it until it has ended.")] = False,
    as_json: say.Json = False,
) -> None:
    """Ask for a job."""
    given = {
        "source": None if source is None else source_of(source),
        "clips": [_clip(text, n) for n, text in enumerate(clip)] if clip else None,
        "qualities": quality or None,
        "formats": format or None,
        "thumbnail": True if thumbnail else None,
        "targets": target or None,
        "captions": False if no_captions else None,
        "burn_in": burn_in or None,
        "precise": False if no_precise else None,
        "language": language,
        "priority": priority,
        "account": account,
        "max_attempts": max_attempts,
        "deadline_s": deadline,
    }
    request = _read(from_json) if from_json is not None else {}
    if isinstance(request, dict):
        request |= {name: value for name, value in given.items() if value is not None}
    db = finding.connect(broker=True)
    job = intake.enqueue(request, idempotency_key=idempotency_key)
    if wait:
        with Silence() if as_json else screen(1) as shown:
            ended = watch(db, [job.id], shown)[job.id]
        if as_json:
            say.document(shown_job(db, job.id))
        end(OF_STATUS[ended.status])
    _accepted(db, job.id, as_json=as_json)


def _accepted(db: Database, job_id: Any, *, as_json: bool) -> None:
    job = reads.one(db, job_id)
    is_sent = job["status"] != Status.QUEUED or job["published_at"] is not None
    if as_json:
        told = ("id", "status", "stage", "plan", "priority", "created_at")
        say.document({**{name: job[name] for name in told}, "published": is_sent})
        return
    say.line(f"Job {job['id']} is {job['status']}.")
    if not is_sent:
        say.line("The broker is away: the job is safe, and is sent as soon as it is back.")
    if job["status"] in (Status.QUEUED, Status.PROCESSING):
        say.line(f"See it move: ironclip watch {words.short(job['id'])}", "dim")


def source_of(text: str) -> str:
    """A file's name means the file in this folder: workers have another one."""
    return text if not text.strip() or SCHEME.match(text) else str(Path(text).absolute())


def _clip(text: str, n: int) -> dict[str, Any]:
    parts = CLIP.fullmatch(text.strip())
    if parts is None:
        raise BadRequest("BAD_CLIP", f"{text[:80]!r} is not START-END or START-END=NAME.", field=f"clips[{n}]")
    clip: dict[str, Any] = {"start": _time(parts["start"]) if parts["start"].strip() else 0}
    if parts["end"].strip():
        clip["end"] = _time(parts["end"])
    if parts["name"] is not None:
        clip["name"] = parts["name"]
    return clip


def _time(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # a clock time, or nonsense: the request's own rules say which


def _read(path: str) -> Any:
    """What a file of JSON holds."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        raise BadRequest("UNREADABLE_FILE", f"{path} cannot be read: {reason}.", field="--from-json") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise BadRequest("BAD_JSON", f"{path} is not JSON: {str(exc)[:200]}.", field="--from-json") from None
