"""Which webhook endpoints are there, and what was sent to them? What operators look at and change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text

from pipeline.store.engine import Database
from pipeline.store.webhooks import Claimed, claimed_of

ADD = text("""
    INSERT INTO webhook_endpoints (id, url, secret, types, account_id)
    VALUES (:id, :url, :secret, CAST(:types AS text[]), :account)""")

LIST = text("""
    SELECT e.id, e.url, e.types, e.account_id, e.created_at, e.disabled_at,
           (SELECT count(*) FROM webhook_deliveries d WHERE d.endpoint_id = e.id AND d.status = 'pending') AS pending
      FROM webhook_endpoints e WHERE e.disabled_at IS NULL ORDER BY e.created_at""")

# Its history stays; what was still to be sent is given up with it.
REMOVE = text("""
    WITH gone AS (
        UPDATE webhook_endpoints SET disabled_at = clock_timestamp()
         WHERE id = :id AND disabled_at IS NULL RETURNING id),
    left_over AS (
        UPDATE webhook_deliveries d SET status = 'failed', last_error = 'the endpoint was removed', claimed_until = NULL
          FROM gone WHERE d.endpoint_id = gone.id AND d.status = 'pending')
    SELECT id FROM gone""")

HISTORY = text("""
    SELECT id, endpoint_id, type, origin, job_id, status, attempt_count, last_status, last_error, created_at,
           next_attempt_at, delivered_at
      FROM webhook_deliveries
     WHERE (CAST(:status AS text) IS NULL OR status = :status)
       AND (CAST(:endpoint AS uuid) IS NULL OR endpoint_id = :endpoint)
       AND (CAST(:job AS uuid) IS NULL OR job_id = :job)
     ORDER BY created_at DESC, id LIMIT :limit""")

REPLAY = text("""
    UPDATE webhook_deliveries
       SET status = 'pending', attempt_count = 0, next_attempt_at = clock_timestamp(), delivered_at = NULL,
           claimed_until = NULL
     WHERE id = :id OR (CAST(:id AS uuid) IS NULL AND status = 'failed' AND endpoint_id IS NOT DISTINCT FROM
                        coalesce(CAST(:endpoint AS uuid), endpoint_id))
    RETURNING id""")

TEST = text("""
    INSERT INTO webhook_deliveries (id, endpoint_id, type, payload, url, attempt_count, next_attempt_at, claimed_until)
    SELECT CAST(:id AS uuid), e.id, 'test', jsonb_build_object('id', CAST(:id AS text), 'type', 'test',
           'at', clock_timestamp()), e.url, 1, clock_timestamp() + CAST(:lease AS interval),
           clock_timestamp() + CAST(:lease AS interval)
      FROM webhook_endpoints e WHERE e.id = :endpoint AND e.disabled_at IS NULL
    RETURNING id, url, type, payload, attempt_count, account_id,
              (SELECT e.secret FROM webhook_endpoints e WHERE e.id = :endpoint) AS secret,
              extract(epoch FROM clock_timestamp())::bigint AS at""")

ONE = text("SELECT id, status, attempt_count, last_status, last_error FROM webhook_deliveries WHERE id = :id")

PRUNE = text("""
    DELETE FROM webhook_deliveries WHERE id IN (
        SELECT id FROM webhook_deliveries
         WHERE created_at < clock_timestamp() - CAST(:keep AS interval) AND status <> 'pending' LIMIT 1000)""")


def add(db: Database, url: str, secret: str, types: Sequence[str], account: str | None) -> UUID:
    """A new endpoint; its id."""
    endpoint = uuid4()
    db.run(ADD, id=endpoint, url=url, secret=secret, types=list(types), account=account)
    return endpoint


def known(db: Database) -> list[dict[str, Any]]:
    """Every endpoint that is sent to, without its secret."""
    return [dict(row._mapping) for row in db.run(LIST)]


def remove(db: Database, endpoint: UUID) -> bool:
    """Send it nothing more; False: there is no such one."""
    return bool(db.run(REMOVE, id=endpoint))


def history(
    db: Database,
    *,
    status: str | None = None,
    endpoint: UUID | None = None,
    job: UUID | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """The newest deliveries, without their payload and without the part of the address that may be secret."""
    rows = db.run(HISTORY, status=status, endpoint=endpoint, job=job, limit=limit)
    return [dict(row._mapping) for row in rows]


def replay(db: Database, *, delivery: UUID | None = None, endpoint: UUID | None = None) -> list[UUID]:
    """Send a delivery again, or all that were given up (of one endpoint); under the same ids."""
    return [row.id for row in db.run(REPLAY, id=delivery, endpoint=endpoint)]


def greeting(db: Database, endpoint: UUID, lease: timedelta) -> Claimed | None:
    """A delivery that only says hello, claimed for whoever asked; None: there is no such endpoint."""
    rows = db.run(TEST, id=uuid4(), endpoint=endpoint, lease=lease)
    return claimed_of(rows[0]) if rows else None


def outcome(db: Database, delivery: UUID) -> dict[str, Any]:
    return dict(db.run(ONE, id=delivery)[0]._mapping)


def prune(db: Database, keep: timedelta) -> None:
    """Forget deliveries that ended so long ago, some at a time."""
    db.run(PRUNE, keep=keep)
