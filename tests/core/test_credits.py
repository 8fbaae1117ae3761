"""What does an output cost? What its kind costs; lists and thumbnails nothing."""

from __future__ import annotations

import pytest

from pipeline.core.credits import Prices, priced, special
from pipeline.core.output import Wanted


def an_output(kind: str) -> Wanted:
    return Wanted("a", kind, "a", None, 0)


def test_every_kind_costs_the_same_unless_it_has_a_price_of_its_own():
    prices = Prices(3, special("captions=2, burnin=0"))

    costs = {o.kind: o.price for o in priced(map(an_output, ("video", "hls", "captions", "burnin")), prices)}

    assert costs == {"video": 3, "hls": 3, "captions": 2, "burnin": 0}


def test_lists_and_thumbnails_are_free():
    assert [o.price for o in priced(map(an_output, ("master", "thumbnail")), Prices(3))] == [0, 0]


@pytest.mark.parametrize("told", ["video", "film=1", "video=", "video=-1", "video=1.5", "video=²", "=1"])
def test_a_price_that_cannot_be_read_is_named(told: str):
    with pytest.raises(ValueError, match="must be a kind"):
        special(told)
