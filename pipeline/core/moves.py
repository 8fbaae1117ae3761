"""What can happen to a job, and what can be answered?

Each way on, out or back is one class here. `machine.transition` decides what it does, `store.jobs.apply` does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from pipeline.core.job import Job, Outcome, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A stage runner takes the job."""

    stage: Stage
    holder: str
    fence: UUID
    lease: timedelta
    request_id: str | None = None
    sla_factor: float | None = None
    burn_in_factor: float = 0.0
    has_others: bool = False  # other workers could run it too


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The holder finished its stage. The last stage says how complete the whole is."""

    fence: UUID
    found: Mapping[str, Any] = field(default_factory=dict)
    expected_duration: timedelta | None = None
    outcome: Outcome = Outcome.FULL


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The holder met an error that may pass."""

    fence: UUID
    code: str
    reason: str
    delay: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """The holder found a service down: nobody's fault, so it costs nothing but time."""

    fence: UUID
    code: str
    reason: str
    service: str
    delay: timedelta
    max_wait: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """The holder misses a file that an earlier stage made."""

    fence: UUID
    to: Stage
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The holder met an error that no retry can mend."""

    fence: UUID
    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The holder must stop before it could finish."""

    fence: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The process that ran the stage died; its parent saw it."""

    fence: UUID
    evidence: str


class Proof(StrEnum):
    """Why the reaper may take a lease away."""

    LEASE_EXPIRED = "lease_expired"
    WORKER_DEAD = "worker_dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """The reaper stops waiting for the holder."""

    proof: Proof = Proof.LEASE_EXPIRED
    fence: UUID | None = None  # the lease that the proof speaks about; None: whichever has expired
    limit: timedelta | None = None  # an execution that began longer ago is given up, whatever attempts are left


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """The stall check saw no progress for too long."""

    fence: UUID
    threshold: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """People want it no more."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """An operator wants it run again, from a stage (None: the one it stopped at) or only for what failed."""

    by: str
    stage: Stage | None = None
    failed_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerender:
    """People want it made anew; the old one stays until the new one is verified."""

    by: str
    only: tuple[str, ...] | None = None  # these outputs; None: all. The others are carried over as they are


HolderMove = Complete | Retry | Defer | Rewind | Fail | Release | Crash | Stall
Move = Claim | HolderMove | Expire | Cancel | Requeue | Rerender


# -- answers ---------------------------------------------------------------------------------------------------------


class Refusal(StrEnum):
    """Why a move does nothing."""

    HELD = "held"  # somebody runs it
    ALREADY_DONE = "already_done"  # this stage is behind it: the next link may go on
    TOO_EARLY = "too_early"  # this stage is not reached yet
    NOT_DUE = "not_due"  # it waits for its time
    ELSEWHERE = "elsewhere"  # it stood still here a moment ago: another worker should try
    FINISHED = "finished"  # nothing more is to be done
    LEASE_LOST = "lease_lost"  # the fence is not, or no longer, the row's
    STILL_ALIVE = "still_alive"  # neither expired nor stalled
    NOT_ALLOWED = "not_allowed"  # people asked for what this state does not offer


class Settlement(StrEnum):
    """What a transition means for the account that pays."""

    HOLD = "hold"
    SETTLE = "settle"  # charge what was delivered, give back the rest
    REFUND = "refund"


@dataclass(frozen=True, slots=True)
class Event:
    type: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Transition:
    """The job as it will be, what happened in words, and who pays."""

    job: Job
    events: tuple[Event, ...]
    settlement: Settlement | None = None
    only: tuple[str, ...] | None = None  # of a new generation: the outputs that are made anew; None: all
