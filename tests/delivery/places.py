"""The places that the conformance suite delivers to.

A kind of target joins the suite with one Place: how to make a target of TOML, and how to look behind its back.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from pipeline import delivery

NOBODY = 65534


class Place(Protocol):
    """Where a target's files really lie, and what may happen there."""

    toml: str  # the table [targets.there] of this target

    def read(self, key: str) -> bytes | None: ...
    def plant(self, key: str, content: bytes) -> None: ...
    def everything(self) -> list[str]: ...
    def gone(self) -> AbstractContextManager[None]: ...
    def forbidden(self) -> AbstractContextManager[None]: ...
    def full(self) -> AbstractContextManager[None]: ...


class Folder:
    """A folder behind a `file` target."""

    def __init__(self, tmp: Path) -> None:
        self.root = tmp / "there"
        self.root.mkdir()
        self.toml = f'[targets.there]\nkind = "file"\npath = {json.dumps(str(self.root))}\n'

    def read(self, key: str) -> bytes | None:
        path = self.root / key
        return path.read_bytes() if path.exists() else None

    def plant(self, key: str, content: bytes) -> None:
        (self.root / key).parent.mkdir(parents=True, exist_ok=True)
        (self.root / key).write_bytes(content)

    def everything(self) -> list[str]:
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if not p.is_dir())

    @contextmanager
    def gone(self) -> Iterator[None]:
        self.root.rename(self.root.with_name("elsewhere"))
        yield
        assert not self.root.exists(), "a missing root was filled silently"
        self.root.with_name("elsewhere").rename(self.root)

    @contextmanager
    def forbidden(self) -> Iterator[None]:
        self.root.chmod(0o555)
        with not_as_root(self.root):
            yield
        self.root.chmod(0o755)

    @contextmanager
    def full(self) -> Iterator[None]:
        with mounted(self.root, "size=1m"):
            yield
            assert self.everything() == []


@contextmanager
def not_as_root(place: Path) -> Iterator[None]:
    """Be somebody whom permissions bind. pytest's folders are 0700, so open the way first."""
    if os.geteuid() != 0:
        yield
        return
    closed = [p for p in place.parents if p.stat().st_mode & 0o005 != 0o005]
    modes = [p.stat().st_mode for p in closed]
    for folder in closed:
        folder.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        for folder, mode in zip(closed, modes, strict=True):
            folder.chmod(mode)


@contextmanager
def mounted(place: Path, options: str) -> Iterator[None]:
    """A small file system of its own, or a skipped test where we may not mount one."""
    command = ["mount", "-t", "tmpfs", "-o", options, "ironclip-test", str(place)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if answer.returncode != 0:
        pytest.skip(f"may not mount a small disk here: {answer.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


PLACES: dict[str, Callable[[Path], Place]] = {"file": Folder}
Putter = Callable[..., "subprocess.Popen[str]"]


@dataclass(frozen=True)
class Sample:
    """A finished file and the key that it belongs under."""

    path: Path
    content: bytes
    sha256: str
    key: str


def sample_of(path: Path, content: bytes, name: str = "clip-1-720p") -> Sample:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o644)
    sha256 = hashlib.sha256(content).hexdigest()
    return Sample(path, content, sha256, delivery.published_key("job-1", 1, name, sha256, ".mp4"))
