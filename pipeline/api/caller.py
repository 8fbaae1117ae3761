"""Who is asking? A key in a header, or the session that a browser got for one.

A session is a signed note of a key's id and an end; the key is looked up each time, so revoking it ends both. Browsers
send cookies by themselves, so whatever changes something also needs a token that only our own pages can read.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Request

from pipeline import settings
from pipeline.api.rate import Buckets
from pipeline.core.errors import CsrfFailed, Forbidden, NotAuthenticated
from pipeline.store import audit, keys
from pipeline.store.engine import database
from pipeline.store.keys import Key

COOKIE = "ironclip_session"
CSRF_HEADER = "x-csrf-token"
HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})
SESSION = "session"
STAFF = frozenset({"operator", "admin"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever asks, with a valid key."""

    key: Key
    session: str | None = None  # set if a browser asks
    act: int | None = None  # what is written down of this, if it is

    @property
    def name(self) -> str:
        """As it stands in a job's story and in the audit."""
        return f"{self.key.role}:{self.key.prefix}"

    @property
    def account(self) -> str | None:
        """The only account whose jobs it may see; None: all of them."""
        return self.key.account if self.key.role == "client" else None

    @property
    def is_staff(self) -> bool:
        return self.key.role in STAFF

    def means(self, **data: Any) -> None:
        """Write down what the address of the request does not say; call it before doing it."""
        if self.act is not None:
            audit.add(database(), self.act, {name: told for name, told in data.items() if told not in (None, "")})


def identify(request: Request) -> Caller:
    """The caller, or NotAuthenticated."""
    shown = _shown_key(request)
    if shown is not None:
        key = keys.find(database(), shown) if 0 < len(shown) <= keys.LONGEST else None
        if key is None:
            raise NotAuthenticated("This API key is not valid.")
        return Caller(key)
    session = request.cookies.get(COOKIE)
    if session is None:
        raise NotAuthenticated("Send an API key: Authorization: Bearer KEY.")
    opened = open_session(session)
    key = keys.by_id(database(), opened) if opened else None
    if key is None:
        raise NotAuthenticated("This login has ended; log in again.")
    return Caller(key, session)


def admit(roles: Set[str]) -> Callable[..., Caller]:
    """A dependency that lets only these roles in, notes what they do, and counts how often they ask."""

    def check(request: Request) -> Caller:
        state = request.scope["state"]
        buckets: Buckets = request.app.state.buckets
        try:
            caller = identify(request)
        except NotAuthenticated:
            buckets.take(f"nobody@{request.client.host if request.client else ''}")
            raise
        buckets.take(str(caller.key.id))
        if caller.key.role not in roles:
            raise Forbidden(f"This is not for the role {caller.key.role}.")
        if request.method not in HARMLESS:
            _check_csrf(request, caller)
            if caller.is_staff:
                caller = replace(caller, act=_note(request, caller, state.get("request_id")))
        state["caller"] = caller
        return caller

    return check


def _caller(request: Request) -> Caller:
    caller = request.scope["state"]["caller"]  # put there by `admit`, which every route that is not public has
    assert isinstance(caller, Caller)
    return caller


Asking = Annotated[Caller, Depends(_caller)]


def _shown_key(request: Request) -> str | None:
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return shown.strip()
    return request.headers.get("x-api-key")


def _check_csrf(request: Request, caller: Caller) -> None:
    if caller.session is None:
        return  # a page of somebody else's cannot set headers with a key in them
    given = request.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), csrf_token(caller.session).encode()):
        raise CsrfFailed("This change needs the header X-CSRF-Token; GET /api/session tells its value.")


def _note(request: Request, caller: Caller, request_id: str | None) -> int:
    route = request.scope["route"].path
    asked = {**request.path_params, **request.query_params}
    act = f"{request.method} {route}"
    return audit.note(database(), act, by=caller.name, key=caller.key.id, data=asked, request=request_id)


# -- sessions --------------------------------------------------------------------------------------------------------


def make_session(key: Key, life_s: float) -> str:
    """A note that this key logged in, which ends by itself."""
    told = f"{key.id.hex}.{int(time.time() + life_s)}"
    return f"{told}.{sign(SESSION, told)}"


def open_session(session: str) -> UUID | None:
    """The key's id, if the note is ours and has not ended."""
    told, _, signature = session.rpartition(".")
    key, _, until = told.partition(".")
    if not hmac.compare_digest(signature.encode(), sign(SESSION, told).encode()) or int(until) < time.time():
        return None
    return UUID(hex=key)


def csrf_token(session: str) -> str:
    """What our own pages know of a session, and nobody else's."""
    return sign("csrf", session)


def sign(purpose: str, text: str) -> str:
    """A signature that only we can make, different for each purpose."""
    return hmac.new(_secret(settings.current().database_url), f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


@lru_cache(maxsize=8)
def _secret(_database_url: str) -> bytes:
    return keys.secret(database(), "http")
