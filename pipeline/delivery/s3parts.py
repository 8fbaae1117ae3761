"""In which pieces does a file go to S3, and how is each of them known again?

A file is read once before anything is sent: then the hash of every piece is known, and with it what the server must
answer. After a crash, a piece that lies there with its hash is not sent again.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from pipeline.delivery.attended import Step
from pipeline.delivery.target import unreadable_source
from pipeline.files import CHUNK, Check

MOST_PARTS = 10_000
STEP_BYTES = 256 * 1024
STEP_S = 0.5


@dataclass(frozen=True)
class Piece:
    """A part of a file."""

    number: int
    offset: int
    size: int
    sha256: bytes
    md5: bytes

    @property
    def checksum(self) -> str:
        return base64.b64encode(self.sha256).decode()

    def lies_there(self, part: Mapping[str, Any]) -> bool:
        """Whether a part that the server lists is this piece, by the best hash that it tells."""
        if part["Size"] != self.size:
            return False
        if "ChecksumSHA256" in part:
            return bool(part["ChecksumSHA256"] == self.checksum)
        return bool(part.get("ETag", "").strip('"') == self.md5.hex())


@dataclass(frozen=True)
class Plan:
    """A whole file, piece by piece."""

    size: int
    sha256: str
    pieces: tuple[Piece, ...]

    @property
    def composite(self) -> str:
        """What S3 calls the checksum of an object that came in parts: the hash of their hashes, and how many."""
        joined = hashlib.sha256(b"".join(piece.sha256 for piece in self.pieces)).digest()
        return f"{base64.b64encode(joined).decode()}-{len(self.pieces)}"


def planned(fd: int, part_bytes: int, check: Check, moved: Step) -> Plan:
    """Read the file through and plan its pieces; at least one, for an empty file too."""
    size = os.fstat(fd).st_size
    span = max(part_bytes, -(-size // MOST_PARTS))
    whole, pieces = hashlib.sha256(), []
    for number, offset in enumerate(range(0, max(size, 1), span), 1):
        sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
        length = min(span, size - offset)
        done = 0
        while done < length and (chunk := _read(fd, min(CHUNK, length - done), offset + done)):
            check()
            for digest in (whole, sha256, md5):
                digest.update(chunk)
            done += len(chunk)
            moved(offset + done)
        pieces.append(Piece(number, offset, length, sha256.digest(), md5.digest()))
    return Plan(size, whole.hexdigest(), tuple(pieces))


def _read(fd: int, size: int, offset: int) -> bytes:
    try:
        return os.pread(fd, size, offset)
    except OSError as exc:
        raise unreadable_source(exc) from exc


class Body:
    """A piece of a file as botocore reads it. Each time that it has moved on it takes a step, before the bytes are
    handed out: whoever stops it at the last step keeps the request from ever being complete."""

    def __init__(self, fd: int, piece: Piece, step: Step) -> None:
        self._fd = os.dup(fd)  # ours, also if the request is left behind
        self._piece, self._step = piece, step
        self._at = self._read = self._told = 0
        self._told_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        os.close(self._fd)

    def read(self, size: int = -1) -> bytes:
        left = self._piece.size - self._at
        data = _read(self._fd, left if size < 0 else min(size, left), self._piece.offset + self._at)
        self._at += len(data)
        self._read += len(data)
        if data and self._is_time():
            self._told, self._told_at = self._read, time.monotonic()
            self._step(self._read)
        return data

    def _is_time(self) -> bool:
        at_the_end = self._at == self._piece.size
        return at_the_end or self._read - self._told >= STEP_BYTES or time.monotonic() - self._told_at >= STEP_S

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._piece.size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at
