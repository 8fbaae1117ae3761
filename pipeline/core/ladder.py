"""Which renditions apply to a source, how large is each, and on which grid of pictures do their segments lie?

A quality is named after the short side of the picture, so `720p` of a portrait video is 720 wide. No rendition is
larger than its source; `source` always applies and keeps the source's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

SOURCE: Final = "source"
HEIGHTS: Final[dict[str, int]] = {
    "2160p": 2160,
    "1440p": 1440,
    "1080p": 1080,
    "720p": 720,
    "480p": 480,
    "360p": 360,
    "240p": 240,
}
QUALITIES: Final[tuple[str, ...]] = (SOURCE, *HEIGHTS)

# The most that a player must be ready to load per second, by the short side, up to 30 pictures a second.
KBITS: Final[dict[int, int]] = {2160: 16000, 1440: 9000, 1080: 6000, 720: 3500, 480: 1600, 360: 900, 240: 500}
MOST_FPS: Final = Fraction(60)
RATES: Final = (
    *(Fraction(whole * 1000, 1001) for whole in (24, 30, 60)),
    *(Fraction(whole) for whole in (24, 25, 30, 48, 50, 60)),
)
NEARLY: Final = Fraction(1, 2002)  # half of what lies between 24 and 24000/1001


def height_for(quality: str) -> int | None:
    """The short side of a quality; None for `source`. Raises KeyError for a name that is not in QUALITIES."""
    return None if quality == SOURCE else HEIGHTS[quality]


def applies(quality: str, source_width: int, source_height: int) -> bool:
    """Whether this quality can be made without enlarging the source."""
    short = height_for(quality)
    return short is None or short <= min(source_width, source_height)


def size_for(quality: str, source_width: int, source_height: int) -> tuple[int, int]:
    """Width and height of a rendition, both even, in the source's proportions and never above its size."""
    short = min(source_width, source_height)
    wanted = min(height_for(quality) or short, short)
    return _even(source_width, wanted, short), _even(source_height, wanted, short)


def _even(side: int, wanted: int, short: int) -> int:
    """side x wanted / short, rounded to an even number that does not exceed the side (2 at least)."""
    nearest = 2 * ((side * wanted + short) // (2 * short))
    return max(2, min(nearest, side - side % 2))


def most_kbits(width: int, height: int, fps: Fraction) -> int:
    """The most that a rendition of this size may take per second; half as much again above 30 pictures a second."""
    fitting = [kbits for short, kbits in KBITS.items() if short >= min(width, height)]
    kbits = min(fitting, default=max(KBITS.values()))
    return kbits * 3 // 2 if fps > 30 else kbits


def steady_rate(fps: Fraction) -> Fraction:
    """The rate at which a rendition shows pictures: what a container rounded is the usual rate again, 60 at most."""
    near = (rate for rate in RATES if abs(fps / rate - 1) < NEARLY)
    return min(next(near, fps), MOST_FPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Where the segments of a clip begin, counted in pictures: the same for every rendition, so they can be swapped.

    Segments are made in groups. The last one of each may be shorter.
    """

    start_s: float
    fps: Fraction
    pictures: int
    per_segment: int
    per_group: int  # pictures, a whole number of segments

    @property
    def duration_s(self) -> float:
        return float(self.pictures / self.fps)

    @property
    def segments(self) -> int:
        return -(-self.pictures // self.per_segment)

    def groups(self) -> list[tuple[int, int]]:
        """The first picture of each group, and how many it has."""
        return [(n, min(self.per_group, self.pictures - n)) for n in range(0, self.pictures, self.per_group)]

    def lengths(self, first: int, count: int) -> list[int]:
        """How many pictures each segment of such a group has."""
        return [min(self.per_segment, first + count - n) for n in range(first, first + count, self.per_segment)]


def grid_for(start_s: float, end_s: float, fps: Fraction, segment_s: float, group_segments: int) -> Grid:
    """The grid of a clip: whole pictures at the true rate, segments as near to `segment_s` as pictures allow."""
    rate = steady_rate(fps)
    per_segment = max(1, round(rate * Fraction(segment_s)))
    return Grid(
        start_s=start_s,
        fps=rate,
        pictures=max(1, round((end_s - start_s) * rate)),
        per_segment=per_segment,
        per_group=per_segment * group_segments,
    )
