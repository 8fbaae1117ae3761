"""What does a test do without something that this machine lacks? It is skipped, with the reason; in CI it fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip for want of something; fail where that is not allowed."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@contextmanager
def mounted(place: Path, options: str) -> Iterator[None]:
    """A small file system of its own at this place."""
    command = ["mount", "-t", "tmpfs", "-o", options, "ironclip-test", str(place)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        missing("there is no mount command")
    if answer.returncode != 0:
        missing(f"may not mount a small disk here: {answer.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
