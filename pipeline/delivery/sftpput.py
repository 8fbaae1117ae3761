"""What does one put over SFTP do, step by step? Write hidden, sync, read back, rename.

What an earlier put of the same content has left is copied by the server itself, where it knows how to: its writer may
be a ghost that wakes up, so it is never continued in place. Whether the copy was good shows when all is read back.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pipeline import crashpoints
from pipeline.core.errors import ScratchLost, TargetDiskFull, UploadFailed
from pipeline.crashpoints import At
from pipeline.delivery.attended import Step
from pipeline.delivery.sftpline import extended, has_no_room
from pipeline.delivery.target import HASH_LENGTH, Stored, unreadable_source

PIECE = 256 * 1024
RESUMED_FROM = 1024**2  # what is smaller is sent again sooner than it is found


class _Damaged(UploadFailed):
    """What was stored is not what was sent."""


@dataclass(frozen=True)
class Put:
    """One file on its way to one place."""

    name: str  # of the target
    sftp: Any
    fd: int
    size: int
    sha256: str
    folder: str
    leaf: str

    def whole(self, step: Step) -> Stored:
        """Do it; with what an earlier put has left, or if that was no good, without."""
        left = self._left()
        if left is not None:
            with suppress(_Damaged):
                return self._attempt(step, left)
        return self._attempt(step, None)

    def _attempt(self, step: Step, left: str | None) -> Stored:
        part = self._place(f"{self._prefix}{secrets.token_hex(4)}")
        try:
            if self._write(part, left, step) != self.sha256:
                raise ScratchLost(f"{self.leaf} is no longer the file that was made.")
            stored = measured(self.sftp, part, self.size, lambda done: step(self.size + done))
            if stored.sha256 != self.sha256:
                raise _Damaged(f"{self.name}: {self.leaf}: what was stored is not what was sent.")
            step(2 * self.size)
            crashpoints.reached(At.PUT_HIDDEN)
            self._rename(part)
        except BaseException as exc:
            # SFTP has no word for a full disk. Asked before we make room again.
            is_full = isinstance(exc, OSError) and exc.errno is None and has_no_room(self.sftp, self.folder)
            with suppress(OSError, EOFError):
                self.sftp.remove(part)
            if is_full:
                raise TargetDiskFull(f"{self.name}: {self.leaf}: there is no room left.") from exc
            raise
        return stored

    def _left(self) -> str | None:
        """The longest that earlier puts of this content have left; None if it is not worth the trouble."""
        if self.size < RESUMED_FROM:
            return None
        there = [entry for entry in self.sftp.listdir_attr(self.folder) if entry.filename.startswith(self._prefix)]
        longest = max(there, key=lambda entry: int(entry.st_size), default=None)
        if longest is None or not RESUMED_FROM <= longest.st_size <= self.size:
            return None
        return self._place(longest.filename)

    def _write(self, part: str, left: str | None, step: Step) -> str:
        """Write the file and sync it; the hash of what it was made of."""
        digest, done = hashlib.sha256(), 0
        with self.sftp.open(part, "wbx") as file:
            file.set_pipelined(True)
            copied = self._copied(left, file) if left else 0
            while chunk := self._read(done):
                digest.update(chunk)
                if done + len(chunk) > copied:
                    file.seek(done)
                    file.write(chunk)
                done += len(chunk)
                step(done)
            file.flush()
            with suppress(OSError):  # not every server can
                extended(self.sftp, "fsync@openssh.com", file.handle)
        return digest.hexdigest()

    def _read(self, offset: int) -> bytes:
        try:
            return os.pread(self.fd, PIECE, offset)
        except OSError as exc:
            raise unreadable_source(exc) from exc

    def _copied(self, left: str, file: Any) -> int:
        """How many bytes the server has copied for us."""
        from paramiko.sftp import int64

        with suppress(OSError), self.sftp.open(left, "rb") as old:
            size = min(self.size, int(old.stat().st_size))
            extended(self.sftp, "copy-data", old.handle, int64(0), int64(size), file.handle, int64(0))
            return size
        return 0

    def _rename(self, part: str) -> None:
        """Give it its name. Whatever lies there is these bytes or damaged, since the key carries their hash."""
        place = self._place(self.leaf)
        try:
            self.sftp.posix_rename(part, place)
        except OSError as exc:
            if exc.errno is not None:
                raise
            # A server without it renames only where nothing is.
            with suppress(FileNotFoundError):
                self.sftp.remove(place)
            self.sftp.rename(part, place)

    @property
    def _prefix(self) -> str:
        return f".part-{self.sha256[:HASH_LENGTH]}-"

    def _place(self, name: str) -> str:
        return str(PurePosixPath(self.folder, name))


def measured(sftp: Any, place: str, size: int, step: Step) -> Stored:
    """What really lies there, read to its end."""
    digest, done = hashlib.sha256(), 0
    with sftp.open(place, "rb") as file:
        if size:
            file.prefetch(size)
        while chunk := file.read(PIECE):
            digest.update(chunk)
            done += len(chunk)
            step(done)
    return Stored(done, digest.hexdigest())
