"""Keys, sessions and the audit over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from pipeline import settings
from pipeline.api.access import Doors
from pipeline.api.caller import COOKIE, Asking, Caller, csrf_token, make_session
from pipeline.core.errors import NotAuthenticated
from pipeline.core.request import NAME
from pipeline.store import audit, keys
from pipeline.store.engine import database
from pipeline.store.keys import Role

router = Doors(tags=["keys"])

ACCOUNT = f"^{NAME.pattern}$"


class NewKey(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Role
    account: str | None = Field(default=None, pattern=ACCOUNT, description="Needed for clients: whose jobs they see.")
    name: str = Field(default="", max_length=200, description="What it is for.")


class KnownKey(BaseModel):
    id: UUID
    prefix: str
    role: Role
    account_id: str | None
    name: str
    created_by: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class Keys(BaseModel):
    keys: list[KnownKey]


class MadeKey(BaseModel):
    id: UUID
    prefix: str
    key: str = Field(description="Shown this once; only its hash is kept.")


class Login(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: str = Field(min_length=1, max_length=200)


class Me(BaseModel):
    """Who is asking."""

    role: Role
    account: str | None
    prefix: str
    csrf: str | None = Field(description="To be sent as X-CSRF-Token with every change, by browsers.")


class Act(BaseModel):
    id: int
    at: datetime
    by: str
    act: str
    data: dict[str, Any]
    request_id: str | None


class Acts(BaseModel):
    acts: list[Act]
    next: int | None = Field(description="`before` of the next page.")


@router.get("/api/keys", summary="Every key, without what it opens")
def list_keys() -> Keys:
    return Keys(keys=[KnownKey(**row) for row in keys.listed(database())])


@router.post("/api/keys", status_code=201, summary="Make a key")
def create(asking: Asking, wanted: NewKey) -> MadeKey:
    asking.means(role=wanted.role, account=wanted.account, name=wanted.name)
    key, shown = keys.create(database(), wanted.role, account=wanted.account, name=wanted.name, by=asking.name)
    return MadeKey(id=key.id, prefix=key.prefix, key=shown)


@router.delete("/api/keys/{key}", status_code=204, summary="Revoke a key")
def revoke(key: Annotated[str, Path(max_length=64, description="Its id or its first 8 characters.")]) -> None:
    keys.revoke(database(), key)


@router.get("/api/audit", summary="What operators and admins did")
def list_acts(
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> Acts:
    rows = audit.page(database(), before=before, limit=limit)
    return Acts(acts=[Act(**row) for row in rows], next=rows[-1]["id"] if len(rows) == limit else None)


@router.post("/api/session", summary="Log a browser in")
def log_in(login: Login, request: Request, response: Response) -> Me:
    """The cookie that this sets cannot be read by scripts and is sent to us alone."""
    request.app.state.buckets.take(f"login@{request.client.host if request.client else ''}")
    key = keys.find(database(), login.key)
    if key is None:
        raise NotAuthenticated("This API key is not valid.")
    life_s = settings.current().session_sec
    session = make_session(key, life_s)
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, session, max_age=int(life_s), httponly=True, samesite="strict", secure=secure, path="/")
    return _me(Caller(key, session))


@router.get("/api/session", summary="Who am I?")
def who_am_i(asking: Asking) -> Me:
    return _me(asking)


@router.delete("/api/session", status_code=204, summary="Log a browser out")
def log_out(request: Request, response: Response) -> None:
    secure = request.url.scheme == "https"
    response.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=secure, path="/")


def _me(asking: Caller) -> Me:
    csrf = None if asking.session is None else csrf_token(asking.session)
    return Me(role=Role(asking.key.role), account=asking.key.account, prefix=asking.key.prefix, csrf=csrf)
