"""Live events over HTTP (SSE): of everything, or of one job, from where the caller left off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

from fastapi import Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pipeline.api.access import Doors
from pipeline.api.caller import Asking
from pipeline.api.hub import Hub, Listener, Shown, of_event
from pipeline.api.jobs import check_owner
from pipeline.core.errors import TooManyListeners
from pipeline.store import feed
from pipeline.store.engine import database
from pipeline.store.feed import Event

router = Doors(tags=["live"])

KEEPALIVE_S = 30.0
RETRY_MS = 3000
ALIVE = b": alive\n\n"
SEND_S = 30.0  # a reader that takes nothing for so long is cut off
MOST = 2000  # listeners of one process
PAGE = 500
TEXT = {"text/event-stream": {"schema": {"type": "string"}}}

LastId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=20, pattern=r"^\d*$")]
Since = Annotated[int | None, Query(ge=0, le=2**62, description="As Last-Event-ID, for the first connection.")]


class Stream(Response):
    """Sends what a listener hears until either side ends it."""

    media_type = "text/event-stream"

    def __init__(self, hub: Hub, listener: Listener, seq: int | None) -> None:
        self._hub, self._listener, self._seq = hub, listener, seq
        self.status_code = 200
        self.background = None
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_until_gone(receive))
        gone.add_done_callback(lambda _: self._listener.cut())
        self._hub.join(self._listener)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for text in self._texts():
                message = {"type": "http.response.body", "body": text, "more_body": True}
                await asyncio.wait_for(send(message), SEND_S)
            await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), SEND_S)
        except TimeoutError:
            return  # too slow to be told even that
        finally:
            self._hub.leave(self._listener)
            gone.cancel()

    async def _texts(self) -> AsyncIterator[bytes]:
        yield f"retry: {RETRY_MS}\n\n".encode()
        while not await self._hub.ready(KEEPALIVE_S) and not self._listener.is_cut:
            yield ALIVE
        sent = self._seq if self._seq is not None else self._hub.position
        yield f"id: {sent}\n\n".encode()  # no event, but who is cut off now knows where to go on
        async for shown in self._missed(sent):
            assert shown.seq is not None
            sent = shown.seq
            yield shown.text
        while not self._listener.is_cut:
            came = await self._listener.heard(KEEPALIVE_S)
            fresh = [shown for shown in came if shown.seq is None or shown.seq > sent]
            sent = max([sent, *(shown.seq for shown in fresh if shown.seq is not None)])
            if fresh or not came:
                yield b"".join(shown.text for shown in fresh) or ALIVE

    async def _missed(self, seq: int) -> AsyncIterator[Shown]:
        """What was numbered between `seq` and what this listener will hear by itself. It has joined already."""
        upto = self._hub.position
        recent = list(self._hub.recent)
        if recent and recent[0].seq is not None and recent[0].seq <= seq + 1:
            for shown in recent:
                if shown.seq is not None and shown.seq > seq and self._listener.wants(shown):
                    yield shown
            return
        while seq < upto and not self._listener.is_cut:
            page = await run_in_threadpool(self._page, seq)
            for event in page:
                if event.seq > upto:
                    return
                seq = event.seq
                yield of_event(event)
            if len(page) < PAGE:
                return

    def _page(self, seq: int) -> list[Event]:
        return feed.after(database(), seq, job=self._listener.job, account=self._listener.account, limit=PAGE)


STREAMED: dict[str, Any] = {
    "status_code": 200,
    "response_class": Stream,
    "responses": {200: {"content": TEXT, "description": "Events, as they come"}},
}


@router.get("/api/events", **STREAMED, summary="Everything that happens, as it happens")
def all_events(asking: Asking, request: Request, last_event_id: LastId = None, since: Since = None) -> Stream:
    """Each event has a number as its id; who comes back with `Last-Event-ID` misses none and sees none twice."""
    return _stream(request, Listener(asking.key.id, account=asking.account), last_event_id, since)


@router.get("/api/jobs/{job_id}/events", **STREAMED, summary="What happens to one job")
def job_events(
    asking: Asking, request: Request, job_id: UUID, last_event_id: LastId = None, since: Since = None
) -> Stream:
    """From its beginning, unless `Last-Event-ID` or `since` says otherwise."""
    check_owner(asking, job_id)
    listener = Listener(asking.key.id, job=job_id, account=asking.account)
    return _stream(request, listener, last_event_id, since if since is not None else 0)


def _stream(request: Request, listener: Listener, last_event_id: str | None, since: int | None) -> Stream:
    hub: Hub = request.app.state.hub
    if len(hub) >= MOST:
        raise TooManyListeners(f"There are {MOST} listeners here already; come again.")
    return Stream(hub, listener, int(last_event_id) if last_event_id else since)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
