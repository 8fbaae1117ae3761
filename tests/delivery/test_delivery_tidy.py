"""What does clearing a folder remove? What nobody refers to and nobody touched for a while; never anything beside."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pipeline.core.errors import TargetError
from pipeline.delivery import Target
from tests.delivery.places import Place

JOB = "jobs/0190aaaa-0000-7000-8000-000000000001"
BESIDE = "jobs/0190aaaa-0000-7000-8000-000000000001-not"
NOW, DAY = timedelta(0), timedelta(days=1)
FILM, TREE = f"{JOB}/g2/film-0123456789abcdef.mp4", f"{JOB}/g1/hls-0123456789abcdef/part1.m4s"
KEPT = {FILM, TREE}


@pytest.fixture
def lying(place: Place) -> Place:
    for key in (*KEPT, f"{JOB}/g1/film-0123456789abcdef.mp4", f"{JOB}/g1/hls-0123456789abcdef/part2.m4s"):
        place.plant(key, b"x")
    place.plant(f"{BESIDE}/g1/film-0123456789abcdef.mp4", b"x")
    return place


def test_what_is_not_kept_is_removed_and_what_lies_beside_is_not_touched(lying: Place, target: Target) -> None:
    done = target.tidy(JOB, KEPT, NOW)

    assert (done.removed, done.young) == (2, 0)
    assert lying.everything() == sorted([*KEPT, f"{BESIDE}/g1/film-0123456789abcdef.mp4"])


def test_what_is_young_stays_and_is_counted(lying: Place, target: Target) -> None:
    before = lying.everything()

    done = target.tidy(JOB, KEPT, DAY)

    assert (done.removed, done.young) == (0, 2)
    assert lying.everything() == before


def test_with_nothing_to_keep_the_whole_folder_goes(lying: Place, target: Target) -> None:
    target.tidy(JOB, (), NOW)
    again = target.tidy(JOB, (), NOW)

    assert (again.removed, again.young) == (0, 0)
    assert lying.everything() == [f"{BESIDE}/g1/film-0123456789abcdef.mp4"]


def test_a_folder_that_leads_elsewhere_is_refused(target: Target) -> None:
    for folder in ("", "..", "jobs/../..", "/etc", "jobs/.hidden"):
        with pytest.raises(TargetError):
            target.tidy(folder, (), NOW)
