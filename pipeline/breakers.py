"""What may be done about a service's breaker, besides waiting? Trip it, or reset it; closing it wakes who waits."""

from __future__ import annotations

import re
from uuid import UUID

from pipeline import log
from pipeline.core.breaker import Breaker
from pipeline.core.errors import BadRequest
from pipeline.store import breakers, jobs
from pipeline.store.engine import Database, database

logger = log.get("breaker")

BROKER = "broker"
SERVICE = re.compile(r"broker|(?:source|target|asr):[^\s\0]{1,250}")


def trip(service: str, by: str) -> Breaker:
    """Let nobody ask the service for a while; then a probe tries it, as after any opening."""
    if not SERVICE.fullmatch(service):
        raise BadRequest(
            "BAD_SERVICE", f"{service[:80]!r} is no service: source:<host>, target:<name>, asr:<engine> or broker."
        )
    return breakers.trip(database(), service, by)


def reset(service: str, by: str) -> int:
    """Close the breaker and wake whoever waits for the service; how many those are."""
    db = database()
    if breakers.load(db, service).version == breakers.UNWRITTEN:
        raise BadRequest("NO_SUCH_BREAKER", f"No breaker is known for {service[:80]!r}.")
    breakers.reset(db, service, by)
    return wake(db, service)


def broker_failed(db: Database, occasion: UUID, said: str) -> None:
    """The broker did not take a message."""
    breakers.fault(db, BROKER, occasion, said)


def broker_is_back(db: Database) -> None:
    """It took one: no trial is needed."""
    breakers.reset(db, BROKER, by="sweep")


def close(db: Database, service: str, ticket: UUID) -> bool:
    """After a trial that found the service up: whether it closed the breaker, and so woke whoever waited."""
    closed = breakers.trial_succeeded(db, service, ticket)
    if closed:
        wake(db, service)
    return closed


def wake(db: Database, service: str) -> int:
    """End the wait of every job that waits for the service."""
    woken = jobs.wake(db, service)
    logger.info("jobs woken", extra={"service": service, "jobs": woken})
    return woken
