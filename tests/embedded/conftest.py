"""How does a test get a process that it may kill?"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Stage = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def another() -> Iterator[Stage]:
    """Run Python code in another process and return when it has printed `ready`; it waits for its end there."""
    started: list[subprocess.Popen[str]] = []

    def stage(code: str, *args: str, python: str = sys.executable, **options: object) -> subprocess.Popen[str]:
        whole = f"import sys\n{code}\nprint('ready', flush=True)\nsys.stdin.read()\n"
        process = subprocess.Popen(
            [python, "-c", whole, *args],
            **{"cwd": ROOT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, **options},  # type: ignore[call-overload]
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n", f"exit code {process.wait()}"
        return process

    yield stage
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
