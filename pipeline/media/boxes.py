"""How is a fragmented mp4 cut into pieces, and how is a piece moved to its place in time?

Only what HLS needs: what stands before the first fragment is the map, each `moof` with its `mdat` is a piece. A group
of segments is encoded as if the clip began with it; here its pieces get the time and the number that they really have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pipeline.core.errors import OutputInvalid

HEADER = struct.Struct(">I4s")
EDIT_TIME = 20  # bytes from the start of an edit list to the time of its first edit


def split(data: bytes) -> tuple[bytes, list[bytes]]:
    """The map, and the fragments in their order. OutputInvalid unless all of the file is one or the other."""
    found = [(kind, start, end) for kind, start, end in _boxes(data, 0, len(data))]
    starts = [start for kind, start, _ in found if kind == b"moof"]
    if not starts or [kind for kind, start, _ in found if start >= starts[0]] != [b"moof", b"mdat"] * len(starts):
        raise OutputInvalid("What ffmpeg wrote is not a row of fragments.")
    return data[: starts[0]], [data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]


def delay_of(head: bytes) -> int:
    """How many ticks of its stream a map hides: the pictures' way through the encoder. OutputInvalid if none."""
    return int(struct.unpack_from(">I", head, _edit_list(head) + EDIT_TIME)[0])


def delayed(head: bytes, ticks: int) -> bytes:
    """The same map, hiding so many ticks."""
    patched = bytearray(head)
    struct.pack_into(">I", patched, _edit_list(head) + EDIT_TIME, ticks)
    return bytes(patched)


def _edit_list(head: bytes) -> int:
    """Where a map says what it hides: in the one edit of its one track."""
    at, start, end = 0, 0, len(head)
    for wanted in (b"moov", b"trak", b"edts", b"elst"):
        found = [(at, until) for kind, at, until in _boxes(head, start, end) if kind == wanted]
        if len(found) != 1:
            raise OutputInvalid("What ffmpeg wrote has no single edit list.")
        (at, end) = found[0]
        start = at + HEADER.size
    if head[at + 8] != 0 or struct.unpack_from(">I", head, at + 12)[0] != 1:
        raise OutputInvalid("What ffmpeg wrote has more than one edit.")
    return at


def moved(fragment: bytes, ticks: int, number: int) -> bytes:
    """The same fragment, `ticks` later, as the `number`th of its stream."""
    patched = bytearray(fragment)
    (_, start, end), *_ = _boxes(fragment, 0, len(fragment))
    for kind, at, _ in _inside(fragment, start, end):
        if kind == b"mfhd":
            struct.pack_into(">I", patched, at + 12, number)
        elif kind == b"tfdt":
            if fragment[at + 8] != 1:
                raise OutputInvalid("A fragment has a time of 32 bits.")
            struct.pack_into(">Q", patched, at + 12, struct.unpack_from(">Q", fragment, at + 12)[0] + ticks)
    return bytes(patched)


def _inside(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The boxes in a `moof`, those in its tracks too."""
    for kind, at, until in _boxes(data, start + HEADER.size, end):
        yield kind, at, until
        if kind == b"traf":
            yield from _boxes(data, at + HEADER.size, until)


def _boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Kind, start and end of each box."""
    while start < end:
        size, kind = HEADER.unpack_from(data, start) if end - start >= HEADER.size else (0, b"")
        if size < HEADER.size or start + size > end:
            raise OutputInvalid("What ffmpeg wrote breaks off inside of a box.")
        yield kind, start, start + size
        start += size
