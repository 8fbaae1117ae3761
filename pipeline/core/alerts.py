"""What is worth telling somebody, and how often?

A job's ends are told to whoever asked for it (callbacks), each of them. What operators should know is an alert: of each
type at most one per cooldown. What came in between is counted and told when the cooldown is over, so nothing is hidden
for longer than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pipeline.core import errors

# What a job's callback can be about, by the event that it comes from.
CALLBACKS: Mapping[str, str] = {"completed": "job_completed", "failed": "job_failed", "cancelled": "job_cancelled"}

ALERTS: Mapping[str, str] = {
    "stale_job_recovered": "a job was taken from a worker that died or fell silent, and goes on elsewhere",
    "job_max_retries_exceeded": "a job has failed because its attempts or its time were used up",
    "job_failed_pattern": "several jobs failed for the same reason within minutes",
    "job_stalled": "a stage made no progress for too long and was stopped",
    "worker_startup": "a worker has started",
    "worker_shutdown": "a worker has stopped, or was found dead",
    "breaker_opened": "a service failed too often and is left alone for a while",
    "breaker_closed": "a service that was given up is back",
}
TEST = "test"

_OF_EVENT = {"requeued:stale": "stale_job_recovered", "stalled": "job_stalled"}
_SPENT = frozenset({errors.RETRIES_EXHAUSTED, errors.TIMEOUT, errors.WORKER_KILLER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """What the outbox says."""

    type: str
    at: datetime
    data: Mapping[str, Any] = field(default_factory=dict)
    job_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What an operator hears. `repeated`: so many more of the type were held back before it."""

    type: str
    at: datetime
    data: Mapping[str, Any]
    repeated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """When a type was last told, and what was held back since."""

    told_at: datetime
    held: int = 0
    last_held: Mapping[str, Any] | None = None


def alert_of(happened: Happening) -> Alert | None:
    """The alert that this is; None for what operators need not hear."""
    data = dict(happened.data) | ({"job_id": str(happened.job_id)} if happened.job_id else {})
    if happened.type in ALERTS:
        kind = happened.type
    elif happened.type == "failed" and happened.data.get("code") in _SPENT:
        kind = "job_max_retries_exceeded"
    else:
        kind = _OF_EVENT.get(happened.type, "")
    return Alert(type=kind, at=happened.at, data=data) if kind else None


def callback_of(happened: Happening) -> str | None:
    """The callback that this is. A transcription that stands alone has none."""
    return CALLBACKS.get(happened.type) if happened.data.get("table", "jobs") == "jobs" else None


def paced(
    alerts: Iterable[Alert], cooldowns: Mapping[str, Cooldown], now: datetime, span: timedelta
) -> tuple[list[Alert], dict[str, Cooldown]]:
    """What is told now, and the cooldowns afterwards."""
    after = dict(cooldowns)
    told = []
    for kind, cooling in cooldowns.items():
        if cooling.held and cooling.last_held is not None and cooling.told_at + span <= now:
            told.append(Alert(type=kind, at=now, data=cooling.last_held, repeated=cooling.held - 1))
            after[kind] = Cooldown(told_at=now)
    for alert in alerts:
        known = after.get(alert.type)
        if known is None or known.told_at + span <= now:
            told.append(alert)
            after[alert.type] = Cooldown(told_at=now)
        else:
            after[alert.type] = replace(known, held=known.held + 1, last_held=alert.data)
    return told, after
