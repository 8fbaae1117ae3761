"""Every kind of source that a clip is made of in the tests: how it is generated, and what must come out.

docs/reference/media.md shows the same table; tests/media/test_oddities.py sees that both are one, and that it is true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.media.conftest import run_ffmpeg

Maker = Callable[[Path], None]

SECONDS = 2
X264 = ("-c:v", "libx264", "-preset", "ultrafast", "-g", "25", "-keyint_min", "25", "-sc_threshold", "0")
AAC = ("-c:a", "aac")
TONE = ("-f", "lavfi", "-i", "sine=frequency=440")


@dataclass(frozen=True)
class Made:
    """What a clip measures: as an mp4, and the pictures of its HLS rendition."""

    mode: str
    width: int
    height: int
    pictures: int
    sound: bool = True
    hls: int | None = None  # if not as many as in the mp4

    def __str__(self) -> str:
        how = "copied" if self.mode == "copy" else "encoded"
        other = f"; HLS: {self.hls} pictures" if self.hls is not None else ""
        told = f"{how}, {self.width}x{self.height}, {self.pictures} pictures, {'sound' if self.sound else 'no sound'}"
        return told + other


@dataclass(frozen=True)
class Refused:
    """The error that says why there is no clip."""

    code: str

    def __str__(self) -> str:
        return f"refused: {self.code}"


@dataclass(frozen=True)
class Oddity:
    """A source, the piece that is asked for, and what comes of it."""

    container: str
    codecs: str
    oddity: str
    make: Maker
    comes: Made | Refused
    start_s: float = 0.5
    end_s: float | None = 1.5

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        """As it stands in the page."""
        end = "end" if self.end_s is None else f"{self.end_s:g} s"
        return self.container, self.codecs, self.oddity, f"{self.start_s:g} s to {end}", str(self.comes)


def picture(size: str = "320x180", rate: str = "25", seconds: float = SECONDS) -> tuple[str, ...]:
    return ("-f", "lavfi", "-i", f"testsrc2=size={size}:rate={rate}:duration={seconds}")


def video(*options: str, size: str = "320x180", rate: str = "25", sound: bool = True) -> Maker:
    """A file with a moving picture and a tone."""

    def make(path: Path) -> None:
        tone = TONE if sound else ()
        run_ffmpeg(*picture(size, rate), *tone, "-t", str(SECONDS), *options, path)

    return make


def then(first: Maker, second: Callable[[Path, Path], None], suffix: str = ".mp4") -> Maker:
    """A file that is made of another one."""

    def make(path: Path) -> None:
        between = path.with_name(f"{path.stem}-before{suffix}")
        first(between)
        second(between, path)

    return make


def remuxed(*options: str, before: tuple[str, ...] = ()) -> Callable[[Path, Path], None]:
    return lambda source, path: run_ffmpeg(*before, "-i", source, *options, path)


def cut_off(share: float) -> Callable[[Path, Path], None]:
    return lambda source, path: _write(path, source.read_bytes()[: int(source.stat().st_size * share)])


def twice(source: Path, path: Path) -> None:
    """The same stream again, so that its clock jumps back."""
    _write(path, source.read_bytes() * 2)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


H264 = video(*X264, *AAC)
FAST = video(*X264, *AAC, "-movflags", "+faststart")
PLAIN = Made("encode", 320, 180, 25)
MUTE = Made("encode", 320, 180, 25, sound=False)
LEAP = "setpts='if(gte(T,1),PTS+36000/TB,PTS)'"
THINNED = "select='lt(mod(n,25),5)+not(mod(n,5))'"

ODDITIES: tuple[Oddity, ...] = (
    # -- containers and codecs
    Oddity("mp4", "h264, aac", "the piece begins with a keyframe", H264, Made("copy", 320, 180, 25), 1.0, None),
    Oddity("mp4", "h264, aac", "the piece begins between keyframes", H264, PLAIN),
    Oddity(
        *("mov", "hevc, aac", "the piece begins with a keyframe"),
        video(
            "-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "keyint=25:min-keyint=25:log-level=none", *AAC
        ),
        *(Made("copy", 320, 180, 25), 1.0, None),
    ),
    Oddity("mov", "prores, pcm", "none", video("-c:v", "prores_ks", "-c:a", "pcm_s16le"), PLAIN),
    Oddity(
        "mp4", "h264 in fragments, aac", "no index", video(*X264, *AAC, "-movflags", "+frag_keyframe+empty_moov"), PLAIN
    ),
    Oddity("mkv", "h264, aac", "the piece begins with a keyframe", H264, PLAIN, 1.0, None),
    Oddity("mkv", "h264, aac", "never closed: no duration", video(*X264, *AAC, "-live", "1"), PLAIN),
    Oddity("mkv", "ffv1, flac", "none", video("-c:v", "ffv1", "-c:a", "flac"), PLAIN),
    Oddity("webm", "vp8, vorbis", "none", video("-c:v", "libvpx", "-deadline", "realtime", "-c:a", "libvorbis"), PLAIN),
    Oddity(
        "webm",
        "vp9, opus",
        "none",
        video("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus"),
        PLAIN,
    ),
    Oddity("ts", "h264, aac", "its clock begins at 1.4 s", H264, PLAIN),
    Oddity("ts", "mpeg2video, mp2", "none", video("-c:v", "mpeg2video", "-c:a", "mp2"), PLAIN),
    Oddity("mpg", "mpeg1video, mp2", "none", video("-c:v", "mpeg1video", "-c:a", "mp2"), PLAIN),
    Oddity("avi", "mpeg4, mp3", "none", video("-c:v", "mpeg4", "-c:a", "libmp3lame"), PLAIN),
    Oddity("flv", "h264, aac", "none", H264, PLAIN),
    Oddity("wmv", "wmv2, wmav2", "none", video("-c:v", "wmv2", "-c:a", "wmav2"), PLAIN),
    Oddity("ogv", "theora, vorbis", "none", video("-c:v", "libtheora", "-c:a", "libvorbis"), PLAIN),
    # -- pictures
    Oddity(
        *("mp4", "h264, aac", "turned by 90 degrees"),
        then(H264, remuxed("-c", "copy", before=("-display_rotation", "90"))),
        Made("encode", 180, 320, 25),
    ),
    Oddity(
        *("mp4", "h264, aac", "upside down"),
        then(H264, remuxed("-c", "copy", before=("-display_rotation", "180"))),
        PLAIN,
    ),
    Oddity("mp4", "h264, aac", "portrait", video(*X264, *AAC, size="180x320"), Made("encode", 180, 320, 25)),
    Oddity(
        *("mkv", "h264, no sound", "odd sides: 321x181"),
        video(*X264, "-pix_fmt", "yuv444p", size="321x181", sound=False),
        MUTE,
    ),
    Oddity(
        "mp4", "h264, aac", "pixels twice as wide as high", video(*X264, *AAC, "-vf", "setsar=2", size="160x180"), PLAIN
    ),
    Oddity(
        "mkv",
        "h264 of 10 bits, aac",
        "more colours than players show",
        video(*X264, *AAC, "-pix_fmt", "yuv422p10le"),
        PLAIN,
    ),
    Oddity(
        "mp4",
        "h264, aac",
        "23.976 pictures a second",
        video(*X264, *AAC, rate="24000/1001"),
        Made("encode", 320, 180, 24),
    ),
    Oddity(
        "mp4",
        "h264, aac",
        "120 pictures a second",
        video(*X264, *AAC, rate="120"),
        Made("encode", 320, 180, 120, hls=60),
    ),
    Oddity(
        *("mp4", "h264, aac", "variable rate: 25 to 5 pictures a second"),
        video(*X264, *AAC, "-vf", THINNED, "-fps_mode", "vfr"),
        Made("encode", 320, 180, 9, hls=25),
    ),
    # -- sound
    Oddity("mp4", "h264, no sound", "none", video(*X264, sound=False), MUTE),
    Oddity(
        *("mkv", "h264, aac x 2", "two tracks; the second is the default"),
        lambda path: run_ffmpeg(
            *(*picture(), "-f", "lavfi", "-i", "anullsrc", *TONE, "-t", str(SECONDS)),
            *(
                "-map",
                "0",
                "-map",
                "1",
                "-map",
                "2",
                *X264,
                *AAC,
                "-disposition:a:0",
                "0",
                "-disposition:a:1",
                "default",
            ),
            path,
        ),
        PLAIN,
    ),
    Oddity("mp4", "h264, aac", "six channels of sound", video(*X264, *AAC, "-ac", "6"), PLAIN),
    Oddity(
        *("mp4", "h264, aac", "sound ends after 1 s"),
        lambda path: run_ffmpeg(*picture(), "-f", "lavfi", "-i", "sine=duration=1", *X264, *AAC, path),
        PLAIN,
    ),
    # -- broken
    Oddity("ts", "h264, aac", "the clock jumps back", then(H264, twice, ".ts"), PLAIN),
    Oddity(
        *("mkv", "h264, no sound", "the clock leaps ten hours after 1 s"),
        lambda path: run_ffmpeg(*picture(), *X264, "-vf", LEAP, "-fps_mode", "passthrough", path),
        Made("encode", 320, 180, 12, sound=False, hls=25),
    ),
    Oddity(
        "mp4",
        "h264, aac",
        "cut off at 60 %; the piece is before",
        then(FAST, cut_off(0.6)),
        Made("encode", 320, 180, 15),
        0.2,
        0.8,
    ),
    Oddity(
        "mp4",
        "h264, aac",
        "cut off at 40 %; the piece is not there",
        then(FAST, cut_off(0.4)),
        Refused("SOURCE_TRUNCATED"),
    ),
    Oddity(
        "mp4",
        "h264, aac",
        "cut off at 40 %, up to the end",
        then(FAST, cut_off(0.4)),
        Refused("SOURCE_TRUNCATED"),
        0.1,
        None,
    ),
    Oddity(
        "mkv",
        "h264, aac",
        "cut off at 40 %; the piece is not there",
        then(H264, cut_off(0.4), ".mkv"),
        Refused("SOURCE_TRUNCATED"),
    ),
    Oddity(
        *("avi", "mpeg4, mp3", "cut off at 40 %; the piece is not there"),
        then(video("-c:v", "mpeg4", "-c:a", "libmp3lame"), cut_off(0.4), ".avi"),
        Refused("SOURCE_TRUNCATED"),
    ),
    Oddity(
        "flv",
        "h264, aac",
        "cut off at 40 %; the piece is not there",
        then(H264, cut_off(0.4), ".flv"),
        Refused("SOURCE_TRUNCATED"),
    ),
    Oddity(
        "mp4",
        "h264, aac",
        "cut off, and its index was at the end",
        then(H264, cut_off(0.6)),
        Refused("SOURCE_UNREADABLE"),
    ),
    Oddity(
        "mp4",
        "text",
        "no video at all",
        lambda path: _write(path, b"no video at all\n" * 99),
        Refused("SOURCE_UNREADABLE"),
    ),
    Oddity("mp4", "nothing", "empty", lambda path: _write(path, b""), Refused("SOURCE_UNREADABLE")),
)
