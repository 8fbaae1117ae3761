"""What is a target, and under which key does a file lie there?

A key carries the hash of its content. So the same key always means the same bytes, two writers of one key cannot
disagree, and what lies under a key can be judged without asking anybody. Files that name each other, as a playlist
names its segments, lie under plain names in a folder that carries the hash of all of them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol
from uuid import UUID

from pipeline.core.errors import (
    ScratchLost,
    TargetDiskFull,
    TargetDown,
    TargetError,
    TargetPermissionDenied,
    TargetRefused,
    UploadFailed,
)
from pipeline.core.output import File
from pipeline.files import Check, go_on, safe_parts

Progress = Callable[[int, int], None]  # bytes written, sent or read back so far, of how many in all

HASH_LENGTH = 16  # hex digits of the hash in a key: 64 bits, and only files of one job and name can meet
HASH_IN_KEY = re.compile(rf"-([0-9a-f]{{{HASH_LENGTH}}})(?:\.[a-z0-9]+)*\Z")
TREE_KEY = re.compile(rf"jobs/[^/]+/g\d+/[^/]+-[0-9a-f]{{{HASH_LENGTH}}}/.+")
SHA256 = re.compile(r"[0-9a-f]{64}")
SUFFIX = re.compile(r"(?:\.[a-z0-9]{1,10}){0,2}")


def unseen(done: int, total: int) -> None:
    """The progress that nobody watches."""


class Meter:
    """Progress that only rises, whatever is read twice."""

    def __init__(self, on_progress: Progress, total: int) -> None:
        self._on_progress, self._total = on_progress, total
        self._seen = 0

    def __call__(self, done: int) -> None:
        if min(done, self._total) > self._seen:
            self._seen = min(done, self._total)
            self._on_progress(self._seen, self._total)

    def beyond(self, base: int) -> Callable[[int], None]:
        return lambda done: self(base + done)


@dataclass(frozen=True)
class Stored:
    """What lies at a target: measured there, never copied from what we hoped to send."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Tidied:
    """What was removed below a folder, and how many things were left only because they are too young."""

    removed: int = 0
    young: int = 0


class Target(Protocol):
    """A place for finished files. Each kind is one module, and passes the suite in tests/delivery."""

    @property
    def name(self) -> str: ...

    def head(self, key: str, *, check: Check = go_on, on_progress: Progress = unseen) -> Stored | None:
        """The true size and hash of what lies under the key; None when nothing does."""

    def put(self, path: Path, key: str, sha256: str, *, check: Check = go_on, on_progress: Progress = unseen) -> Stored:
        """Put the file under the key: whole, durable and verified, or not at all.

        `check` is called for each chunk and once more before the file gets its name; whatever it raises ends the
        put and leaves nothing. Refuses a key that does not carry `sha256`. Other bytes under the key can only be
        damage, and are replaced in one step.
        """

    def url(self, key: str) -> str:
        """Where a person finds the file."""

    def delete(self, key: str) -> None:
        """Remove what lies under the key, if anything does."""

    def tidy(self, folder: str, keep: Collection[str], older_than: timedelta) -> Tidied:
        """Remove whatever below the folder (a key's beginning, `jobs/<job>`) is none of the keys in `keep` and was not
        touched for this long: also what broken puts have left, and folders that are empty then."""


def published_key(job_id: UUID | str, generation: int, name: str, sha256: str, suffix: str) -> str:
    """`jobs/<job>/g<generation>/<name>-<hash><suffix>`, with the name made safe. The suffix begins with its dot."""
    if not SUFFIX.fullmatch(suffix):
        raise ValueError(f"{suffix[:80]!r} is not a file suffix")
    key = f"jobs/{job_id}/g{generation:d}/{_hashed(name, sha256)}{suffix}"
    if len(safe_parts(key)) != 4:
        raise ValueError(f"{str(job_id)[:80]!r} cannot be part of a key")
    return key


def published_keys(job_id: UUID | str, generation: int, name: str, files: Sequence[File]) -> list[str]:
    """The key of each file of an output: `published_key` for one that stands alone, else
    `jobs/<job>/g<generation>/<folder>/<path>`, so that files keep their names for each other."""
    folder = folder_of(name, files)
    keys = [
        f"jobs/{job_id}/g{generation:d}/{folder}/{file.path}"
        if file.path
        else published_key(job_id, generation, name, file.sha256, file.suffix)
        for file in files
    ]
    for key in keys:
        safe_parts(key)
    return keys


def folder_of(name: str, files: Iterable[File]) -> str:
    """`<name>-<hash>`: the folder of an output's files that have a path, with the hash of all paths and contents.
    Folders of one generation lie side by side: a file may refer to another output's as `../<folder>/<path>`."""
    lines = sorted(f"{file.path}\0{file.sha256}\n" for file in files if file.path)
    return _hashed(name, hashlib.sha256("".join(lines).encode()).hexdigest())


def _hashed(name: str, sha256: str) -> str:
    if not SHA256.fullmatch(sha256):
        raise ValueError(f"{sha256[:80]!r} is not a SHA-256 in lower-case hex")
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:80] or "output"
    return f"{plain}-{sha256[:HASH_LENGTH]}"


def key_parts(key: str) -> tuple[str, ...]:
    """The parts of a key that stays below the target's root; TargetRefused for any other."""
    try:
        return safe_parts(key)
    except ValueError as exc:
        raise TargetRefused(f"The key {key[:100]!r} cannot be used.") from exc


def parts_for(key: str, sha256: str) -> tuple[str, ...]:
    """The parts of a key under which exactly this content may lie; TargetRefused for any other."""
    parts = key_parts(key)
    carried = HASH_IN_KEY.search(parts[-1])
    carries = TREE_KEY.fullmatch(key) or (carried and carried[1] == sha256[:HASH_LENGTH])
    if not SHA256.fullmatch(sha256) or not carries:
        raise TargetRefused(f"The key {key[:100]!r} does not carry the hash of its content.")
    return parts


KIND_OF_ERRNO: dict[int, type[TargetError]] = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), TargetPermissionDenied),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), TargetDiskFull),
    # A link or a file where a folder should be, or the other way round: somebody put it there, it will not go away.
    **dict.fromkeys((errno.ELOOP, errno.ENOTDIR, errno.EISDIR), TargetRefused),
    **dict.fromkeys((errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN), TargetDown),
}


def translated(target: str, what: str, exc: OSError) -> TargetError:
    """The error of ours that says what a system error means for this target."""
    kind = KIND_OF_ERRNO.get(exc.errno or 0, UploadFailed)
    reason = exc.strerror or type(exc).__name__
    return kind(f"{target}: {what}: {reason}.", service=f"target:{target}" if kind is TargetDown else None)


@contextmanager
def opened_source(path: Path) -> Iterator[int]:
    """A finished file, open for reading; ScratchLost if it cannot be."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as exc:
        raise ScratchLost(f"{path.name} cannot be read: {exc.strerror}.") from exc
    try:
        yield fd
    finally:
        os.close(fd)


def unreadable_source(exc: OSError) -> ScratchLost:
    return ScratchLost(f"A finished file cannot be read: {exc.strerror}.")
