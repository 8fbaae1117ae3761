"""Where does a file really end, whatever its header says?

A truncated file claims its full duration in every header. An index that points past the end of the file gives it away
at once; elsewhere the packets are counted.
"""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import av
import av.container
import av.error
import av.stream

from pipeline.core.errors import SourceUnreadable
from pipeline.media.opening import reading

# Their headers say how long they are, whatever became of the rest; the duration of others is an estimate.
CLAIMING = frozenset({"mov", "matroska", "avi", "flv", "asf"})
LACKING_S = 1.0  # so much less than claimed is no rounding any more
TAIL_S = 10.0


@dataclass(frozen=True)
class Ends:
    """When the last packet ends, and the last one with a picture."""

    all_s: float
    video_s: float


def true_end(path: Path, said_s: float) -> Ends:
    """Where the packets end: looked up in the tail, and counted from the beginning if it is not where it should be."""
    with suppress(SourceUnreadable):
        tail = measured(path, said_s - TAIL_S)
        if tail.all_s >= said_s - LACKING_S:
            return tail
    return measured(path)


def promised(path: Path, found_s: float) -> float | None:
    """How long an AVI is that breaks off: its duration is measured by what is there, but it promises more bytes."""
    with path.open("rb") as file:
        mark, size, kind = struct.unpack("<4sI4s", file.read(12).ljust(12, b"\0"))
    share = (size + 8) / path.stat().st_size
    return found_s * share if (mark, kind) == (b"RIFF", b"AVI ") and share > 1 else None


def measured(path: Path, from_s: float = 0.0) -> Ends:
    """Where the packets end, seen from `from_s` on; SourceUnreadable if there are none. Damage ends the count."""
    all_s = video_s = 0.0
    with reading(path) as media:
        zero_s = (media.start_time or 0) / av.time_base
        if from_s > 0:
            media.seek(int((from_s + zero_s) * av.time_base), backward=True)
        with suppress(av.error.FFmpegError):
            for packet in media.demux():
                if packet.pts is None or not packet.size:
                    continue
                end_s = float((packet.pts + (packet.duration or 0)) * packet.time_base) - zero_s
                all_s = max(all_s, end_s)
                video_s = max(video_s, end_s if packet.stream.type == "video" else 0.0)
    if all_s <= 0:
        raise SourceUnreadable(f"{path.name} has no duration.")
    return Ends(all_s, video_s)


def cut_off_at(media: av.container.InputContainer, size_bytes: int) -> float:
    """Where an mp4 breaks off whose index points past the end of the file; infinity if it is whole."""
    if "mp4" not in media.format.name.split(","):
        return math.inf
    return min((_first_beyond(stream, size_bytes) for stream in media.streams), default=math.inf)


def _first_beyond(stream: av.stream.Stream, size_bytes: int) -> float:
    at_s = math.inf
    for number in range(len(stream.index_entries) - 1, -1, -1):
        entry = stream.index_entries[number]
        if entry.pos + entry.size <= size_bytes:
            break
        at_s = float(entry.timestamp * (stream.time_base or 0))
    return at_s
