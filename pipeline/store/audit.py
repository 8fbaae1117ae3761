"""What did operators do? A row for each act, written before it happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import text

from pipeline.store.engine import Database, dumps

NOTE = text("""
    INSERT INTO audit_log (key_id, by, act, data, request_id)
    VALUES (:key, :by, :act, CAST(:data AS jsonb), :request) RETURNING id""")

ADD = text("UPDATE audit_log SET data = data || CAST(:data AS jsonb) WHERE id = :id")

PAGE = text("""
    SELECT id, at, key_id, by, act, data, request_id FROM audit_log
     WHERE id < coalesce(CAST(:before AS bigint), 9223372036854775807) ORDER BY id DESC LIMIT :limit""")


def note(
    db: Database, act: str, *, by: str, key: UUID | None = None, data: Mapping[str, Any], request: str | None = None
) -> int:
    """Somebody is about to do this; the number of the act."""
    return int(db.run(NOTE, key=key, by=by, act=act, data=dumps(data), request=request)[0].id)


def add(db: Database, act: int, data: Mapping[str, Any]) -> None:
    """What else is to be known of it."""
    db.run(ADD, id=act, data=dumps(data))


def page(db: Database, *, before: int | None = None, limit: int = 50) -> list[dict[str, Any]]:
    """The newest acts, or those before one that was seen."""
    return [dict(row._mapping) for row in db.run(PAGE, before=before, limit=limit)]
