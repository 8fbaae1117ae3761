"""What is in this media file?

Read with PyAV, in this process: the wheel's ffmpeg brings no ffprobe, and this takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import av
import av.container
import av.error
import av.stream
from av.audio.stream import AudioStream
from av.video.stream import VideoStream

from pipeline.core.errors import SourceUnreadable
from pipeline.files import Check, go_on, sha256_of
from pipeline.media.ends import CLAIMING, LACKING_S, Ends, cut_off_at, measured, promised, true_end
from pipeline.media.opening import reading

FRAMES_TO_TRY = 100  # packets that are decoded in search of a first picture


@dataclass(frozen=True)
class Video:
    """A video stream. Width and height are as stored: before rotation, in the stream's own pixels."""

    index: int
    codec: str
    width: int
    height: int
    rotation: int  # degrees clockwise that a player turns the picture: 0, 90, 180 or 270
    fps: Fraction
    pix_fmt: str
    pixel_aspect: Fraction = Fraction(1)
    duration_s: float | None = None
    has_variable_rate: bool = False
    finest_fps: Fraction | None = None  # the rate at which no picture of a variable rate is lost

    @property
    def steady_fps(self) -> Fraction:
        """The rate of a steady stream that shows the same."""
        return self.finest_fps or self.fps if self.has_variable_rate else self.fps

    @property
    def frame_s(self) -> float:
        """How long one picture stands."""
        return float(1 / self.fps)

    @property
    def shown_size(self) -> tuple[int, int]:
        """Width and height as a viewer sees them: square pixels, turned upright."""
        width = round(self.width * self.pixel_aspect)
        return (self.height, width) if self.rotation in (90, 270) else (width, self.height)


@dataclass(frozen=True)
class Audio:
    """An audio stream."""

    index: int
    codec: str
    sample_rate: int
    channels: int
    language: str | None = None


@dataclass(frozen=True)
class Facts:
    """What a media file holds. Times count from its own beginning, wherever its timestamps start."""

    duration_s: float
    container: str
    video: Video | None
    audio: tuple[Audio, ...]
    size_bytes: int
    start_s: float = 0.0
    claimed_s: float | None = None  # what the header says, where the packets break off well before

    @property
    def has_audio(self) -> bool:
        """Whether there is anything to hear."""
        return bool(self.audio)


def probe(path: Path) -> Facts:
    """The facts of a media file; SourceUnreadable for everything else, playlists and lists of files too."""
    with reading(path) as media:
        picture = _picture_stream(media)
        audio = tuple(_audio(stream) for stream in sorted(media.streams.audio, key=_is_aside) if _is_known(stream))
        if picture is None and not audio:
            raise SourceUnreadable(f"{path.name} has neither video nor audio.")
        size_bytes, said_s = path.stat().st_size, (media.duration or 0) / av.time_base
        cut_off_s = cut_off_at(media, size_bytes)
        facts = Facts(
            duration_s=said_s,
            container=media.format.name,
            video=_video(media, picture) if picture is not None else None,
            audio=audio,
            size_bytes=size_bytes,
            start_s=(media.start_time or 0) / av.time_base,
        )
    if said_s <= 0:
        ends = measured(path)
        return replace(facts, duration_s=ends.all_s, video=_ending(facts.video, ends))
    if CLAIMING.isdisjoint(facts.container.split(",")):
        return facts
    if "mov" in facts.container:
        claimed_s = said_s if cut_off_s < said_s else None
        return replace(facts, duration_s=min(said_s, cut_off_s), claimed_s=claimed_s)
    ends = true_end(path, said_s)
    claimed_s = said_s if ends.all_s < said_s - LACKING_S else promised(path, said_s)
    return replace(facts, duration_s=min(said_s, ends.all_s), claimed_s=claimed_s, video=_ending(facts.video, ends))


def _ending(video: Video | None, ends: Ends) -> Video | None:
    """The pictures, which end where their last packet does, if the container does not say."""
    return replace(video, duration_s=ends.video_s) if video and video.duration_s is None and ends.video_s else video


def _picture_stream(media: av.container.InputContainer) -> VideoStream | None:
    """The first stream of moving pictures; a cover image is none, and neither is a codec that we do not know."""
    still = av.stream.Disposition.attached_pic | av.stream.Disposition.timed_thumbnails
    for stream in media.streams.video:
        if _is_known(stream) and stream.codec_context.width and not stream.disposition & still:
            return stream
    return None


def _is_known(stream: av.stream.Stream) -> bool:
    """Whether there is a decoder; PyAV's types do not say that the context is None otherwise."""
    return getattr(stream, "codec_context", None) is not None


def _is_aside(stream: av.stream.Stream) -> bool:
    """Whether a player would take another track first, where one is marked."""
    return not stream.disposition & av.stream.Disposition.default


def _video(media: av.container.InputContainer, stream: VideoStream) -> Video:
    context = stream.codec_context
    rate = stream.average_rate or stream.guessed_rate or stream.base_rate or Fraction(25)
    return Video(
        index=stream.index,
        codec=context.name,
        width=context.width,
        height=context.height,
        rotation=_rotation(media, stream),
        fps=rate if 0 < rate <= 1000 else Fraction(25),
        pix_fmt=context.pix_fmt or "",
        pixel_aspect=stream.sample_aspect_ratio or Fraction(1),
        duration_s=float(stream.duration * stream.time_base) if stream.duration and stream.time_base else None,
        has_variable_rate=abs((stream.guessed_rate or rate) / rate - 1) > 0.01,
        finest_fps=stream.guessed_rate,
    )


def _rotation(media: av.container.InputContainer, stream: VideoStream) -> int:
    """How a player turns the picture; only a decoded picture says so."""
    try:
        for tried, packet in enumerate(media.demux(stream)):
            for frame in packet.decode():
                return -int(frame.rotation) % 360
            if tried > FRAMES_TO_TRY:
                break
    except av.error.FFmpegError:
        pass  # a damaged beginning: the rest may still be fine, and verification counts what comes out
    return 0


def _audio(stream: AudioStream) -> Audio:
    context = stream.codec_context
    return Audio(
        index=stream.index,
        codec=context.name,
        sample_rate=context.sample_rate or 0,
        channels=context.channels,
        language=stream.language,
    )


# -- looking at packets ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packet:
    """One stored picture: when it is shown and how long, and whether decoding can start with it."""

    at_s: float
    duration_s: float
    is_keyframe: bool


def pictures(path: Path, from_s: float, to_s: float) -> list[Packet]:
    """The video's packets in the order they are stored, from the keyframe at or before `from_s` until past `to_s`."""
    for lead_s in (0.0, 10.0, float("inf")):  # some containers seek only roughly
        found = list(_pictures(path, max(0.0, from_s - lead_s), to_s))
        starts = [n for n, p in enumerate(found) if p.is_keyframe and p.at_s <= from_s + p.duration_s / 2]
        if starts:
            return found[starts[-1] :]
    return []


def _pictures(path: Path, from_s: float, to_s: float) -> Iterator[Packet]:
    with reading(path) as media:
        stream = _picture_stream(media)
        if stream is None or stream.time_base is None:
            return
        zero_s = (media.start_time or 0) / av.time_base
        frame_s = float(1 / (stream.average_rate or 25))
        if from_s > 0:
            # A frame more: a start that was rounded down must still find the keyframe it means.
            media.seek(int((from_s + zero_s + frame_s / 2) / stream.time_base), stream=stream, backward=True)
        for packet in media.demux(stream):
            if packet.pts is None:
                continue
            decoded_s = float((packet.dts if packet.dts is not None else packet.pts) * stream.time_base) - zero_s
            duration_s = float((packet.duration or 0) * stream.time_base) or frame_s
            yield Packet(float(packet.pts * stream.time_base) - zero_s, duration_s, bool(packet.is_keyframe))
            if decoded_s > to_s + 2.0:
                return


def keyframes(path: Path, near_s: float, span_s: float = 15.0) -> tuple[float, ...]:
    """The times at which decoding can start, from the last one at or before `near_s` to `span_s` later."""
    return tuple(p.at_s for p in pictures(path, near_s, near_s + span_s) if p.is_keyframe)


def sha256(path: Path, check: Check = go_on) -> str:
    """The file's SHA-256 in hex."""
    with path.open("rb", buffering=0) as file:
        return sha256_of(file.fileno(), check)
