"""What does a player see of an HLS package in a folder?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import av

LOCAL = {"allowed_extensions": "ALL", "protocol_whitelist": "file"}


@dataclass(frozen=True)
class Played:
    """What was decoded."""

    pictures: int
    first_s: float
    longest_gap_s: float
    sound_s: float


@dataclass(frozen=True)
class Streams:
    """The playlists that a master names."""

    pictures: dict[str, Path]
    sound: Path | None


def master_of(output: Path, job: UUID, clip: str = "") -> Path:
    (found,) = (output / "jobs" / str(job)).glob(f"g*/{clip}*-master-*/master.m3u8")
    return found


def streams_of(master: Path) -> Streams:
    lines = master.read_text().splitlines()
    sound = [line.partition('URI="')[2].rstrip('"') for line in lines if line.startswith("#EXT-X-MEDIA:")]
    pictures = {line: (master.parent / line).resolve() for line in lines if line and not line.startswith("#")}
    return Streams(pictures, master.parent / sound[0] if sound else None)


def play(path: Path) -> Played:
    """Decode everything; a picture that cannot be decoded, or comes before its time, ends it with an error."""
    options = LOCAL if path.suffix == ".m3u8" else {}
    with av.open(str(path), options=options) as media:
        seen = [(frame.time, getattr(frame, "samples", 0)) for frame in media.decode() if not frame.is_corrupt]
        rate = media.streams[0].codec_context.sample_rate if media.streams.audio else 1
    times = [at_s for at_s, _ in seen]
    samples = sum(count for _, count in seen)
    assert all(later > earlier for earlier, later in pairwise(times))
    return Played(
        pictures=0 if samples else len(seen),
        first_s=times[0],
        longest_gap_s=max((later - earlier for earlier, later in pairwise(times)), default=0.0),
        sound_s=samples / rate,
    )
