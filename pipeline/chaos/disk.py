"""How can a disk be full without troubling anybody else? It is a small one of our own, and nobody else sees it.

It is mounted in a name space of this process and its children, so it goes away with them, however they end. That needs
root on Linux; elsewhere there is no such disk, and the report says so.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
MNT_DETACH = 2
SIZE_MIB = 64
CHUNKS = (1024**2, 4096, 1)


def mount(folder: Path) -> str | None:
    """Mount a small disk there; why not, if it cannot be done. Call it before anything is started."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a disk of one's own takes root on Linux"
    libc = ctypes.CDLL(None, use_errno=True)
    folder.mkdir(parents=True, exist_ok=True)
    done = (
        libc.unshare(CLONE_NEWNS) == 0
        and libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) == 0
        and libc.mount(b"chaos", os.fsencode(folder), b"tmpfs", 0, f"size={SIZE_MIB}m".encode()) == 0
    )
    return None if done else f"a disk cannot be mounted here ({os.strerror(ctypes.get_errno())})"


def unmount(folder: Path) -> None:
    """Let go of the disk, so that its folder can be removed; if there is none, nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).umount2(os.fsencode(folder), MNT_DETACH)


def fill(folder: Path) -> Path:
    """Take every free byte; whoever deletes the file gives them back."""
    ballast = folder / "ballast"
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for chunk in CHUNKS:
            while _wrote(fd, b"\0" * chunk):
                pass
    finally:
        os.close(fd)
    return ballast


def _wrote(fd: int, chunk: bytes) -> bool:
    try:
        return os.write(fd, chunk) == len(chunk)
    except OSError as exc:
        if exc.errno != errno.ENOSPC:
            raise
        return False
