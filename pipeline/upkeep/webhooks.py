"""webhooks: whoever wants to hear of something hears of it, at least once, sooner or later.

Deliveries are rows. A sender claims a few, of each origin only so many at once, so an endpoint that hangs holds up
nobody else; while it hangs, new ones are still looked for. What fails is tried again after a while that doubles; after
the last try it is given up with its reason, and can be replayed.
"""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from pipeline import log, metrics, settings
from pipeline import webhooks as wire
from pipeline.core import backoff
from pipeline.core.alerts import TEST
from pipeline.media import address
from pipeline.settings import Settings
from pipeline.store import endpoints
from pipeline.store import upkeep as runs
from pipeline.store import webhooks as rows
from pipeline.store.engine import Database, database
from pipeline.store.webhooks import Claimed
from pipeline.upkeep.alerts import relay

logger = log.get("webhooks")

AT_ONCE = 16
EACH = 4  # under way to one origin
BUDGET_S = 5.0  # upkeep holds nobody up for longer
LOOK_S = 0.5  # while something is under way
BASE, CAP = timedelta(seconds=10), timedelta(hours=1)


@dataclass(frozen=True)
class Sent:
    """What was done."""

    relayed: int = 0
    delivered: int = 0
    failed: int = 0


def webhooks() -> Sent:
    """Make deliveries of what happened, and send every one that is due."""
    db = database()
    runs.began(db, "webhooks")
    endpoints.prune(db, timedelta(days=settings.current().webhook_keep_days))
    done = _send_due(db, settings.current())
    runs.ended(db, "webhooks", {"relayed": done.relayed, "delivered": done.delivered, "failed": done.failed})
    return done


def _send_due(db: Database, now: Settings) -> Sent:
    """Send while there is something to send, and not for long: whoever still hangs then is left to its thread."""
    end, lease = time.monotonic() + BUDGET_S, _lease(now)
    relayed, under_way, ended = 0, set[Future[bool]](), set[Future[bool]]()
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhook")
    while time.monotonic() < end:
        news = relay(db)
        relayed += news
        room = AT_ONCE - len(under_way)
        for each in rows.claim(db, room, each=EACH, lease=lease) if room else ():
            under_way.add(pool.submit(_try, db, each, now))
        if not under_way and not news:
            break
        done, under_way = wait(under_way, LOOK_S, FIRST_COMPLETED)
        ended |= done
    pool.shutdown(wait=False)
    arrived = sum(each.result() for each in ended)
    return Sent(relayed, arrived, len(ended) - arrived)


def _try(db: Database, delivery: Claimed, now: Settings) -> bool:
    try:
        return send(db, delivery, now)
    except Exception:  # its claim runs out, and it is sent again
        logger.exception("webhook not written down", extra={"delivery": str(delivery.id)})
        return False


def _lease(now: Settings) -> timedelta:
    """Longer than a try takes, names that resolve slowly included."""
    return timedelta(seconds=3 * now.webhook_timeout_sec + 30)


def say_hello(db: Database, endpoint: UUID) -> dict[str, Any] | None:
    """Try an endpoint out at once; how that went. None: there is no such one."""
    now = settings.current()
    greeting = endpoints.greeting(db, endpoint, _lease(now))
    if greeting is None:
        return None
    send(db, greeting, now)
    return endpoints.outcome(db, greeting.id)


def send(db: Database, delivery: Claimed, now: Settings) -> bool:
    """One try; whether it arrived. How it went is written down."""
    try:
        status = _post(delivery, now)
    except wire.Undelivered as exc:
        _missed(db, delivery, exc, now)
        return False
    metrics.count("webhook_deliveries_total", result="delivered")
    return rows.delivered(db, delivery, status)


def _post(delivery: Claimed, now: Settings) -> int:
    secret = delivery.secret or (now.webhook_secret and wire.secret_of(now.webhook_secret, delivery.account))
    if not secret:
        raise wire.Undelivered("WEBHOOK_SECRET is not set, and nothing is sent unsigned")
    body = wire.encode(delivery.payload)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "ironclip",
        wire.DELIVERY: str(delivery.id),
        wire.TYPE: delivery.type,
        wire.SIGNATURE: wire.sign(secret, delivery.at, body),
    }
    exceptions = address.exceptions_of(now.webhook_allow_hosts)
    return wire.post(delivery.url, body, headers, timeout_s=now.webhook_timeout_sec, exceptions=exceptions)


def _missed(db: Database, delivery: Claimed, exc: wire.Undelivered, now: Settings) -> None:
    once = exc.final or delivery.type == TEST
    over = once or delivery.attempt >= now.webhook_max_tries
    again = None if over else backoff.delay(delivery.id, delivery.attempt, BASE, CAP)
    reason = f"given up after {delivery.attempt} tries: {exc.reason}" if over and not once else exc.reason
    metrics.count("webhook_deliveries_total", result="given_up" if over else "failed")
    told = {"delivery": str(delivery.id), "type": delivery.type, "attempt": delivery.attempt, "reason": reason}
    if over:
        logger.error("webhook given up", extra=told)
    else:
        logger.warning("webhook failed", extra=told)
    rows.not_delivered(db, delivery, reason, exc.status, again)
