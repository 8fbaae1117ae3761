"""Which webhook endpoints are there, and what was sent to them? What operators look at and change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text

from pipeline.core.errors import BadRequest
from pipeline.store.engine import Database, fetch
from pipeline.store.webhooks import Claimed, claimed_of

MOST = 20  # endpoints of one account: each of its jobs is told to all of them

# Whoever adds to an account waits here for others who do: the count is right.
ACCOUNT = text("SELECT id FROM accounts WHERE id = :account FOR NO KEY UPDATE")

COUNT = text("SELECT count(*) AS n FROM webhook_endpoints WHERE account_id = :account AND disabled_at IS NULL")

ADD = text("""
    INSERT INTO webhook_endpoints (id, url, secret, types, account_id)
    VALUES (:id, :url, :secret, CAST(:types AS text[]), :account)""")

LIST = text("""
    SELECT e.id, e.url, e.types, e.account_id, e.created_at, e.disabled_at,
           (SELECT count(*) FROM webhook_deliveries d WHERE d.endpoint_id = e.id AND d.status = 'pending') AS pending
      FROM webhook_endpoints e
     WHERE e.disabled_at IS NULL AND (CAST(:account AS text) IS NULL OR e.account_id = :account)
     ORDER BY e.created_at, e.id""")

# Its history stays; what was still to be sent is given up with it.
REMOVE = text("""
    WITH gone AS (
        UPDATE webhook_endpoints SET disabled_at = clock_timestamp()
         WHERE id = :id AND disabled_at IS NULL AND (CAST(:account AS text) IS NULL OR account_id = :account)
        RETURNING id),
    left_over AS (
        UPDATE webhook_deliveries d SET status = 'failed', last_error = 'the endpoint was removed', claimed_until = NULL
          FROM gone WHERE d.endpoint_id = gone.id AND d.status = 'pending')
    SELECT id FROM gone""")

# An account's: what went to its own endpoints, and the callbacks that its jobs named. Where operators are told of its
# jobs is theirs to know.
_OF_ACCOUNT = """(CAST(:account AS text) IS NULL OR (d.account_id = :account AND (d.endpoint_id IS NULL OR EXISTS (
           SELECT FROM webhook_endpoints e WHERE e.id = d.endpoint_id AND e.account_id = :account))))"""

# Keyset pages: newest first, then everything before the last one seen.
HISTORY = text(f"""
    SELECT d.id, d.endpoint_id, d.type, d.origin, d.job_id, d.status, d.attempt_count, d.last_status, d.last_error,
           d.created_at, d.next_attempt_at, d.delivered_at
      FROM webhook_deliveries d
     WHERE (CAST(:status AS text) IS NULL OR d.status = :status)
       AND (CAST(:endpoint AS uuid) IS NULL OR d.endpoint_id = :endpoint)
       AND (CAST(:job AS uuid) IS NULL OR d.job_id = :job) AND {_OF_ACCOUNT}
       AND (CAST(:at AS timestamptz) IS NULL OR (d.created_at, d.id) < (CAST(:at AS timestamptz), CAST(:seen AS uuid)))
     ORDER BY d.created_at DESC, d.id DESC LIMIT :limit""")

THERE = text(f"SELECT 1 FROM webhook_deliveries d WHERE d.id = :id AND {_OF_ACCOUNT}")

# Not to an endpoint that was removed, and not while it is being sent: two at once would count their tries as one.
REPLAY = text("""
    UPDATE webhook_deliveries d
       SET status = 'pending', attempt_count = 0, next_attempt_at = clock_timestamp(), delivered_at = NULL,
           claimed_until = NULL
     WHERE (d.id = :id OR (CAST(:id AS uuid) IS NULL AND d.status = 'failed' AND d.endpoint_id IS NOT DISTINCT FROM
                           coalesce(CAST(:endpoint AS uuid), d.endpoint_id)))
       AND coalesce(d.claimed_until, '-infinity') < clock_timestamp()
       AND NOT EXISTS (SELECT FROM webhook_endpoints e WHERE e.id = d.endpoint_id AND e.disabled_at IS NOT NULL)
    RETURNING d.id""")

TEST = text("""
    INSERT INTO webhook_deliveries (id, endpoint_id, account_id, type, payload, url, attempt_count, next_attempt_at,
                                    claimed_until)
    SELECT CAST(:id AS uuid), e.id, e.account_id, 'test', jsonb_build_object('id', CAST(:id AS text), 'type', 'test',
           'at', clock_timestamp()), e.url, 1, clock_timestamp() + CAST(:lease AS interval),
           clock_timestamp() + CAST(:lease AS interval)
      FROM webhook_endpoints e WHERE e.id = :endpoint AND e.disabled_at IS NULL
    RETURNING id, url, type, payload, attempt_count, claimed_until, account_id,
              (SELECT e.secret FROM webhook_endpoints e WHERE e.id = :endpoint) AS secret,
              extract(epoch FROM clock_timestamp())::bigint AS at""")

ONE = text("SELECT id, status, attempt_count, last_status, last_error FROM webhook_deliveries WHERE id = :id")

PRUNE = text("""
    DELETE FROM webhook_deliveries WHERE id IN (
        SELECT id FROM webhook_deliveries
         WHERE created_at < clock_timestamp() - CAST(:keep AS interval) AND status <> 'pending' LIMIT 1000)""")


def add(db: Database, url: str, secret: str, types: Sequence[str], account: str | None) -> UUID:
    """A new endpoint; its id. BadRequest if there is no such account, or it has as many as it may."""
    endpoint = uuid4()
    with db.transaction() as conn:
        if account is not None:
            if not fetch(conn.execute(ACCOUNT, {"account": account})):
                raise BadRequest("UNKNOWN_ACCOUNT", f"There is no account {account!r}.", field="account")
            if fetch(conn.execute(COUNT, {"account": account}))[0].n >= MOST:
                raise BadRequest("TOO_MANY_ENDPOINTS", f"An account has at most {MOST} endpoints.")
        told = {"id": endpoint, "url": url, "secret": secret, "types": list(types), "account": account}
        conn.execute(ADD, told)
    return endpoint


def known(db: Database, account: str | None = None) -> list[dict[str, Any]]:
    """Every endpoint (of an account) that is sent to, without its secret."""
    return [dict(row._mapping) for row in db.run(LIST, account=account)]


def remove(db: Database, endpoint: UUID, account: str | None = None) -> bool:
    """Send it nothing more; False: there is no such one (of this account)."""
    return bool(db.run(REMOVE, id=endpoint, account=account))


def history(
    db: Database,
    *,
    status: str | None = None,
    endpoint: UUID | None = None,
    job: UUID | None = None,
    account: str | None = None,
    seen: tuple[datetime, UUID] | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """The newest deliveries (of an account), or those before one that was seen by its time and id.

    Without their payload and without the part of the address that may be secret.
    """
    at, last = seen or (None, None)
    wanted = {"status": status, "endpoint": endpoint, "job": job, "account": account, "at": at, "seen": last}
    return [dict(row._mapping) for row in db.run(HISTORY, **wanted, limit=limit)]


def is_there(db: Database, delivery: UUID, account: str | None = None) -> bool:
    """Whether there is such a delivery (of this account)."""
    return bool(db.run(THERE, id=delivery, account=account))


def replay(db: Database, *, delivery: UUID | None = None, endpoint: UUID | None = None) -> list[UUID]:
    """Send a delivery again, or all that were given up (of one endpoint); under the same ids.

    Neither what is being sent in this moment nor what went to an endpoint that was removed.
    """
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
