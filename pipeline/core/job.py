"""What is a job?

A `Job` is what its row says, frozen at the moment it was read. Nobody changes one: `machine.transition` makes the
next one, and `store.jobs.apply` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID


class Status(StrEnum):
    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Stage(StrEnum):
    RESOLVE = "resolve"
    CLIP = "clip"
    UPLOAD = "upload"
    ASR = "asr"
    FINALIZE = "finalize"


class Outcome(StrEnum):
    """How complete a completed job is."""

    FULL = "full"
    PARTIAL = "partial"


class Priority(StrEnum):
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class OutputStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"  # does not apply to this source: no audio, quality above the source

    @property
    def is_final(self) -> bool:
        return self not in (OutputStatus.PENDING, OutputStatus.IN_PROGRESS)


FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to run one stage of one job.

    `fence` is new for every claim and never used again: whoever presents an old one can write nothing, anywhere.
    That is safety, and it needs no clock. `expires_at` is liveness only: it says when others may stop waiting for the
    holder. A holder that is late but was not yet reaped still has its fence, and may go on. `deadline_at` bounds this
    one execution: heartbeats push `expires_at` out, never past it. `request_id` names the delivery that runs it, so
    that a worker renews only what it is really running.
    """

    holder: str
    fence: UUID
    request_id: str | None
    expires_at: datetime
    deadline_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row of `jobs` (or `asr_jobs`), as far as the rules look at it."""

    id: UUID
    status: Status = Status.QUEUED
    stage: Stage
    plan: tuple[Stage, ...]  # the stages that apply to this job, in order
    version: int = 0  # raised by every move; heartbeats and progress leave it alone
    run: int = 1  # raised by requeue and rerender; ledger entries and fresh chains belong to one run
    generation: int = 0  # what is published; 0: nothing yet
    building: int = 1  # what this run makes
    outcome: Outcome | None = None
    priority: Priority = Priority.NORMAL
    recovery: bool = False  # came back from a dead worker: goes first
    request: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)  # what each finished stage found out

    lease: Lease | None = None
    processing_started_at: datetime | None = None
    last_heartbeat_at: datetime | None = None

    attempt_count: int = 0
    max_attempts: int = 3
    crash_count: int = 0
    release_count: int = 0
    rewind_count: int = 0

    next_earliest_run_at: datetime | None = None  # backoff
    skip_until: datetime | None = None  # waits for a service ...
    waiting_on: str | None = None  # ... this one ...
    first_deferred_at: datetime | None = None  # ... since then
    published_at: datetime | None = None  # a message was sent then; None: sweep must send one
    queue: str | None = None  # gpu: it was sent there; media: it came back from there; None: its stage's usual one

    progress: float = 0.0
    last_progress_value: float | None = None
    last_progress_update: datetime | None = None

    expected_duration_ms: int | None = None
    deadline_ms: int | None = None  # asked for by the request; wins over every factor

    fail_code: str | None = None
    fail_reason: str | None = None
    last_error: str | None = None
    error_history: tuple[Mapping[str, Any], ...] = ()
    finished_at: datetime | None = None

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def fence(self) -> UUID | None:
        return self.lease.fence if self.lease else None

    def due_at(self) -> datetime | None:
        """When it may run; None: at once."""
        return max((t for t in (self.next_earliest_run_at, self.skip_until) if t), default=None)

    def is_due(self, now: datetime) -> bool:
        due = self.due_at()
        return due is None or due <= now

    def has_done(self, stage: Stage) -> bool:
        """Whether this run has that stage behind it."""
        if stage not in self.plan:
            return True
        return self.plan.index(stage) < self.plan.index(self.stage)

    def next_stage(self) -> Stage | None:
        after = self.plan[self.plan.index(self.stage) + 1 :]
        return after[0] if after else None

    def remaining(self) -> tuple[Stage, ...]:
        """The stages that are still to run, this one first."""
        return self.plan[self.plan.index(self.stage) :]


SHORTEST_DEADLINE = timedelta(minutes=10)
UNKNOWN_DEADLINE = timedelta(hours=2)


def allowed_time(job: Job, sla_factor: float | None, burn_in_factor: float = 0.0) -> timedelta:
    """How long one execution may take: asked for, else expected duration x factor (at least 10 min), else 2 h.

    `burn_in_factor` joins where the request asks for captions in the picture.
    """
    if job.deadline_ms is not None:
        return timedelta(milliseconds=job.deadline_ms)
    if job.expected_duration_ms is None or sla_factor is None:
        return UNKNOWN_DEADLINE
    factor = sla_factor + (burn_in_factor if job.request.get("burn_in") else 0.0)
    return max(SHORTEST_DEADLINE, timedelta(milliseconds=job.expected_duration_ms * factor))
