"""What is in this media file?

Read with PyAV, in this process: the wheel's ffmpeg brings no ffprobe, and this takes milliseconds. Only containers
that hold their own media are opened: a playlist or a concat list would make us read other files and addresses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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

# The demuxers that read one file and nothing else.
CONTAINERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpegts,mpeg,mpegvideo,avi,flv,asf,ogg,mxf,gxf,dv,ivf,nut,rm,swf,wtv,"
    "h264,hevc,m4v,obu,wav,w64,mp3,aac,ac3,eac3,flac,aiff,au,caf,amr"
)
READ_ONLY_THIS = {"protocol_whitelist": "file", "format_whitelist": CONTAINERS}
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

    @property
    def has_audio(self) -> bool:
        """Whether there is anything to hear."""
        return bool(self.audio)


@contextmanager
def reading(path: Path) -> Iterator[av.container.InputContainer]:
    """The file, opened for demuxing. Whatever PyAV finds wrong with it is SourceUnreadable."""
    try:
        with av.open(f"file:{path}", options=READ_ONLY_THIS, metadata_errors="replace") as media:
            yield media
    except av.error.ArgumentError as exc:  # what libav says of a demuxer that is not on the list
        raise SourceUnreadable(f"{path.name} is a list of other files, or of a kind that is not read.") from exc
    except av.error.FFmpegError as exc:
        raise SourceUnreadable(f"{path.name} cannot be read as media: {exc.strerror or 'invalid data'}.") from exc


def probe(path: Path) -> Facts:
    """The facts of a media file; SourceUnreadable for everything else, playlists and lists of files too."""
    with reading(path) as media:
        picture = _picture_stream(media)
        audio = tuple(_audio(stream) for stream in media.streams.audio if _is_known(stream))
        if picture is None and not audio:
            raise SourceUnreadable(f"{path.name} has neither video nor audio.")
        facts = Facts(
            duration_s=min((media.duration or 0) / av.time_base, _cut_off_at(media, path.stat().st_size)),
            container=media.format.name,
            video=_video(media, picture) if picture is not None else None,
            audio=audio,
            size_bytes=path.stat().st_size,
            start_s=(media.start_time or 0) / av.time_base,
        )
    if facts.duration_s > 0:
        return facts
    return Facts(**{**vars(facts), "duration_s": _measured_duration(path)})


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


def _cut_off_at(media: av.container.InputContainer, size_bytes: int) -> float:
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


def _measured_duration(path: Path) -> float:
    """The duration of a file whose header gives none (a recording that was never closed): the last packet's end."""
    with reading(path) as media:
        ends = [
            float((packet.pts + (packet.duration or 0)) * packet.time_base) - (media.start_time or 0) / av.time_base
            for packet in media.demux()
            if packet.pts is not None
        ]
    if not ends or max(ends) <= 0:
        raise SourceUnreadable(f"{path.name} has no duration.")
    return max(ends)


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
            if decoded_s > to_s + 2.0:
                return
            duration_s = float((packet.duration or 0) * stream.time_base) or frame_s
            yield Packet(float(packet.pts * stream.time_base) - zero_s, duration_s, bool(packet.is_keyframe))


def keyframes(path: Path, near_s: float, span_s: float = 15.0) -> tuple[float, ...]:
    """The times at which decoding can start, from the last one at or before `near_s` to `span_s` later."""
    return tuple(p.at_s for p in pictures(path, near_s, near_s + span_s) if p.is_keyframe)


def sha256(path: Path, check: Check = go_on) -> str:
    """The file's SHA-256 in hex."""
    with path.open("rb", buffering=0) as file:
        return sha256_of(file.fileno(), check)
