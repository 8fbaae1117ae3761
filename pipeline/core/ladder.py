"""Which renditions apply to a source, and how large is each?

A quality is named after the short side of the picture, so `720p` of a portrait video is 720 wide. No rendition is
larger than its source; `source` always applies and keeps the source's size.
"""

from __future__ import annotations

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
