"""Who is to be told, what was to be told, and how did that go?

`relaying` turns the outbox into deliveries in one transaction: all of it or nothing, and one relay at a time in the
whole fleet. A sender claims deliveries for a short while; whoever dies with one leaves it to the next. The end of its
claim is its fence: a sender that comes back after another one, or after a replay, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, text

from pipeline.core.alerts import Cooldown, Happening
from pipeline.store.engine import Database, dumps, fetch

# -- what happened ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """One row of the outbox, and whom its job wants told."""

    id: int
    event_id: int | None
    happening: Happening
    account: str | None
    callback_url: str | None
    age_s: float | None  # of its job


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Somewhere to send things to. No types: all alerts. With an account: only its jobs' ends."""

    id: UUID
    url: str
    types: tuple[str, ...]
    account: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What one delivery carries, and where to."""

    url: str
    type: str
    payload: Mapping[str, Any]
    endpoint: UUID | None = None
    account: str | None = None
    job_id: UUID | None = None
    event_id: int | None = None


TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtext('ironclip relay')) AS mine, clock_timestamp() AS now")

TAKE = text("""
    SELECT o.id, o.type, o.job_id, o.event_id, o.data, o.at, j.account_id,
           extract(epoch FROM o.at - j.created_at)::float AS age_s,
           j.request->>'callback_url' AS callback_url
      FROM outbox o LEFT JOIN jobs j ON j.id = o.job_id ORDER BY o.id LIMIT :limit""")

FORGET = text("DELETE FROM outbox WHERE id = ANY (:ids)")

ENDPOINTS = text(
    "SELECT id, url, types, account_id FROM webhook_endpoints WHERE disabled_at IS NULL ORDER BY created_at"
)

COOLDOWNS = text("SELECT type, told_at, held, last_held FROM alert_cooldowns")

COOL = text("""
    INSERT INTO alert_cooldowns (type, told_at, held, last_held) VALUES (:type, :told_at, :held, CAST(:last AS jsonb))
    ON CONFLICT (type) DO UPDATE
       SET told_at = excluded.told_at, held = excluded.held, last_held = excluded.last_held""")

PATTERNS = text("""
    SELECT data->>'code' AS code, count(DISTINCT job_id) AS jobs, (array_agg(DISTINCT job_id::text))[1\\:5] AS examples
      FROM job_events
     WHERE type = 'failed' AND at > clock_timestamp() - CAST(:span AS interval)
     GROUP BY 1 HAVING count(DISTINCT job_id) >= :least ORDER BY 2 DESC""")

DELIVER = text("""
    INSERT INTO webhook_deliveries (id, endpoint_id, event_id, type, payload, url, account_id, job_id)
    VALUES (:id, :endpoint, :event_id, :type, CAST(:payload AS jsonb), :url, :account, :job_id)""")


class Relay:
    """The outbox, while it is ours to empty."""

    def __init__(self, conn: Connection, now: datetime) -> None:
        self._conn, self.now = conn, now

    def take(self, limit: int) -> list[Noted]:
        """The oldest that nobody has told yet."""
        return [_noted(row) for row in fetch(self._conn.execute(TAKE, {"limit": limit}))]

    def endpoints(self) -> list[Endpoint]:
        rows = fetch(self._conn.execute(ENDPOINTS))
        return [Endpoint(id=r.id, url=r.url, types=tuple(r.types), account=r.account_id) for r in rows]

    def cooldowns(self) -> dict[str, Cooldown]:
        rows = fetch(self._conn.execute(COOLDOWNS))
        return {r.type: Cooldown(told_at=r.told_at, held=r.held, last_held=r.last_held) for r in rows}

    def cool(self, after: Mapping[str, Cooldown]) -> None:
        for kind, cooling in after.items():
            last = None if cooling.last_held is None else dumps(cooling.last_held)
            told = {"type": kind, "told_at": cooling.told_at, "held": cooling.held, "last": last}
            self._conn.execute(COOL, told)

    def patterns(self, least: int, span: timedelta) -> list[dict[str, Any]]:
        """The codes by which at least so many jobs failed within the span, with a few of those jobs."""
        rows = fetch(self._conn.execute(PATTERNS, {"least": least, "span": span}))
        return [dict(row._mapping) for row in rows]

    def deliver(self, parcels: Iterable[Parcel]) -> None:
        for parcel in parcels:
            self._conn.execute(DELIVER, _columns(parcel, uuid4()))

    def forget(self, noted: Sequence[Noted]) -> None:
        self._conn.execute(FORGET, {"ids": [each.id for each in noted]})


@contextmanager
def relaying(db: Database) -> Iterator[Relay | None]:
    """The outbox; None while somebody else empties it."""
    with db.transaction() as conn:
        (row,) = fetch(conn.execute(TRY_LOCK))
        yield Relay(conn, row.now) if row.mine else None


def _noted(row: Any) -> Noted:
    happening = Happening(type=row.type, at=row.at, data=row.data, job_id=row.job_id)
    return Noted(
        id=row.id,
        event_id=row.event_id,
        happening=happening,
        account=row.account_id,
        callback_url=row.callback_url,
        age_s=row.age_s,
    )


def _columns(parcel: Parcel, delivery: UUID) -> dict[str, Any]:
    return {
        "id": delivery,
        "endpoint": parcel.endpoint,
        "event_id": parcel.event_id,
        "type": parcel.type,
        "payload": dumps({"id": str(delivery), "type": parcel.type, **parcel.payload}),
        "url": parcel.url,
        "account": parcel.account,
        "job_id": parcel.job_id,
    }


# -- sending ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A delivery that is ours to send, for a while. `at`: Postgres's time, in seconds, for the signature."""

    id: UUID
    url: str
    type: str
    payload: Mapping[str, Any]
    attempt: int
    claimed_until: datetime
    secret: str | None  # of its endpoint
    account: str | None
    at: int


# The origins are found by steps through the index; of each, the few that are due and have room. A claim moves the
# delivery's time on, so that it comes back by itself if its sender dies.
CLAIM = text("""
    WITH RECURSIVE t AS MATERIALIZED (SELECT clock_timestamp() AS now),
    origins AS (
        (SELECT origin FROM webhook_deliveries WHERE status = 'pending' ORDER BY origin LIMIT 1)
        UNION ALL
        SELECT (SELECT d.origin FROM webhook_deliveries d WHERE d.status = 'pending' AND d.origin > o.origin
                 ORDER BY d.origin LIMIT 1)
          FROM origins o WHERE o.origin IS NOT NULL),
    due AS MATERIALIZED (
        SELECT c.id FROM origins o CROSS JOIN t CROSS JOIN LATERAL (
            SELECT d.id, d.next_attempt_at FROM webhook_deliveries d
             WHERE d.status = 'pending' AND d.origin = o.origin AND d.next_attempt_at <= t.now
             ORDER BY d.next_attempt_at
             LIMIT greatest(0, :each - (SELECT count(*) FROM webhook_deliveries s
                                         WHERE s.origin = o.origin AND s.claimed_until > t.now))) c
         ORDER BY c.next_attempt_at LIMIT :limit),
    free AS (
        SELECT d.id FROM webhook_deliveries d
         WHERE d.id = ANY (ARRAY(SELECT id FROM due)) AND d.status = 'pending'
           AND d.next_attempt_at <= clock_timestamp()
         FOR UPDATE SKIP LOCKED)
    UPDATE webhook_deliveries d
       SET attempt_count = d.attempt_count + 1, claimed_until = clock_timestamp() + CAST(:lease AS interval),
           next_attempt_at = clock_timestamp() + CAST(:lease AS interval)
      FROM free WHERE d.id = free.id
    RETURNING d.id, d.url, d.type, d.payload, d.attempt_count, d.claimed_until, d.account_id,
              (SELECT e.secret FROM webhook_endpoints e WHERE e.id = d.endpoint_id) AS secret,
              extract(epoch FROM clock_timestamp())::bigint AS at""")

DELIVERED = text("""
    UPDATE webhook_deliveries
       SET status = 'delivered', delivered_at = clock_timestamp(), last_status = :status, last_error = NULL,
           claimed_until = NULL
     WHERE id = :id AND claimed_until = :claimed_until AND status = 'pending' RETURNING 1""")

NOT_DELIVERED = text("""
    UPDATE webhook_deliveries
       SET status = CASE WHEN CAST(:again AS interval) IS NULL THEN 'failed' ELSE 'pending' END,
           next_attempt_at = clock_timestamp() + coalesce(CAST(:again AS interval), interval '0'),
           last_status = :status, last_error = :error, claimed_until = NULL
     WHERE id = :id AND claimed_until = :claimed_until AND status = 'pending' RETURNING 1""")


def claim(db: Database, limit: int, *, each: int, lease: timedelta) -> list[Claimed]:
    """Deliveries to send now: at most `limit`, and never more than `each` under way to one origin."""
    return [claimed_of(row) for row in db.run(CLAIM, limit=limit, each=each, lease=lease)]


def claimed_of(row: Any) -> Claimed:
    return Claimed(
        id=row.id,
        url=row.url,
        type=row.type,
        payload=row.payload,
        attempt=row.attempt_count,
        claimed_until=row.claimed_until,
        secret=row.secret,
        account=row.account_id,
        at=row.at,
    )


def delivered(db: Database, sent: Claimed, status: int) -> bool:
    """It has arrived; False: somebody else has tried since."""
    return bool(db.run(DELIVERED, id=sent.id, claimed_until=sent.claimed_until, status=status))


def not_delivered(db: Database, sent: Claimed, error: str, status: int | None, again: timedelta | None) -> bool:
    """It has not arrived, and is tried again after a while; None: never again."""
    told = {"error": error[:500], "status": status, "again": again}
    return bool(db.run(NOT_DELIVERED, id=sent.id, claimed_until=sent.claimed_until, **told))
