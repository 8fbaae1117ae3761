"""May a stage ask this service, and how did it go?

Around every call of a service stands `asking`. An open breaker refuses the call before it is made. A fault of the
service is counted against it, once a job; an error of the job or its media is not. What we think of a service never
decides a job: if it cannot be written down, the job goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

from pipeline import log
from pipeline.core.breaker import blamed
from pipeline.core.errors import BreakerOpen, DatabaseUnavailable, IronclipError
from pipeline.store import breakers
from pipeline.store.engine import Database

logger = log.get("services")

SOON = timedelta(minutes=1)  # after a fault of a service that is not given up


def of_target(name: str) -> str:
    return f"target:{name}"


def of_asr(engine: str) -> str:
    return f"asr:{engine}"


def of_source(url: str) -> str:
    """The host as the download will name it."""
    # Only here: whoever enqueues needs no HTTP client.
    from httpx import URL

    return f"source:{URL(url).host}"


@contextmanager
def asking(db: Database, job_id: UUID, service: str) -> Iterator[None]:
    """Work that needs the service. BreakerOpen, before anything is done, while its breaker is not closed."""
    breaker = breakers.load(db, service).breaker
    if not breaker.lets_through():
        until = breaker.opens_at
        when = f"until {until:%Y-%m-%d %H:%M:%S %Z}" if until else "for now"
        raise BreakerOpen(f"{service} failed too often and is left alone {when}.", service=service, until=until)
    try:
        yield
    except IronclipError as exc:
        culprit, said = blamed(exc), exc.message  # after a redirect, another host than we asked
        if culprit is not None:
            _told(lambda: breakers.fault(db, culprit, job_id, said))
        raise
    _told(lambda: breakers.success(db, service))


def wait_for(db: Database, service: str | None) -> timedelta:
    """How long a job waits that found the service down: until it may be tried, or not for long."""
    if service is None:
        return SOON
    seen = breakers.load(db, service)
    if seen.breaker.lets_through() or seen.breaker.opens_at is None:
        return SOON
    # A trial that is due or under way decides within moments, and wakes whoever waits.
    left = seen.breaker.opens_at - seen.now
    return left if left > timedelta(0) else SOON


def _told(tell: Callable[[], object]) -> None:
    try:
        tell()
    except DatabaseUnavailable:
        logger.warning("breaker not told", exc_info=True)
