"""How does one look at jobs, and act on them?"""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from pipeline import intake
from pipeline.cli import finding, say, words
from pipeline.core.job import Job, Stage, Status
from pipeline.media import source
from pipeline.store import reads
from pipeline.store.engine import Database
from pipeline.why import why

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or the beginning of one.")]


def list_jobs(
    status: Annotated[Status | None, typer.Option(help="Only these.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    before: Annotated[str | None, typer.Option(metavar="JOB", help="Those just before this one.")] = None,
    as_json: say.Json = False,
) -> None:
    """Show the newest jobs."""
    db = finding.connect()
    last = None if before is None else finding.job_id(db, before)
    page = [without_secrets(job) for job in reads.page(db, status=status, before=last, limit=limit)]
    if as_json:
        say.document({"jobs": page, "before": page[-1]["id"] if len(page) == limit else None})
        return
    if not page:
        say.line("There are no jobs." if status is None else f"No job is {status}.")
        return
    say.table(
        ("JOB", "STATUS", "STAGE", "PROGRESS", "TRY", "CREATED", "SOURCE", "LAST ERROR"),
        [
            (
                words.short(job["id"]),
                job["status"],
                job["stage"],
                f"{job['progress']:.0f} %",
                f"{job['attempt_count']}/{job['max_attempts']}" if job["finished_at"] is None else None,
                job["created_at"],
                job["request"]["source"],
                words.first_line(job["last_error"]) or None,
            )
            for job in page
        ],
    )
    if len(page) == limit:
        say.line(f"Older ones: --before {words.short(page[-1]['id'])}", "dim")


def show(job: JobArgument, as_json: say.Json = False) -> None:
    """Show everything about a job: outputs, where they were delivered, attempts."""
    db = finding.connect()
    found = finding.job_id(db, job)
    told = {**shown_job(db, found), "why": why(db, found).sentence}
    if as_json:
        say.document(told)
        return
    say.facts(_life(told))
    for output in told["outputs"]:
        say.line()
        say.facts(_output(output))
    tell_attempts(told["attempts"])


def cancel(job: JobArgument, as_json: say.Json = False) -> None:
    """Take a job away from whoever has it, and end it."""
    db = finding.connect()
    acted(intake.cancel(finding.job_id(db, job), finding.me()), as_json=as_json)


def requeue(
    job: JobArgument,
    stage: Annotated[Stage | None, typer.Option(help="Where to begin; else where it stopped.")] = None,
    failed_only: Annotated[bool, typer.Option("--failed-only", help="Only the outputs that failed.")] = False,
    as_json: say.Json = False,
) -> None:
    """Run a job again that failed or was cancelled."""
    db = finding.connect(broker=True)
    found = finding.job_id(db, job)
    acted(intake.requeue(found, finding.me(), stage=stage, failed_only=failed_only), as_json=as_json)


def rerender(
    job: JobArgument,
    quality: Annotated[list[str] | None, typer.Option(help="Only this one; may be given many times.")] = None,
    transcription: Annotated[bool, typer.Option("--transcription", help="Only the captions.")] = False,
    as_json: say.Json = False,
) -> None:
    """Make a completed job anew. What is published stays until the new one is verified at every target."""
    db = finding.connect(broker=True)
    found = finding.job_id(db, job)
    again = intake.rerender(found, finding.me(), qualities=quality or (), transcription=transcription)
    acted(again, as_json=as_json)


def shown_job(db: Database, job_id: UUID) -> dict[str, Any]:
    """A job with its outputs, deliveries and attempts."""
    return without_secrets({**reads.one(db, job_id), "attempts": reads.attempts(db, job_id)})


def without_secrets(job: dict[str, Any]) -> dict[str, Any]:
    """A row as it may be shown."""
    return {**job, "request": {**job["request"], "source": source.shown(job["request"]["source"])}}


def acted(job: Job, *, as_json: bool, noun: str = "job") -> None:
    """Say what became of a job."""
    if as_json:
        say.document({"id": job.id, "status": job.status, "stage": job.stage, "run": job.run})
    else:
        say.line(f"{noun.capitalize()} {job.id} is {job.status}{f' at {job.stage}' if not job.is_final else ''}.")


def _life(job: dict[str, Any]) -> list[tuple[str, object]]:
    """What a person asks first; the rest is in --json."""
    rows: list[tuple[str, object]] = [
        ("job", job["id"]),
        ("status", job["status"]),
        ("why", job["why"]),
        ("outcome", job["outcome"]),
        ("generation", _generations(job["generation"], job["building"])),
        ("source", job["request"]["source"]),
        ("clips", [f"{c['name']} {c['start']:g}-{c.get('end') or 'end'}" for c in job["request"]["clips"]]),
        ("stages", " > ".join(job["plan"])),
        ("account", job["account_id"]),
        ("priority", job["priority"]),
        *how_far(job),
    ]
    manifests = job["context"].get("finalize", {}).get("manifest", {})
    return rows + [("manifest", url) for url in manifests.values()]


def how_far(job: dict[str, Any]) -> list[tuple[str, object]]:
    """When it began and ended, who has it or what it waits for, and what went wrong."""
    rows: list[tuple[str, object]] = [("created", job["created_at"]), ("finished", job["finished_at"])]
    if job["status"] in (Status.QUEUED, Status.PROCESSING):
        rows += [
            (
                "stage",
                f"{job['stage']}, {job['progress']:.0f} %, attempt {job['attempt_count']} of {job['max_attempts']}",
            ),
            ("worker", job["locked_by"]),
            ("lease until", job["lease_expires_at"]),
            ("waits for", job["waiting_on"]),
            ("not before", job["skip_until"] or job["next_earliest_run_at"]),
        ]
    if job["fail_code"]:
        rows.append(("failed", f"{job['stage']}: {job['fail_code']}: {job['fail_reason']}"))
    return [*rows, ("last error", words.first_line(job["last_error"]))]


def _generations(published: int, building: int) -> str | None:
    """Only a job that was made anew has a story to tell of them."""
    if published in (0, building):
        return str(published) if published > 1 else None
    return f"{published} is published, {building} is being made"


def _output(output: dict[str, Any]) -> list[tuple[str, object]]:
    facts = output["facts"]
    rows: list[tuple[str, object]] = [("output", output["name"]), ("  status", output["status"])]
    rows += [
        (f"  {name}", facts[name]) for name in ("mode", "duration_s", "words", "language", "skipped") if name in facts
    ]
    if output["error_code"]:
        rows.append(("  error", f"{output['error_code']}: {words.first_line(output['error_message'])}"))
    for delivery in output["deliveries"]:
        rows += [(f"  {delivery['target']}", file["url"]) for file in delivery["files"]]
        if delivery["status"] == "refused":
            rows.append((f"  {delivery['target']}", f"refused: {delivery['error_code']}: {delivery['error_message']}"))
    return rows


def tell_attempts(attempts: list[dict[str, Any]]) -> None:
    """Every execution, one a line."""
    if attempts:
        say.line()
        say.table(
            ("STAGE", "TRY", "STARTED", "SECONDS", "ENDED BY", "WORKER"),
            [(a["stage"], a["attempt"], a["started_at"], _seconds(a), a["ended_by"], a["worker"]) for a in attempts],
        )


def _seconds(attempt: dict[str, Any]) -> float | None:
    ended = attempt["ended_at"]
    return None if ended is None else round((ended - attempt["started_at"]).total_seconds(), 2)
