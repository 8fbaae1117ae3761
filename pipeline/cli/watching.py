"""How does one follow a job? `watch` draws how far it is, `logs` tells its story."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.cli import finding, say, words
from pipeline.cli.failing import OF_STATUS, Exit, end
from pipeline.cli.following import Stream, screen, sights, watch
from pipeline.cli.jobs import JobArgument
from pipeline.core.job import Status
from pipeline.store import reads

WATCHED = 500  # jobs at once


def watch_jobs(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="An id, or the beginning of one; else all.")
    ] = None,
    as_json: say.Json = False,
) -> None:
    """Watch a job, or all that have not ended, until they have: exit code 0 completed, 1 failed, 3 cancelled."""
    db = finding.connect()
    if job is not None:
        ids = [finding.job_id(db, job)]
    else:
        living = [reads.page(db, status=status, limit=WATCHED) for status in (Status.PROCESSING, Status.QUEUED)]
        ids = list({row["id"]: None for page in living for row in page})
    if not ids:
        if not as_json:
            say.line("No job is queued or running.")
        return
    with Stream() if as_json else screen(len(ids)) as shown:
        ended = watch(db, ids, shown)
    codes = {OF_STATUS[each.status] for each in ended.values()}
    end(next((code for code in (Exit.FAILED, Exit.CANCELLED) if code in codes), Exit.OK))


def logs(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    as_json: say.Json = False,
) -> None:
    """Tell a job's story, oldest first."""
    db = finding.connect()
    found = finding.job_id(db, job)
    reads.one(db, found)  # or there is no such job
    if follow:
        for sight in sights(db, [found]):
            _tell(sight.events, as_json=as_json)
        return
    after = 0
    while page := reads.events(db, found, after=after):
        _tell(page, as_json=as_json)
        after = page[-1]["id"]


def _tell(events: object, *, as_json: bool) -> None:
    assert isinstance(events, list)
    for event in events:
        if as_json:
            say.document({**event, "text": words.event(event)})
        else:
            say.line(f"{event['at'].astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"  {words.event(event)}")
