"""Is a file that was made what was asked for?

Headers lie: a truncated mp4 claims its full duration in every one of them. So the packets are counted, and the last
one says how long the file really is. Decoding is not needed for that; who wants to pay for it can have it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import av.error
from av.video.frame import VideoFrame

from pipeline.core.errors import OutputEmpty, OutputInvalid, SourceUnreadable
from pipeline.files import Check, go_on
from pipeline.media.opening import reading

CHECK_EVERY_PACKETS = 500


@dataclass(frozen=True)
class Expected:
    """What the file must hold. None means: whatever it is."""

    duration_s: float
    tolerance_s: float
    has_video: bool = True
    has_audio: bool | None = None  # True: from the beginning to the end
    width: int | None = None
    height: int | None = None
    pictures: int | None = None


@dataclass(frozen=True)
class Measured:
    """What the packets say."""

    duration_s: float
    video_packets: int
    audio_packets: int
    size_bytes: int


@dataclass
class _Track:
    packets: int = 0
    start_s: float = math.inf
    end_s: float = 0.0


def verify(path: Path, expected: Expected, check: Check = go_on, *, decode: bool = False) -> Measured:
    """What was measured, if the file is what was expected; OutputEmpty or OutputInvalid otherwise."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise OutputEmpty(f"{path.name} was not written.") from None
    if size == 0:
        raise OutputEmpty(f"{path.name} is empty.")
    try:
        video, audio, sizes = _measure(path, check)
    except (SourceUnreadable, av.error.FFmpegError) as exc:
        raise OutputInvalid(f"{path.name} cannot be read back: {exc}") from exc
    _compare(path.name, expected, video, audio, sizes)
    if decode:
        _decode(path, video.packets, check)
    lead = video if expected.has_video else audio
    return Measured(lead.end_s, video.packets, audio.packets, size)


def _measure(path: Path, check: Check) -> tuple[_Track, _Track, set[tuple[int, int]]]:
    tracks = {"video": _Track(), "audio": _Track()}
    with reading(path) as media:
        sizes = {(s.codec_context.width, s.codec_context.height) for s in media.streams.video}
        for number, packet in enumerate(media.demux()):
            if number % CHECK_EVERY_PACKETS == 0:
                check()
            track = tracks.get(packet.stream.type)
            if track is None or packet.pts is None or packet.is_discard:
                continue
            if packet.is_corrupt or packet.size == 0:
                raise OutputInvalid(f"{path.name} is cut off or damaged at {track.end_s:.3f} s.")
            track.packets += 1
            track.start_s = min(track.start_s, float(packet.pts * packet.time_base))
            track.end_s = max(track.end_s, float((packet.pts + (packet.duration or 0)) * packet.time_base))
    return tracks["video"], tracks["audio"], sizes


def _decode(path: Path, pictures: int, check: Check) -> None:
    """See every picture and hear every sound; OutputInvalid for the first one that cannot be decoded."""
    seen = 0
    try:
        with reading(path) as media:
            for stream in media.streams:
                stream.codec_context.thread_type = "AUTO"
            for number, frame in enumerate(media.decode()):
                if number % CHECK_EVERY_PACKETS == 0:
                    check()
                seen += isinstance(frame, VideoFrame)
                if frame.is_corrupt:
                    raise OutputInvalid(f"{path.name} is damaged at {frame.time or 0:.3f} s.")
    except (SourceUnreadable, av.error.FFmpegError) as exc:
        raise OutputInvalid(f"{path.name} cannot be decoded: {exc}") from exc
    if seen != pictures:
        raise OutputInvalid(f"{path.name} has {pictures} pictures, of which {seen} can be decoded.")


def _compare(name: str, expected: Expected, video: _Track, audio: _Track, sizes: set[tuple[int, int]]) -> None:
    if expected.has_video != bool(video.packets):
        raise OutputInvalid(f"{name} has {video.packets} pictures.")
    if expected.pictures not in (None, video.packets):
        raise OutputInvalid(f"{name} has {video.packets} pictures instead of {expected.pictures}.")
    if expected.has_audio not in (None, bool(audio.packets)):
        raise OutputInvalid(f"{name} has {audio.packets} packets of sound.")
    if expected.width is not None and (expected.width, expected.height) not in sizes:
        raise OutputInvalid(f"{name} is not {expected.width}x{expected.height}.")
    end_s = video.end_s if expected.has_video else audio.end_s
    if abs(end_s - expected.duration_s) > expected.tolerance_s:
        raise OutputInvalid(f"{name} lasts {end_s:.3f} s instead of {expected.duration_s:.3f} s.")
    if expected.has_video and video.start_s > expected.tolerance_s:
        raise OutputInvalid(f"{name} has no picture before {video.start_s:.3f} s.")
    # Sound comes in packets of about 20 ms, so it may end a little beside the picture.
    if expected.has_video and expected.has_audio and audio.end_s < end_s - max(0.1, expected.tolerance_s):
        raise OutputInvalid(f"{name} has sound for {audio.end_s:.3f} s of {end_s:.3f} s.")
