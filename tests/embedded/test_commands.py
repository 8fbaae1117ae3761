"""Do the command lines that we hand out really run: from any folder, and to a clean end?"""

from __future__ import annotations

import base64
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from pipeline.embedded.server import free_port
from pipeline.processes import descendants, wait_until
from pipeline.supervisor import Child, Supervisor, commands

PATIENCE_S = 60
LOGIN = "ironclip:secret"


@dataclass
class Running:
    supervisor: Supervisor
    worker: Child
    flower_port: int
    redis_url: str
    api_port: int

    def worker_answers(self) -> bool:
        celery, _, tasks = self.worker.argv[:3]
        ping = [celery, "-A", tasks, "inspect", "ping", "--timeout", "2"]
        return (
            "pong" in subprocess.run(ping, env={**os.environ, **self.worker.env}, capture_output=True, text=True).stdout
        )

    def api_says(self) -> int:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.api_port}/health", timeout=5).status
        except OSError:
            return 0

    def flower_says(self, login: str | None = None) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{self.flower_port}/workers")
        if login:
            request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
        try:
            return urllib.request.urlopen(request, timeout=5).status
        except urllib.error.HTTPError as exc:
            return exc.code
        except OSError:
            return 0


@pytest.fixture
def running(env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Worker, beat and Flower, started from the folder of a web app that has `tasks` and `celeryconfig` of its own."""
    web_app = tmp_path / "web app"
    web_app.mkdir()
    for name in ("tasks.py", "celeryconfig.py"):
        (web_app / name).write_text("raise SystemExit('this belongs to the web app')\n")
    monkeypatch.chdir(web_app)
    port = free_port()
    api = free_port()
    children = commands(env, home=tmp_path, flower_port=port, flower_login=LOGIN, concurrency=2, api_port=api)
    with Supervisor(children, home=tmp_path, grace_s=30) as supervisor:
        yield Running(supervisor, children[0], port, env["BROKER_URL"], api)


@pytest.mark.cluster
def test_worker_beat_flower_and_the_api_run_and_end_when_they_are_asked_to(running: Running) -> None:
    assert wait_until(running.worker_answers, PATIENCE_S), running.supervisor.log("worker").read_text()
    assert wait_until(lambda: running.flower_says(LOGIN) == 200, PATIENCE_S)
    assert running.flower_says() == 401
    assert running.flower_says("ironclip:guess") == 401
    assert wait_until(lambda: running.api_says() == 200, PATIENCE_S), running.supervisor.log("api").read_text()
    below = descendants(running.supervisor.pid("worker"))
    assert len(below) >= 2

    codes = running.supervisor.drain()

    assert codes == {"worker": 0, "beat": 0, "flower": 0, "api": 0}
    assert not any(each.is_running for each in below)
    with redis.Redis.from_url(running.redis_url) as broker:
        assert broker.ping()
