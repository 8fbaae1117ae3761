"""What do scratch and targets both need to know about files?

Names that cannot leave their folder, bytes that are on the disk, and the hash of what really lies there.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterator

CHUNK = 1024 * 1024
SAFE_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")

Translate = Callable[[OSError], Exception]
Check = Callable[[], None]  # raises when the work must stop, e.g. LeaseLost


def go_on() -> None:
    """The check that never stops anything."""


def safe_parts(name: str) -> tuple[str, ...]:
    """The parts of a relative name, or ValueError: no `..`, no hidden, empty, absolute or surprising parts."""
    parts = tuple(name.split("/"))
    if len(name) > 1000 or not all(SAFE_PART.fullmatch(part) for part in parts):
        raise ValueError(f"{name[:100]!r} is not a safe relative name")
    return parts


def chunks(fd: int, error: Translate | None = None) -> Iterator[bytes]:
    """All bytes from here on. An error in reading becomes `error(exc)`; what the consumer raises stays as it is."""
    while True:
        try:
            chunk = os.read(fd, CHUNK)
        except OSError as exc:
            if error is None:
                raise
            raise error(exc) from exc
        if not chunk:
            return
        yield chunk


def write_all(fd: int, data: bytes) -> None:
    """Write every byte, however little the system takes at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def sha256_of(fd: int, check: Check = go_on) -> str:
    """The hash of all bytes from here on; `check` is called for each chunk."""
    digest = hashlib.sha256()
    for chunk in chunks(fd):
        check()
        digest.update(chunk)
    return digest.hexdigest()


def sync_folder(fd: int) -> None:
    """Make the names in an open folder survive a power cut, where the file system knows how to."""
    try:
        os.fsync(fd)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync a folder
            raise
