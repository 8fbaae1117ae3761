"""Which renditions apply to a source? (Pure.)"""

from __future__ import annotations

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
