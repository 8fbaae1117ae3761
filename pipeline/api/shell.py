"""What surrounds every request? An id, limits of size and time, and headers that keep browsers careful.

A request that has not begun to be answered in time is answered here: whatever holds its thread up is not waited for.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.api.failing import REQUEST_ID, RETRY_AFTER_S, problem
from pipeline.core.errors import BodyTooLarge, DatabaseBusy

MOST_BODY = 1024 * 1024
TOO_LARGE = f"A body has at most {MOST_BODY} bytes here."
POLICY = (
    b"default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; worker-src 'self' blob:; "
    b"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", POLICY),
)


class Shell:
    """The outermost part of the application."""

    def __init__(self, app: ASGIApp, *, timeout_s: float, is_slow: Callable[[str, str], bool]) -> None:
        self.app = app
        self._timeout_s = timeout_s
        self._is_slow = is_slow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _given_id(Request(scope)) or secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        slow = self._is_slow(scope["method"], scope["path"])
        answer = _Answer(send, request_id)
        if not slow:
            length = dict(scope["headers"]).get(b"content-length", b"0")
            if not length.isdigit() or int(length) > MOST_BODY:
                await answer.instead(scope, receive, _too_large(request_id))
                return
            receive = _measured(receive)
        await self._in_time(scope, receive, answer, None if slow else self._timeout_s)

    async def _in_time(self, scope: Scope, receive: Receive, answer: _Answer, timeout_s: float | None) -> None:
        working = asyncio.ensure_future(self.app(scope, receive, answer))
        begun = asyncio.ensure_future(answer.begun.wait())
        try:
            await asyncio.wait({working, begun}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if working.done() or begun.done():
                await working
                return
            working.cancel()  # ends what waits for its turn; a thread that is stuck ends when it ends, unheard
            working.add_done_callback(_unheard)
            await answer.instead(scope, receive, _too_late(answer.request_id))
        except asyncio.CancelledError:
            working.cancel()
            raise
        finally:
            begun.cancel()


class _Answer:
    """What goes back to the caller: only one answer, with our headers."""

    def __init__(self, send: Send, request_id: str) -> None:
        self.request_id = request_id
        self.begun = asyncio.Event()
        self._send = send
        self._replaced = False

    async def __call__(self, message: Message) -> None:
        if self._replaced:
            return
        if message["type"] == "http.response.start":
            self.begun.set()
            given = {name.lower() for name, _ in message["headers"]}
            ours = [(REQUEST_ID.encode(), self.request_id.encode()), *HEADERS]
            message["headers"] = [*message["headers"], *((n, v) for n, v in ours if n not in given)]
        await self._send(message)

    async def instead(self, scope: Scope, receive: Receive, answer: Response) -> None:
        """Answer with this, whatever the application says later; nothing if it has begun to answer."""
        if self.begun.is_set():
            return
        await answer(scope, receive, self)
        self._replaced = True


def _measured(receive: Receive) -> Receive:
    seen = 0

    async def measured() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MOST_BODY:
            raise HTTPException(413, TOO_LARGE)
        return message

    return measured


def _too_large(request_id: str) -> Response:
    return problem(request_id, 413, BodyTooLarge.code, TOO_LARGE)


def _too_late(request_id: str) -> Response:
    message = "The database did not answer in time."
    return problem(request_id, 503, DatabaseBusy.code, message, retry_s=RETRY_AFTER_S)


def _unheard(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


def _given_id(request: Request) -> str | None:
    """The id that a proxy in front of us gave, if it is one that may stand in a log."""
    given = request.headers.get(REQUEST_ID, "")
    return given if 0 < len(given) <= 64 and given.replace("-", "").isalnum() and given.isascii() else None
