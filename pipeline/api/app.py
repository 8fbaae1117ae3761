"""What does the application consist of? Its routers, what surrounds them, and the dashboard's files at `/`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from fastapi.routing import APIRoute

from pipeline import settings, signals
from pipeline.api import events, failing, files, jobs, keys, ledger, overview, sources, system, webhooks
from pipeline.api.access import ROUTES
from pipeline.api.hub import Hub
from pipeline.api.lately import Lately
from pipeline.api.pages import Pages
from pipeline.api.rate import Buckets
from pipeline.api.shell import Shell
from pipeline.store import engine

THREADS = 16  # requests that talk to Postgres at once, with a connection each
SPARE = 0.8  # of the time that a request has, for one statement: its error can still be told
HEALTH_S = 1.0  # for so long an answer about health is good enough for the next one who asks
ERRORS = (400, 401, 402, 403, 404, 409, 413, 422, 429, 503, 507)

PARTS = (jobs, files, events, sources, system, ledger, overview, webhooks, keys)
ROUTERS = tuple(part.router for part in PARTS)


def create() -> FastAPI:
    """The application of this process."""
    now = settings.current()
    engine.answer_people(now.api_timeout_sec * SPARE, THREADS)
    app = FastAPI(
        title="Ironclip",
        description="Turns source videos into finished clips, and never loses, doubles or forgets one.",
        version="1",
        lifespan=_life,
        docs_url=None,  # its pages come from the network
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses={status: {"model": failing.Problem} for status in ERRORS},
        generate_unique_id_function=_name,
    )
    app.state.buckets = Buckets(now.api_rate_per_sec, now.api_burst)
    app.state.hub = Hub()
    app.state.health = Lately(HEALTH_S)
    for router in ROUTERS:
        app.include_router(router)
    failing.set_up(app)
    app.mount("/", Pages(), name="dashboard")
    app.add_middleware(Shell, timeout_s=now.api_timeout_sec, is_slow=_is_slow)
    return app


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    hub: Hub = app.state.hub
    hub.start()
    ear = signals.Ear(settings.current().broker_url, hub.wake)
    ear.start()
    yield {}
    ear.stop()
    hub.close()
    engine.database().dispose()


SLOW = frozenset(route for route, access in ROUTES.items() if access.slow)


def _is_slow(method: str, path: str) -> bool:
    return f"{method} {path}" in SLOW


def _name(route: APIRoute) -> str:
    return route.name
