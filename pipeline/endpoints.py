"""Who may be told of what? What makes a webhook's endpoint one, wherever it is asked for."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pipeline import settings
from pipeline.core.alerts import ALERTS, CALLBACKS
from pipeline.core.errors import BadRequest
from pipeline.core.request import web_address
from pipeline.store import endpoints
from pipeline.store.engine import Database

KNOWN = (*CALLBACKS.values(), *ALERTS)


def add(db: Database, url: str | None, types: Sequence[str], account: str | None) -> tuple[UUID, str]:
    """A new endpoint and its secret, which nobody can see again; BadRequest for what cannot be one.

    Without types it hears of every alert; with an account, of the ends of its jobs.
    """
    if web_address(url) is None:
        raise BadRequest("BAD_WEBHOOK_URL", "An endpoint is an http(s) address without a password.", field="url")
    for each in types:
        if each not in KNOWN:
            raise BadRequest("UNKNOWN_WEBHOOK_TYPE", f"{each[:80]!r} is none of {', '.join(KNOWN)}.", field="types")
    if account is not None and not set(types) <= set(CALLBACKS.values()):
        told = "Alerts are for operators: an account hears of its jobs only."
        raise BadRequest("UNKNOWN_WEBHOOK_TYPE", told, field="types")
    hears = types or (list(CALLBACKS.values()) if account is not None else [])
    secret = secrets.token_hex(32)
    return endpoints.add(db, str(url), secret, hears, account), secret


def shown(db: Database, account: str | None = None) -> list[dict[str, Any]]:
    """Every endpoint (of an account) as it may be shown: no secret, and no query, which may be one."""
    return [{**each, "url": settings.without_secret(each["url"])} for each in endpoints.known(db, account)]
