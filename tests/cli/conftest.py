"""How does a test type a command? `ironclip(...)` runs it in a process of its own, as people do."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest

from pipeline.cli.app import run

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "pipeline.cli"]
PATIENCE_S = 170
OURS = ("DATABASE_URL", "BROKER_URL", "REDIS_URL", "SCRATCH_DIR", "OUTPUT_DIR", "IRONCLIP_HOME")


Type = Callable[..., Any]


@dataclass(frozen=True)
class Typed:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def environment(told: Mapping[str, str]) -> dict[str, str]:
    """This environment with exactly these settings of ours."""
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    return {**kept, "PYTHONPATH": str(ROOT), **told}


@pytest.fixture
def newcomer(tmp_path: Path) -> Callable[..., Typed]:
    """Run a command as somebody does who has just opened a shell."""

    def run(*argv: str, env: Mapping[str, str], cwd: Path = tmp_path) -> Typed:
        done = subprocess.run(
            [*COMMAND, *argv], env=environment(env), cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert "Traceback" not in done.stdout + done.stderr
        return Typed(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def zygote() -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, str(Path(__file__).with_name("zygote.py"))]
    with subprocess.Popen(
        argv, env=environment({}), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.fixture
def ironclip(request: pytest.FixtureRequest, zygote: subprocess.Popen[str], tmp_path: Path) -> Callable[..., Typed]:
    """Run a command in the system of `env`, or in the one that is handed in, in a process that starts quickly."""
    assert zygote.stdin is not None
    assert zygote.stdout is not None
    asks, answers = zygote.stdin, zygote.stdout

    def run(*argv: str, env: Mapping[str, str] | None = None, stdin: str = "", cwd: Path = tmp_path) -> Typed:
        told = environment(request.getfixturevalue("env") if env is None else env)
        with TemporaryDirectory() as folder:
            streams = {name: Path(folder, name) for name in ("stdin", "stdout", "stderr")}
            for path in streams.values():
                path.write_text(stdin if path.name == "stdin" else "")
            asked = {"argv": argv, "env": told, "cwd": str(cwd), **{name: str(path) for name, path in streams.items()}}
            print(json.dumps(asked), file=asks, flush=True)
            assert select.select([answers], [], [], PATIENCE_S)[0], f"{argv} does not end"
            code, out, err = int(answers.readline()), streams["stdout"].read_text(), streams["stderr"].read_text()
        assert "Traceback" not in out + err
        return Typed(code, out, err)

    return run


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command that goes on; it is ended with the test."""
    running: list[subprocess.Popen[str]] = []

    def start(*argv: str, env: Mapping[str, str], cwd: Path = tmp_path) -> subprocess.Popen[str]:
        running.append(
            subprocess.Popen(
                [*COMMAND, *argv],
                env=environment(env),
                cwd=cwd,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file that a request may name; nobody reads it here."""
    path = tmp_path / "film.mp4"
    path.write_bytes(b"not really a film")
    return path


@pytest.fixture
def typed(env: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Type:
    """Run a command in this process: its exit code and what it said."""

    def type_(*argv: object) -> tuple[int, str, str]:
        code = run([str(word) for word in argv])
        told = capsys.readouterr()
        return code, told.out, told.err

    return type_


@pytest.fixture
def queued(typed: Type, source: Path) -> UUID:
    _, out, _ = typed("submit", source, "--clip", "1-2", "--json")
    return UUID(json.loads(out)["id"])
