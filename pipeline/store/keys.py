"""Who may come in? Whoever shows a key whose hash we keep. The key itself is shown once and never stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text

from pipeline.core.errors import BadRequest, NoSuchKey
from pipeline.store.engine import Database

PREFIX = 8
BYTES = 32  # 256 bits
LONGEST = 200


class Role(StrEnum):
    CLIENT = "client"  # a web app: the jobs of one account
    OPERATOR = "operator"  # looks after all jobs, services and workers
    ADMIN = "admin"  # also keys, credits and recovery
    WORKER = "worker"  # a machine that works over HTTP


CREATE = text("""
    WITH account AS (
        INSERT INTO accounts (id) SELECT :account WHERE CAST(:account AS text) IS NOT NULL ON CONFLICT DO NOTHING)
    INSERT INTO api_keys (id, prefix, sha256, role, account_id, worker_id, name, created_by)
    VALUES (:id, :prefix, :sha256, :role, :account, :worker, :name, :by) RETURNING created_at""")

KEEP = text("""
    INSERT INTO api_keys (id, prefix, sha256, role, name, created_by)
    VALUES (:id, :prefix, :sha256, :role, :name, :by) ON CONFLICT (sha256) DO NOTHING""")

COLUMNS = "id, prefix, role, account_id, worker_id, name, created_by, created_at, last_used_at, revoked_at"

LIST = text(f"SELECT {COLUMNS} FROM api_keys ORDER BY created_at DESC, id LIMIT :limit")

# By what a key begins with; which of these it is, is decided without telling by the time that it takes.
KNOWN = text("""
    SELECT id, prefix, role, account_id, worker_id, sha256,
           coalesce(last_used_at, '-infinity') < clock_timestamp() - interval '1 min' AS unseen
      FROM api_keys WHERE prefix = :prefix AND revoked_at IS NULL""")

BY_ID = text("""
    SELECT id, prefix, role, account_id, worker_id, sha256, false AS unseen
      FROM api_keys WHERE id = :id AND revoked_at IS NULL""")

# At most once a minute and never waiting for anybody: nobody is kept out because of a note.
USED = text("""
    UPDATE api_keys SET last_used_at = clock_timestamp()
     WHERE id = (SELECT id FROM api_keys WHERE id = :id FOR UPDATE SKIP LOCKED)""")

REVOKE = text("""
    UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp())
     WHERE id::text = :given OR prefix = :given RETURNING id""")

LIVING = text("SELECT id FROM api_keys WHERE id = ANY (CAST(:ids AS uuid[])) AND revoked_at IS NULL")

SECRET = text("""
    WITH made AS (
        INSERT INTO signing_keys (name, secret) VALUES (:name, :fresh) ON CONFLICT DO NOTHING RETURNING secret)
    SELECT secret FROM made UNION ALL SELECT secret FROM signing_keys WHERE name = :name LIMIT 1""")


@dataclass(frozen=True, slots=True)
class Key:
    """A key that is valid now."""

    id: UUID
    prefix: str
    role: str
    account: str | None = None
    worker: UUID | None = None


def create(
    db: Database, role: str, *, account: str | None = None, name: str = "", by: str = "", worker: UUID | None = None
) -> tuple[Key, str]:
    """A new key and its text, which nobody can see again. An account that is not there yet is opened, empty."""
    if role == Role.CLIENT and account is None:
        raise BadRequest("ACCOUNT_REQUIRED", "A client's key needs an account.", field="account")
    if role in (Role.OPERATOR, Role.ADMIN) and account is not None:
        raise BadRequest("ACCOUNT_NOT_ALLOWED", "Operators and admins see every account.", field="account")
    shown = secrets.token_urlsafe(BYTES)
    key = Key(uuid4(), shown[:PREFIX], role, account, worker)
    told = {"id": key.id, "prefix": key.prefix, "role": role, "account": account, "worker": worker}
    db.run(CREATE, **told, sha256=_hash(shown), name=name[:LONGEST], by=by[:LONGEST])
    return key, shown


def keep(db: Database, shown: str, role: str, *, name: str, by: str) -> None:
    """See that this text is a key of that role; one that was revoked stays so."""
    db.run(KEEP, id=uuid4(), prefix=shown[:PREFIX], sha256=_hash(shown), role=role, name=name, by=by)


def find(db: Database, shown: str) -> Key | None:
    """The valid key that this text is; None if it is none."""
    digest = _hash(shown)
    for row in db.run(KNOWN, prefix=shown[:PREFIX]):
        if hmac.compare_digest(row.sha256, digest):
            if row.unseen:
                db.run(USED, id=row.id)
            return _key(row)
    return None


def by_id(db: Database, key: UUID) -> Key | None:
    """The key with this id, if it is still valid."""
    rows = db.run(BY_ID, id=key)
    return _key(rows[0]) if rows else None


def listed(db: Database, limit: int = 200) -> list[dict[str, Any]]:
    """All keys, newest first, revoked ones too; nothing that would open a door."""
    return [dict(row._mapping) for row in db.run(LIST, limit=limit)]


def revoke(db: Database, given: str) -> UUID:
    """End a key, named by its id or its first 8 characters; twice does no harm."""
    rows = db.run(REVOKE, given=given)
    if not rows:
        raise NoSuchKey(f"There is no key {given[:80]!r}.")
    return UUID(str(rows[0].id))


def living(db: Database, ids: list[UUID]) -> set[UUID]:
    """Which of these keys are still valid."""
    return {row.id for row in db.run(LIVING, ids=ids)}


def secret(db: Database, name: str) -> bytes:
    """What all processes sign with under this name: made once, kept in Postgres."""
    for _ in range(2):  # the first of two at once sees its own row, the second that of the first
        if rows := db.run(SECRET, name=name, fresh=secrets.token_hex(BYTES)):
            return bytes.fromhex(rows[0].secret)
    raise RuntimeError("a signing key vanished")


def _hash(shown: str) -> str:
    return hashlib.sha256(shown.encode()).hexdigest()


def _key(row: Any) -> Key:
    return Key(row.id, row.prefix, row.role, row.account_id, row.worker_id)
