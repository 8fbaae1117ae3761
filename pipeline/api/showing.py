"""How is a job shown to somebody outside? Without secrets, without paths of our machines, with links to its files."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from urllib.parse import quote
from uuid import UUID

from pipeline import why
from pipeline.api import links, models, sources
from pipeline.store import reads
from pipeline.store.engine import Database

EVENTS = 500


def whole(db: Database, job_id: UUID) -> models.WholeJob:
    """All that is known of a job."""
    told = without_secrets(reads.one(db, job_id))
    reason = asdict(why.why(db, job_id))
    return models.WholeJob(
        **{
            **told,
            "outputs": [_output(job_id, each) for each in told["outputs"]],
            "attempts": reads.attempts(db, job_id),
            "events": reads.last_events(db, job_id, EVENTS),
            "why": models.Why(**reason),
        }
    )


def without_secrets(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its source as it may be shown."""
    request = row["request"]
    return {**row, "request": {**request, "source": sources.shown(str(request.get("source", "")))}}


def _output(job: UUID, told: dict[str, Any]) -> models.Output:
    deliveries = told.pop("deliveries")
    files = [
        models.File(
            target=each["target"],
            key=file["key"],
            size=file["size"],
            sha256=file["sha256"],
            link=links.to(job, file["key"]),
        )
        for each in deliveries
        for file in each["files"]
    ]
    refused = [
        {name: each[name] for name in ("target", "error_code", "error_message")}
        for each in deliveries
        if each["status"] == "refused"
    ]
    newest = f"/api/jobs/{job}/outputs/{quote(told['name'], safe='')}/newest"
    return models.Output(**told, files=files, refused=refused, newest=newest)
