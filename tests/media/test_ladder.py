"""Which renditions apply to a source? (Pure.)"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core import ladder

SIDES = st.integers(min_value=2, max_value=8192)


@pytest.mark.parametrize(
    ("quality", "width", "height", "answer"),
    [
        ("720p", 1280, 720, True),
        ("1080p", 1280, 720, False),
        ("720p", 720, 1280, True),  # portrait: its short side counts
        ("1080p", 720, 1280, False),
        ("source", 3, 3, True),
    ],
)
def test_a_quality_applies_unless_it_would_enlarge_the_source(
    quality: str, width: int, height: int, answer: bool
) -> None:
    assert ladder.applies(quality, width, height) is answer


@pytest.mark.parametrize(
    ("quality", "source", "size"),
    [
        ("720p", (1920, 1080), (1280, 720)),
        ("720p", (1080, 1920), (720, 1280)),
        ("480p", (1920, 1080), (854, 480)),
        ("360p", (1440, 1080), (480, 360)),
        ("source", (321, 241), (320, 240)),
        ("2160p", (640, 360), (640, 360)),
    ],
)
def test_sizes_keep_the_proportions(quality: str, source: tuple[int, int], size: tuple[int, int]) -> None:
    assert ladder.size_for(quality, *source) == size


@given(st.sampled_from(ladder.QUALITIES), SIDES, SIDES)
def test_every_size_is_even_and_never_above_the_source(quality: str, width: int, height: int) -> None:
    made = ladder.size_for(quality, width, height)

    assert all(side % 2 == 0 and side >= 2 for side in made)
    assert made[0] <= width
    assert made[1] <= height


def test_an_unknown_quality_is_no_quality() -> None:
    with pytest.raises(KeyError):
        ladder.height_for("4k")


# -- the grid ----------------------------------------------------------------------------------------------------------

NTSC = Fraction(30000, 1001)


@pytest.mark.parametrize(
    ("told", "rate"),
    [
        (Fraction(30000, 1001), NTSC),
        (Fraction(19001, 634), NTSC),  # what Matroska's milliseconds make of it
        (Fraction(2997, 100), NTSC),
        (Fraction(23976, 1000), Fraction(24000, 1001)),
        (Fraction(24), Fraction(24)),
        (Fraction(25), Fraction(25)),
        (Fraction(15), Fraction(15)),
        (Fraction(120), Fraction(60)),
        (Fraction(90000), Fraction(60)),
    ],
)
def test_a_rate_is_what_it_was_before_it_was_rounded(told: Fraction, rate: Fraction) -> None:
    assert ladder.steady_rate(told) == rate


@given(
    st.floats(0, 1000),
    st.floats(0.05, 600),
    st.sampled_from([Fraction(24000, 1001), Fraction(25), NTSC, Fraction(60), Fraction(7, 3)]),
    st.floats(0.2, 30),
    st.integers(1, 10),
)
def test_groups_and_segments_cover_every_picture_once(
    start_s: float, length_s: float, fps: Fraction, segment_s: float, group: int
) -> None:
    grid = ladder.grid_for(start_s, start_s + length_s, fps, segment_s, group)

    pictures = [n for first, count in grid.groups() for n in range(first, first + count)]
    lengths = [n for first, count in grid.groups() for n in grid.lengths(first, count)]
    assert pictures == list(range(grid.pictures))
    assert sum(lengths) == grid.pictures
    assert len(lengths) == grid.segments
    assert set(lengths[:-1]) <= {grid.per_segment}
    assert abs(grid.duration_s - length_s) <= max(0.5 / fps, 1 / fps if grid.pictures == 1 else 0) + 1e-6


def test_more_pictures_may_take_more_bits() -> None:
    assert ladder.most_kbits(1280, 720, NTSC) == 3500
    assert ladder.most_kbits(1280, 720, Fraction(60)) == 5250
    assert ladder.most_kbits(720, 1280, NTSC) == 3500
    assert ladder.most_kbits(8000, 4000, NTSC) == 16000
