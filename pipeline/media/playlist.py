"""What do the playlists of an HLS package say, and is what they say true?

Pure text, one writer and one reader. Rates are counted from the segments that are there, as RFC 8216 defines them: the
peak is the highest rate of any run of segments about as long as the target duration.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pipeline.core.errors import OutputInvalid

NAME = "playlist.m3u8"
MASTER = "master.m3u8"
ROUNDING_S = 0.000_001  # of what is written


@dataclass(frozen=True)
class Segment:
    """One piece of a stream: where it lies, how long it is, and which map explains it."""

    uri: str
    seconds: float
    map_uri: str
    size: int = 0


@dataclass(frozen=True)
class Playlist:
    """A media playlist as it was read."""

    target_s: int
    segments: tuple[Segment, ...]
    is_complete: bool

    @property
    def seconds(self) -> float:
        return sum(segment.seconds for segment in self.segments)


@dataclass(frozen=True)
class Rates:
    """Bits per second: the peak and the average."""

    peak: int
    average: int


@dataclass(frozen=True)
class Rendition:
    """A stream of pictures as the master playlist names it."""

    uri: str
    rates: Rates
    codec: str
    width: int
    height: int
    fps: Fraction


@dataclass(frozen=True)
class Sound:
    """The stream of sound that all renditions share."""

    uri: str
    rates: Rates
    codec: str
    channels: int
    language: str | None = None


def media(segments: Sequence[Segment]) -> str:
    """The playlist of one stream. Each segment begins with a keyframe."""
    lines = [
        *("#EXTM3U", "#EXT-X-VERSION:7", f"#EXT-X-TARGETDURATION:{_target(segments)}", "#EXT-X-MEDIA-SEQUENCE:0"),
        *("#EXT-X-PLAYLIST-TYPE:VOD", "#EXT-X-INDEPENDENT-SEGMENTS"),
    ]
    current = None
    for segment in segments:
        if segment.map_uri != current:
            current = segment.map_uri
            lines.append(f'#EXT-X-MAP:URI="{current}"')
        lines += [f"#EXTINF:{segment.seconds:.6f},", segment.uri]
    return "\n".join([*lines, "#EXT-X-ENDLIST", ""])


def master(renditions: Sequence[Rendition], sound: Sound | None) -> str:
    """The playlist of playlists, the largest picture first."""
    lines = ["#EXTM3U", "#EXT-X-VERSION:7", "#EXT-X-INDEPENDENT-SEGMENTS"]
    if sound is not None:
        told = {"TYPE": "AUDIO", "GROUP-ID": '"sound"', "NAME": f'"{sound.language or "sound"}"'}
        told |= {"LANGUAGE": f'"{sound.language}"'} if sound.language else {}
        told |= {"DEFAULT": "YES", "AUTOSELECT": "YES", "CHANNELS": f'"{sound.channels}"', "URI": f'"{sound.uri}"'}
        lines.append(f"#EXT-X-MEDIA:{_attributes(told)}")
    for one in sorted(renditions, key=lambda r: (-r.height * r.width, r.uri)):
        rates = [one.rates, *([sound.rates] if sound else [])]
        told = _rates(rates) | {
            "RESOLUTION": f"{one.width}x{one.height}",
            "FRAME-RATE": f"{float(one.fps):.3f}",
            "CODECS": f'"{",".join([one.codec, *([sound.codec] if sound else [])])}"',
        }
        told |= {"AUDIO": '"sound"'} if sound else {}
        lines += [f"#EXT-X-STREAM-INF:{_attributes(told)}", one.uri]
    return "\n".join([*lines, ""])


def language(code: str | None) -> str | None:
    """The language if it is one that a playlist can name."""
    return code if code and code != "und" and re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})?", code) else None


def _rates(rates: Sequence[Rates]) -> dict[str, str]:
    return {"BANDWIDTH": str(sum(r.peak for r in rates)), "AVERAGE-BANDWIDTH": str(sum(r.average for r in rates))}


def _attributes(told: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in told.items())


def _target(segments: Sequence[Segment]) -> int:
    """No segment is longer than this when rounded to a whole second; at least 1."""
    return max([1, *(math.floor(segment.seconds + 0.5) for segment in segments)])


def rates_of(segments: Sequence[Segment]) -> Rates:
    """The peak over every run of segments of 0.5 to 1.5 target durations, and the average over all."""
    target_s = _target(segments)
    peak = 0.0
    for first in range(len(segments)):
        seconds = bits = 0.0
        for segment in segments[first:]:
            seconds, bits = seconds + segment.seconds, bits + 8 * segment.size
            if seconds > 1.5 * target_s:
                break
            if seconds >= 0.5 * target_s:
                peak = max(peak, bits / seconds)
    average = sum(8 * s.size for s in segments) / sum(s.seconds for s in segments)
    return Rates(math.ceil(max(peak, average)), math.ceil(average))


# -- reading them back -----------------------------------------------------------------------------------------------


def read(text: str) -> Playlist:
    """A media playlist; OutputInvalid if it is none."""
    if not text.startswith("#EXTM3U"):
        raise OutputInvalid("A playlist does not begin like one.")
    target = re.search(r"^#EXT-X-TARGETDURATION:(\d+)$", text, re.MULTILINE)
    segments: list[Segment] = []
    seconds, map_uri = None, ""
    for line in text.splitlines():
        if line.startswith("#EXTINF:"):
            seconds = float(line.removeprefix("#EXTINF:").partition(",")[0])
        elif line.startswith("#EXT-X-MAP:"):
            map_uri = line.partition('URI="')[2].partition('"')[0]
        elif line and not line.startswith("#"):
            if seconds is None:
                raise OutputInvalid(f"The playlist does not say how long {line} is.")
            segments.append(Segment(line, seconds, map_uri))
            seconds = None
    return Playlist(int(target[1]) if target else 0, tuple(segments), "#EXT-X-ENDLIST" in text.splitlines())


def check_media(text: str, sizes: Mapping[str, int], duration_s: float, tolerance_s: float) -> None:
    """OutputInvalid unless the playlist is complete: every file there and none left over, the right length in all."""
    told = read(text)
    named = {s.uri for s in told.segments} | {s.map_uri for s in told.segments}
    missing = sorted(name for name in named if not sizes.get(name))
    if missing:
        raise OutputInvalid(f"The playlist names {missing[0]}, which is not there or empty.")
    if set(sizes) - named:
        raise OutputInvalid(f"The playlist does not name {min(set(sizes) - named)}.")
    if len({s.uri for s in told.segments}) != len(told.segments):
        raise OutputInvalid("The playlist names a segment twice.")
    if not told.is_complete:
        raise OutputInvalid("The playlist has no end.")
    if told.target_s != _target(told.segments):
        raise OutputInvalid(f"The target duration is {told.target_s} s instead of {_target(told.segments)} s.")
    if abs(told.seconds - duration_s) > tolerance_s + ROUNDING_S * len(told.segments):
        raise OutputInvalid(f"The playlist lasts {told.seconds:.3f} s instead of {duration_s:.3f} s.")


def check_master(text: str, playlists: Sequence[str]) -> None:
    """OutputInvalid unless the master names exactly these playlists, once each, with what a player must know."""
    lines = text.splitlines()
    named = [line for line in lines if line and not line.startswith("#")]
    named += [line.partition('URI="')[2].partition('"')[0] for line in lines if line.startswith("#EXT-X-MEDIA:")]
    if sorted(named) != sorted(playlists):
        raise OutputInvalid("The master playlist does not name every playlist once.")
    for line in lines:
        if line.startswith("#EXT-X-STREAM-INF:") and not re.search(r'BANDWIDTH=[1-9]\d*,.*CODECS="[^"]+"', line):
            raise OutputInvalid("The master playlist does not say what a player must know.")
