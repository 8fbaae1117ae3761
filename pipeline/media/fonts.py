"""Which font are captions burnt in with, and what can it show?

Roboto, from a package, so that it is there on every machine; its folder is found by the package's entry point. What it
can show is read from the font itself: a renderer would draw empty boxes for the rest, or nothing, and say so nowhere.
"""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from pipeline.core.errors import ToolMissing

NAME = "Roboto"
FILE = "Roboto-Regular.ttf"
READ_BY_SIGN = ("L", "M", "N")  # letters, marks, digits: without one of those, a text says something else


@cache
def locate() -> Path:
    """The font's file; ToolMissing if its package is not installed."""
    for found in entry_points(group="fonts_ttf", name="roboto"):
        path = Path(str(found.load()[NAME]))
        if path.is_file():
            return path
    raise ToolMissing("The font of captions is not installed: install the extra 'worker'.")


@cache
def signs() -> frozenset[int]:
    """Every character that the font can show."""
    return frozenset(_covered(locate().read_bytes()))


def missing(text: str) -> str:
    """The letters, marks and digits of a text that the font cannot show, each once."""
    unknown = dict.fromkeys(c for c in text if unicodedata.category(c)[0] in READ_BY_SIGN and ord(c) not in signs())
    return "".join(unknown)


def shown(text: str) -> str:
    """The text without what the font cannot show: a note of music, a picture. Letters are never left out silently."""
    return " ".join("".join(c if ord(c) in signs() or c.isspace() else " " for c in text).split())


# -- the table of a font that says which characters it knows ---------------------------------------------------------


def _covered(font: bytes) -> Iterator[int]:
    """The characters of the `cmap` table, in the formats that Unicode fonts have: 4 (up to U+FFFF) and 12 (all)."""
    (tables,) = struct.unpack_from(">H", font, 4)
    at = {font[12 + 16 * n : 16 + 16 * n]: struct.unpack_from(">I", font, 20 + 16 * n)[0] for n in range(tables)}
    cmap = at[b"cmap"]
    (subtables,) = struct.unpack_from(">H", font, cmap + 2)
    for n in range(subtables):
        _platform, _encoding, offset = struct.unpack_from(">HHI", font, cmap + 4 + 8 * n)
        (kind,) = struct.unpack_from(">H", font, cmap + offset)
        if kind == 4:
            yield from _format_4(font, cmap + offset)
        elif kind == 12:
            yield from _format_12(font, cmap + offset)


def _format_4(font: bytes, at: int) -> Iterator[int]:
    (twice,) = struct.unpack_from(">H", font, at + 6)
    count = twice // 2
    ends = struct.unpack_from(f">{count}H", font, at + 14)
    starts = struct.unpack_from(f">{count}H", font, at + 16 + twice)
    deltas = struct.unpack_from(f">{count}H", font, at + 16 + 2 * twice)
    offsets_at = at + 16 + 3 * twice
    offsets = struct.unpack_from(f">{count}H", font, offsets_at)
    for n, (start, end, delta, offset) in enumerate(zip(starts, ends, deltas, offsets, strict=True)):
        for code in range(start, min(end, 0xFFFE) + 1):
            glyph = code
            if offset:
                (glyph,) = struct.unpack_from(">H", font, offsets_at + 2 * n + offset + 2 * (code - start))
            if glyph and (glyph + delta) % 0x10000:
                yield code


def _format_12(font: bytes, at: int) -> Iterator[int]:
    (groups,) = struct.unpack_from(">I", font, at + 12)
    for n in range(groups):
        start, end, glyph = struct.unpack_from(">III", font, at + 16 + 12 * n)
        yield from range(start + (glyph == 0), end + 1)
