"""Do the web apps of the docs run as they stand there: hand in a job, show its progress, refuse a bad request?"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.system import ROOT, System, wait_for

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGE = ROOT / "docs" / "how-to" / "put-it-behind-your-web-app.md"
BESIDE = Path(sys.executable).parent
WHERE = {"flask": ["--port", "{port}"], "uvicorn": ["--port", "{port}"], "python": ["127.0.0.1:{port}"]}

Ask = Callable[..., tuple[int, Any]]


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def web_app(request: pytest.FixtureRequest, warm: System, tmp_path: Path) -> Iterator[Ask]:
    """The example, started by the command in its first line; call it to ask it something."""
    command = shlex.split(ast.get_docstring(ast.parse(request.param.read_text())) or "")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    argv = [str(BESIDE / command[0]), *command[1:], *(word.format(port=port) for word in WHERE[command[0]])]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=subprocess.STDOUT
        )

        def ask(path: str, body: Any = None) -> tuple[int, Any]:
            data = None if body is None else json.dumps(body).encode()
            asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(asked, timeout=30) as answer:
                    return answer.status, json.loads(answer.read())
            except urllib.error.HTTPError as exc:
                return exc.code, json.loads(exc.read())

        def is_up() -> bool:
            assert process.poll() is None, (tmp_path / "log").read_text()
            with socket.socket() as door:
                return door.connect_ex(("127.0.0.1", port)) == 0

        try:
            wait_for("the web app", is_up)
            yield ask
        finally:
            process.kill()
            process.wait()


def test_a_newcomers_web_app_hands_in_a_job_and_shows_its_progress(web_app: Ask, sample: Path) -> None:
    request = {"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False}

    accepted, answer = web_app("/clips", request)
    seen: list[Any] = []

    def has_ended() -> bool:
        seen.append(web_app(f"/clips/{answer['job']}")[1])
        return bool(seen[-1]["state"] == "SUCCESS")

    wait_for("the job", has_ended)

    assert accepted == 202
    assert seen[-1]["told"]["outcome"] == "full"
    assert seen[-1]["told"]["progress"] == 100
    assert {look["state"] for look in seen} <= {"PENDING", "STARTED", "SUCCESS"}
    assert all("stage" in look["told"] for look in seen)


def test_a_web_app_says_no_to_a_bad_request(web_app: Ask) -> None:
    status, answer = web_app("/clips", {"source": "/nowhere.mp4", "clips": []})

    assert (status, answer["code"]) == (400, "NO_CLIPS")


def test_the_docs_show_the_examples_as_they_are() -> None:
    shown = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)

    for example in EXAMPLES:
        assert example.read_text() in shown, f"{example.name} stands otherwise in the docs"


def test_the_shortest_is_of_fifteen_lines() -> None:
    lines = (ROOT / "examples" / "flask_app.py").read_text().splitlines()

    assert len([line for line in lines[1:] if line.strip()]) <= 15
