"""What is known of a run when it is over? What was asked for, what the rows say, and what lies at the target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol, TypeVar

from pipeline.chaos.plan import Strike

COMPLETED = "stage_completed"


class OfJob(Protocol):
    @property
    def job(self) -> str: ...


T = TypeVar("T", bound=OfJob)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    job: str
    status: str
    stage: str
    plan: tuple[str, ...]
    outcome: str | None
    generation: int
    account: str | None
    attempt_count: int
    max_attempts: int
    fail_code: str | None = None
    fail_reason: str | None = None
    manifests: tuple[str, ...] = ()  # keys


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    job: str
    type: str
    stage: str
    back_to: str | None = None  # of a rewind
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One execution, from its claim to its end."""

    fence: str
    job: str
    run: int
    stage: str
    attempt: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    ended_by: str | None

    @property
    def completed(self) -> bool:
        return self.ended_by == COMPLETED

    def is_open_at(self, moment: datetime) -> bool:
        return self.started_at <= moment and (self.ended_at is None or self.ended_at > moment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A stage came to the end of its work, and said so outside of the database."""

    job: str
    run: int
    stage: str
    fence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Something that a holder wrote beside the row. `fence`: whose it is, where that is kept."""

    job: str
    what: str
    at: datetime
    fence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRow:
    job: str
    output: int
    name: str
    status: str
    generation: int
    price: int
    files: tuple[tuple[str, str], ...] = ()  # key and hash of what was delivered


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    job: str
    output: int
    account: str
    run: int
    kind: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One start of a worker."""

    id: str
    name: str
    pid: int
    registered_at: datetime
    stopped_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A fault as it came to pass. `pids`: the main processes of the workers that it met; `fence`: the lease, if one."""

    strike: Strike
    began_at: datetime
    ended_at: datetime
    what: str
    pids: tuple[int, ...] = ()
    fence: str | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class History:
    submitted: tuple[str, ...]
    jobs: tuple[JobRow, ...]
    events: tuple[EventRow, ...]  # in the order in which they were written
    attempts: tuple[Attempt, ...]
    effects: tuple[Effect, ...] = ()
    records: tuple[Record, ...] = ()
    outputs: tuple[OutputRow, ...] = ()
    entries: tuple[Entry, ...] = ()
    objects: Mapping[str, str] = field(default_factory=dict)  # key and true hash of whatever lies at the target
    granted: Mapping[str, int] = field(default_factory=dict)
    balances: Mapping[str, int] = field(default_factory=dict)
    workers: tuple[Incarnation, ...] = ()

    @cached_property
    def events_of(self) -> Mapping[str, list[EventRow]]:
        return by_job(self.events)

    @cached_property
    def attempts_of(self) -> Mapping[str, list[Attempt]]:
        """By job, the first one first."""
        return by_job(sorted(self.attempts, key=lambda each: each.started_at))


def by_job(rows: Iterable[T]) -> Mapping[str, list[T]]:
    """The rows of each job, in their order."""
    found: dict[str, list[T]] = defaultdict(list)
    for row in rows:
        found[row.job].append(row)
    return found


def document(struck: Struck, zero: datetime) -> dict[str, Any]:
    """A strike for a program to read."""
    return {
        "at_s": round((struck.began_at - zero).total_seconds(), 3),
        "lasted_s": round((struck.ended_at - struck.began_at).total_seconds(), 3),
        "fault": struck.strike.fault,
        "lane": struck.strike.lane,
        "what": struck.what,
        "error": struck.error,
    }
