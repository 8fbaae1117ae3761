"""When do we stop asking a service, and when do we ask again?

Five service faults over distinct jobs open a breaker; bad media never counts. It stays open for five minutes, then
twice as long each time, up to a cap. When that time has passed, exactly one trial may be made; its success closes the
breaker, its failure opens it again. A trial that never reports back expires and blocks nobody. While a breaker is not
closed, only its trial and operators have a say: whoever began before it opened tells nothing new, good or bad.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from pipeline.core.errors import IronclipError, Kind

THRESHOLD = 5
FIRST_OPEN = timedelta(minutes=5)
LONGEST_OPEN = timedelta(hours=1)
TRIAL_TTL = timedelta(minutes=2)


class State(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """What the fleet thinks of one service. Unknown means healthy."""

    service: str
    state: State = State.CLOSED
    failures: tuple[UUID, ...] = ()  # distinct jobs that met a fault since the last success
    openings: int = 0  # in a row
    opens_at: datetime | None = None  # may be tried again from then on
    trial: UUID | None = None
    trial_expires_at: datetime | None = None

    def lets_through(self) -> bool:
        """Whether ordinary work may call the service."""
        return self.state is State.CLOSED

    def may_try(self, now: datetime) -> bool:
        """Whether one trial may begin now."""
        if self.state is State.OPEN:
            return self.opens_at is None or self.opens_at <= now
        return self.state is State.HALF_OPEN and (self.trial_expires_at is None or self.trial_expires_at <= now)


def blamed(error: IronclipError) -> str | None:
    """The service that is to blame for an error; None where the job, its media or our own machine is."""
    return None if error.kind is Kind.FAIL else error.service


def fault(breaker: Breaker, job_id: UUID, now: datetime) -> Breaker:
    """After a service fault that this job met."""
    if breaker.state is not State.CLOSED:
        return breaker
    failures = breaker.failures if job_id in breaker.failures else (*breaker.failures, job_id)
    if len(failures) < THRESHOLD:
        return replace(breaker, failures=failures)
    return opened(replace(breaker, failures=failures), now)


def success(breaker: Breaker) -> Breaker:
    """After the service did what ordinary work asked of it: the count begins anew."""
    return closed(breaker) if breaker.state is State.CLOSED else breaker


def closed(breaker: Breaker) -> Breaker:
    """Closed, with everything forgotten."""
    return Breaker(service=breaker.service)


def opened(breaker: Breaker, now: datetime) -> Breaker:
    """Open, each time twice as long as the last."""
    span = min(LONGEST_OPEN, FIRST_OPEN * 2 ** min(breaker.openings, 10))
    return replace(
        breaker,
        state=State.OPEN,
        openings=breaker.openings + 1,
        opens_at=now + span,
        trial=None,
        trial_expires_at=None,
    )


def trial(breaker: Breaker, ticket: UUID, now: datetime) -> Breaker | None:
    """With this trial under way, or None while none may begin."""
    if not breaker.may_try(now):
        return None
    return replace(breaker, state=State.HALF_OPEN, trial=ticket, trial_expires_at=now + TRIAL_TTL)


def trial_succeeded(breaker: Breaker, ticket: UUID) -> Breaker:
    """After that trial succeeded; an older trial's word counts for nothing."""
    return closed(breaker) if breaker.trial == ticket else breaker


def trial_failed(breaker: Breaker, ticket: UUID, now: datetime) -> Breaker:
    """After that trial failed; an older trial's word counts for nothing."""
    return opened(breaker, now) if breaker.trial == ticket else breaker
