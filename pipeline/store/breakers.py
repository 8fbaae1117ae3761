"""What does the whole fleet think of each service?

One row a service. `core.breaker` decides on a snapshot, and one statement writes it if nobody wrote in between; whoever
loses that race reads again and decides again. What changes nothing is not written: a service in good health costs one
read. Each opening and closing is told in the log, and the row keeps what was said last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from pipeline import log, metrics
from pipeline.core import breaker as rules
from pipeline.core.breaker import Breaker, State
from pipeline.store.engine import Database

logger = log.get("breaker")

RACES = 50  # who loses that often meets a bug, not bad luck
UNWRITTEN = -1  # the version of a row that is not there
SAID = 500  # characters of an error that the row keeps


@dataclass(frozen=True)
class Seen:
    """A breaker as it was at a moment of Postgres's clock."""

    breaker: Breaker
    version: int
    now: datetime


# -- looking ---------------------------------------------------------------------------------------------------------

# Unknown means healthy: a service without a row still answers with the time.
LOAD = text("""
    SELECT b.state, b.failures, b.openings, b.opens_at, b.trial, b.trial_expires_at, b.version, t.now
      FROM (SELECT clock_timestamp() AS now) t LEFT JOIN circuit_breakers b ON b.service = :service""")

TRIABLE = text("""
    SELECT service FROM circuit_breakers
     WHERE state = 'open' AND opens_at <= clock_timestamp()
        OR state = 'half_open' AND trial_expires_at <= clock_timestamp()
     ORDER BY coalesce(trial_expires_at, opens_at) LIMIT :limit""")

LIST = text("""
    SELECT b.service, b.state, cardinality(b.failures) AS failures, b.openings, b.opens_at, b.trial_expires_at,
           b.last_failure, b.updated_at, coalesce(w.waiting, 0) AS waiting
      FROM circuit_breakers b
      LEFT JOIN (SELECT waiting_on, count(*) AS waiting FROM jobs
                  WHERE status = 'queued' AND waiting_on IS NOT NULL GROUP BY 1) w ON w.waiting_on = b.service
     ORDER BY b.state = 'closed', b.service""")

# Nobody waits longer than an opening lasts, so older closings have nobody left to wake.
CLOSED_LATELY = text("""
    SELECT service FROM circuit_breakers
     WHERE state = 'closed' AND updated_at > clock_timestamp() - 2 * CAST(:longest AS interval)""")

# Any of them: one address that is broken for good must not speak for its whole host every time.
WAITING_SOURCE = text("""
    SELECT request->>'source' AS source FROM jobs
     WHERE status = 'queued' AND waiting_on = :service ORDER BY random() LIMIT 1""")


def load(db: Database, service: str) -> Seen:
    """The breaker of a service, and the time; one that nobody knows is closed."""
    row = db.run(LOAD, service=service)[0]
    if row.version is None:
        return Seen(Breaker(service=service), UNWRITTEN, row.now)
    known = Breaker(
        service=service,
        state=State(row.state),
        failures=tuple(row.failures),
        openings=row.openings,
        opens_at=row.opens_at,
        trial=row.trial,
        trial_expires_at=row.trial_expires_at,
    )
    return Seen(known, row.version, row.now)


def triable(db: Database, limit: int) -> list[str]:
    """The services that may be tried now, the one that has waited longest first."""
    return [row.service for row in db.run(TRIABLE, limit=limit)]


def closed_lately(db: Database) -> list[str]:
    """The services that somebody may still wait for although they are up."""
    return [row.service for row in db.run(CLOSED_LATELY, longest=rules.LONGEST_OPEN)]


def shown(db: Database) -> list[dict[str, Any]]:
    """All breakers as people see them, with the number of jobs that wait; those in trouble first."""
    return [dict(row._mapping) for row in db.run(LIST)]


def waiting_source(db: Database, service: str) -> str | None:
    """The source of some job that waits for this service."""
    rows = db.run(WAITING_SOURCE, service=service)
    return rows[0].source if rows else None


# -- changing --------------------------------------------------------------------------------------------------------


def fault(db: Database, service: str, job_id: UUID, said: str) -> Breaker:
    """A job met a fault of the service."""
    return _change(db, service, lambda seen: rules.fault(seen.breaker, job_id, seen.now), said=said)


def success(db: Database, service: str) -> Breaker:
    """The service did what a job asked of it."""
    return _change(db, service, lambda seen: rules.success(seen.breaker))


def begin_trial(db: Database, service: str, ticket: UUID) -> bool:
    """Whether the one trial of this service is ours; then nobody else may try until it is over or has expired."""
    # `or`: none may begin. If our own was written and only the answer was lost, the row says that it is ours.
    after = _change(db, service, lambda seen: rules.trial(seen.breaker, ticket, seen.now) or seen.breaker)
    return after.trial == ticket


def trial_succeeded(db: Database, service: str, ticket: UUID) -> bool:
    """The trial found the service up. Whether it closed the breaker: an older trial's word counts for nothing."""
    return _change(db, service, lambda seen: rules.trial_succeeded(seen.breaker, ticket)).lets_through()


def trial_failed(db: Database, service: str, ticket: UUID, said: str) -> Breaker:
    """The trial found the service down: open again, for longer."""
    return _change(db, service, lambda seen: rules.trial_failed(seen.breaker, ticket, seen.now), said=said)


def trip(db: Database, service: str, by: str) -> Breaker:
    """Somebody wants the service left alone; after a while it is tried like any other."""
    return _change(db, service, lambda seen: rules.opened(seen.breaker, seen.now), said=f"tripped by {by}")


def reset(db: Database, service: str, by: str) -> Breaker:
    """Somebody knows that the service is up."""
    return _change(db, service, lambda seen: rules.closed(seen.breaker), by=by)


# The version is the compare-and-set: it says that nobody wrote since we looked, also where there was no row.
WRITE = text("""
    INSERT INTO circuit_breakers AS b
           (service, state, failures, openings, opens_at, trial, trial_expires_at, last_failure, version)
    VALUES (:service, :state, CAST(:failures AS uuid[]), :openings, :opens_at, :trial, :trial_expires_at, :said,
            :seen_version + 1)
    ON CONFLICT (service) DO UPDATE
       SET state = excluded.state, failures = excluded.failures, openings = excluded.openings,
           opens_at = excluded.opens_at, trial = excluded.trial, trial_expires_at = excluded.trial_expires_at,
           last_failure = coalesce(excluded.last_failure, b.last_failure), version = excluded.version,
           updated_at = clock_timestamp()
     WHERE b.version = :seen_version
    RETURNING 1""")


def _change(
    db: Database, service: str, decide: Callable[[Seen], Breaker], *, said: str | None = None, by: str | None = None
) -> Breaker:
    """The breaker as the decision leaves it, written if that changes anything."""
    for _ in range(RACES):
        seen = load(db, service)
        after = decide(seen)
        if after == seen.breaker:
            return after
        if db.run(
            WRITE,
            service=service,
            state=after.state,
            failures=list(after.failures),
            openings=after.openings,
            opens_at=after.opens_at,
            trial=after.trial,
            trial_expires_at=after.trial_expires_at,
            said=None if said is None else said[:SAID],
            seen_version=seen.version,
        ):
            _tell(seen.breaker, after, said, by)
            return after
    raise RuntimeError(f"{RACES} lost races in a row for one breaker")


def _tell(before: Breaker, after: Breaker, said: str | None, by: str | None) -> None:
    if before.state is after.state:
        return
    match after.state:
        case State.OPEN:
            metrics.count("breaker_activations_total", kind=after.service.partition(":")[0])
            told = {"until": str(after.opens_at), "openings": after.openings, "reason": said}
            logger.warning("breaker opened", extra={"service": after.service, **told})
        case State.HALF_OPEN:
            logger.info("breaker on trial", extra={"service": after.service})
        case State.CLOSED:
            logger.info("breaker closed", extra={"service": after.service, "by": by or "trial"})
