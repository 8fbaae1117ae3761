"""What may a test over HTTP count on? The real program, in a process of its own, on a real Postgres and Redis."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipeline.embedded import Services
from pipeline.embedded.server import free_port
from pipeline.store import keys
from pipeline.store.engine import Database

ROOT = Path(__file__).parents[2]
_number = itertools.count(1)


@dataclass
class Api:
    """A running API, and what a test may do to it."""

    env: dict[str, str]
    home: Path
    db: Database
    process: subprocess.Popen[str] = field(init=False)
    url: str = field(init=False)

    def start(self, port: int | None = None) -> None:
        """At a port of our own choice: whoever knocks at a closed one must not meet itself there."""
        log = (self.home / "api.log").open("ab")
        argv = [sys.executable, "-m", "pipeline.cli", "api", "--port", str(port or free_port()), "--json"]
        self.process = subprocess.Popen(
            argv, env={**os.environ, "PYTHONPATH": str(ROOT), **self.env}, stdout=subprocess.PIPE, stderr=log, text=True
        )
        log.close()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log
        self.url = json.loads(line)["address"]

    @property
    def log(self) -> str:
        return (self.home / "api.log").read_text()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def key(self, role: str, account: str | None = None) -> str:
        """A new key of this role; a client without an account gets one of its own."""
        if role == "client" and account is None:
            account = f"account{next(_number)}"
        return keys.create(self.db, role, account=account, by="test")[1]

    def client(self, role: str | None = "admin", account: str | None = None, **options: Any) -> httpx.Client:
        headers = {} if role is None else {"Authorization": f"Bearer {self.key(role, account)}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, **options)


@pytest.fixture(scope="session")
def make_api(
    services: Services, make_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Api]]:
    """Call it for an API of one's own, with changed settings."""
    made: list[Api] = []

    def make(**changes: str) -> Api:
        services.redis.start()
        home = tmp_path_factory.mktemp("api")
        env = {
            "DATABASE_URL": make_database(),
            "BROKER_URL": services.broker_url,
            "SCRATCH_DIR": str(home / "scratch"),
            "OUTPUT_DIR": str(home / "output"),
            "IRONCLIP_HOME": str(home / "home"),
            "API_RATE_PER_SEC": "100000",
            "API_BURST": "100000",
            "CREDITS_PER_OUTPUT": "0",
            **changes,
        }
        api = Api(env, home, Database(env["DATABASE_URL"]))
        made.append(api)
        api.start()
        return api

    yield make
    for api in made:
        if api.process.poll() is None:
            api.kill()
        api.db.dispose()


@pytest.fixture(scope="session")
def api(make_api: Callable[..., Api]) -> Api:
    """An API that tests share: look at your own jobs only."""
    return make_api()


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A file that a request may name; nobody reads it here."""
    path = tmp_path / "film.mp4"
    path.write_bytes(b"not really a film")
    return str(path)


@pytest.fixture
def request_body(source: str) -> dict[str, Any]:
    return {"source": source, "clips": [{"start": 0, "end": 1}], "captions": False}
