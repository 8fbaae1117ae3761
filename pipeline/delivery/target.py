"""What is a target, and under which key does a file lie there?

A key carries the hash of its content. So the same key always means the same bytes, two writers of one key cannot
disagree, and what lies under a key can be judged without asking anybody.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import UUID

from pipeline.core.errors import (
    TargetDiskFull,
    TargetDown,
    TargetError,
    TargetPermissionDenied,
    TargetRefused,
    UploadFailed,
)
from pipeline.files import Check, go_on, safe_parts

Progress = Callable[[int, int], None]  # bytes written, sent or read back so far, of how many in all

HASH_LENGTH = 16  # hex digits of the hash in a key: 64 bits, and only files of one job and name can meet
HASH_IN_KEY = re.compile(rf"-([0-9a-f]{{{HASH_LENGTH}}})(?:\.[a-z0-9]+)*\Z")
SHA256 = re.compile(r"[0-9a-f]{64}")
SUFFIX = re.compile(r"(?:\.[a-z0-9]{1,10}){0,2}")


def unseen(done: int, total: int) -> None:
    """The progress that nobody watches."""


@dataclass(frozen=True)
class Stored:
    """What lies at a target: measured there, never copied from what we hoped to send."""

    size: int
    sha256: str


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


def published_key(job_id: UUID | str, generation: int, name: str, sha256: str, suffix: str) -> str:
    """`jobs/<job>/g<generation>/<name>-<hash><suffix>`, with the name made safe. The suffix begins with its dot."""
    if not SHA256.fullmatch(sha256):
        raise ValueError(f"{sha256[:80]!r} is not a SHA-256 in lower-case hex")
    if not SUFFIX.fullmatch(suffix):
        raise ValueError(f"{suffix[:80]!r} is not a file suffix")
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:80] or "output"
    key = f"jobs/{job_id}/g{generation:d}/{plain}-{sha256[:HASH_LENGTH]}{suffix}"
    if len(safe_parts(key)) != 4:
        raise ValueError(f"{str(job_id)[:80]!r} cannot be part of a key")
    return key


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
    if not SHA256.fullmatch(sha256) or carried is None or carried[1] != sha256[:HASH_LENGTH]:
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
