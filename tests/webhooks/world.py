"""Words for tests of webhooks: real endpoints on loopback that do as they are told, and jobs that end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import text

from pipeline import intake
from pipeline.core.job import Job, Outcome
from pipeline.core.moves import Claim, Complete, Fail
from pipeline.store import jobs
from pipeline.store.engine import Database

FOREVER = timedelta(hours=1)
SECRET = "a secret of this installation"


@dataclass
class Got:
    """One request that arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Place:
    """A real HTTP server. `answer` is its status; while `hangs` is set it says nothing."""

    answer: int = 204
    got: list[Got] = field(default_factory=list)
    hangs: bool = False
    drips: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    port: int = 0
    ends: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def types(self) -> list[str]:
        return [got.json["type"] for got in self.got]


def serve(place: Place) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            place.got.append(Got(self.path, dict(self.headers), body))
            place.arrived.set()
            if place.hangs:
                place.ends.wait(30)
                return
            if place.drips:
                self.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
                while not place.ends.wait(0.05):
                    try:
                        self.wfile.write(b"x")
                    except OSError:
                        return
                return
            self.send_response(place.answer)
            for name, value in place.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    place.port = server.server_port
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return server


def rows(db: Database, statement: str, **params: Any) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in db.run(text(statement), **params)]


def make_due(db: Database) -> None:
    """As if every backoff and every claim were over."""
    db.run(text("UPDATE webhook_deliveries SET next_attempt_at = clock_timestamp(), claimed_until = NULL"))


def cool_down(db: Database) -> None:
    """As if every cooldown were over."""
    db.run(text("UPDATE alert_cooldowns SET told_at = told_at - interval '1 day'"))


# -- jobs -----------------------------------------------------------------------------------------------------------


def ask(film: Path, **more: Any) -> Job:
    return intake.enqueue({"source": str(film), "clips": [{"start": 0, "end": 1}], "captions": False, **more})


def claimed(db: Database, job: Job) -> Job:
    got = jobs.apply(db, job.id, Claim(stage=job.stage, holder=str(uuid4()), fence=uuid4(), lease=FOREVER))
    assert isinstance(got, Job)
    return got


def fail(db: Database, job: Job, code: str = "SOURCE_NOT_FOUND") -> Job:
    held = claimed(db, job)
    assert held.fence is not None
    got = jobs.apply(db, job.id, Fail(fence=held.fence, code=code, reason="there is nothing there"))
    assert isinstance(got, Job)
    return got


def complete(db: Database, job: Job) -> Job:
    for _ in job.plan:
        held = claimed(db, job)
        assert held.fence is not None
        got = jobs.apply(db, job.id, Complete(fence=held.fence, outcome=Outcome.FULL))
        assert isinstance(got, Job)
        job = got
    return job


@contextmanager
def standing(**told: Any) -> Iterator[Place]:
    """A place that takes webhooks, as long as the block lasts."""
    place = Place(**told)
    server = serve(place)
    yield place
    place.ends.set()
    server.shutdown()
    server.server_close()
