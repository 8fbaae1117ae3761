"""How does a row become a `Job`, and a change of a `Job` a row?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from pipeline.core.job import Job, Lease, Outcome, Priority, Stage, Status
from pipeline.store.engine import dumps

LEASE_COLUMNS = {
    "holder": "locked_by",
    "fence": "fence",
    "request_id": "request_id",
    "expires_at": "lease_expires_at",
    "deadline_at": "deadline_at",
}
_PLAIN = [f.name for f in fields(Job) if f.name != "lease"]
COLUMNS = (*_PLAIN, *LEASE_COLUMNS.values())
_JSON = {"request", "context", "error_history"}
_SET_BY_CLAIM = {
    "lease_expires_at",
    "deadline_at",
    "processing_started_at",
    "last_heartbeat_at",
    "last_progress_update",
}
_READERS = {"status": Status, "stage": Stage, "outcome": Outcome, "priority": Priority}


def listed(table: str) -> str:
    """The columns of a Job, for a SELECT or RETURNING."""
    return ", ".join(f"{table}.{name}" for name in COLUMNS)


def job_of(row: Mapping[str, Any]) -> Job:
    """The Job that a row (with at least COLUMNS) describes."""
    plain = {name: row[name] for name in _PLAIN}
    for name, read in _READERS.items():
        plain[name] = None if plain[name] is None else read(plain[name])
    plain["plan"] = tuple(Stage(s) for s in plain["plan"])
    plain["error_history"] = tuple(plain["error_history"])
    lease = None
    if row["fence"] is not None:
        lease = Lease(**{name: row[column] for name, column in LEASE_COLUMNS.items()})
    return Job(**plain, lease=lease)


def columns_of(job: Job) -> dict[str, Any]:
    """The columns that describe a Job."""
    row = {name: getattr(job, name) for name in _PLAIN}
    for name, column in LEASE_COLUMNS.items():
        row[column] = None if job.lease is None else getattr(job.lease, name)
    row["plan"] = [str(stage) for stage in job.plan]
    row["error_history"] = list(job.error_history)
    return row


def assignments(before: Job, after: Job, now: datetime) -> tuple[list[str], dict[str, Any]]:
    """The SET clauses and parameters that turn one Job's row into the other's.

    Only what the move changed is written, so a heartbeat in between keeps what it wrote. A time that the move set is
    written as its distance from `now`, added to Postgres's own clock at the moment of writing. A claim writes all of
    its times, and a completed stage the time of its hint: one that equals the old row's is as far from a `now` that is
    as old as that row.
    """
    begins = after.lease is not None and after.fence != before.fence
    hinted = after.stage is not before.stage and after.published_at == now
    set_now = (_SET_BY_CLAIM if begins else set()) | ({"published_at"} if hinted else set())
    old, new = columns_of(before), columns_of(after)
    clauses: list[str] = []
    params: dict[str, Any] = {}
    for name, value in new.items():
        if value == old[name] and name not in set_now:
            continue
        if isinstance(value, datetime):
            clauses.append(f"{name} = clock_timestamp() + :{name}")
            params[name] = value - now
        elif name in _JSON:
            clauses.append(f"{name} = CAST(:{name} AS jsonb)")
            params[name] = dumps(value)
        else:
            clauses.append(f"{name} = :{name}")
            params[name] = str(value) if name in _READERS and value is not None else value
    return clauses, params
