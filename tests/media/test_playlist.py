"""Do playlists say what is true, and is one that does not found out? (Pure.)"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import OutputInvalid
from pipeline.media import playlist
from pipeline.media.playlist import Rates, Rendition, Segment, Sound

SEGMENTS = [Segment("00000.m4s", 4.004, "init.mp4", 400_000), Segment("00001.m4s", 4.004, "init.mp4", 1_000_000)]
SIZES = {"init.mp4": 700, "00000.m4s": 400_000, "00001.m4s": 1_000_000}
TEXT = playlist.media(SEGMENTS)


def rung(uri: str, height: int) -> Rendition:
    return Rendition(uri, Rates(1000, 900), "avc1.64001f", height * 2, height, Fraction(30000, 1001))


def test_what_is_written_can_be_read_back() -> None:
    told = playlist.read(TEXT)

    assert (told.target_s, told.is_complete) == (4, True)
    assert [(s.uri, s.seconds, s.map_uri) for s in told.segments] == [(s.uri, s.seconds, s.map_uri) for s in SEGMENTS]


def test_a_map_is_named_where_it_changes() -> None:
    text = playlist.media([*SEGMENTS, Segment("00002.m4s", 1.0, "init-2.mp4", 9)])

    assert text.count("#EXT-X-MAP") == 2
    assert text.index("init-2.mp4") < text.index("00002.m4s")


@pytest.mark.parametrize(
    ("text", "sizes", "reason"),
    [
        (TEXT, {**SIZES, "00001.m4s": 0}, "not there or empty"),
        (TEXT, {k: v for k, v in SIZES.items() if k != "init.mp4"}, "init.mp4"),
        (TEXT, {**SIZES, "00002.m4s": 5}, "does not name 00002.m4s"),
        (TEXT.replace("#EXT-X-ENDLIST", ""), SIZES, "no end"),
        (TEXT.replace("DURATION:4", "DURATION:3"), SIZES, "target duration"),
        (TEXT.replace("#EXTINF:4.004000", "#EXTINF:3.900000", 1), SIZES, "lasts"),
        (TEXT.replace("00001.m4s", "00000.m4s"), {k: v for k, v in SIZES.items() if k != "00001.m4s"}, "twice"),
        (TEXT.replace("#EXTM3U", ""), SIZES, "does not begin"),
        (TEXT.replace("#EXTINF:4.004000,", "", 1), SIZES, "how long"),
    ],
)
def test_a_playlist_that_is_not_true_is_invalid(text: str, sizes: dict[str, int], reason: str) -> None:
    playlist.check_media(TEXT, SIZES, 8.008, 0.02)

    with pytest.raises(OutputInvalid, match=reason):
        playlist.check_media(text, sizes, 8.008, 0.02)


def test_the_peak_is_that_of_a_run_about_as_long_as_the_target() -> None:
    rates = playlist.rates_of([*SEGMENTS, Segment("00002.m4s", 0.1, "init.mp4", 100_000)])

    # The last one is too short to be a peak of its own, and counts with the one before.
    assert rates.peak == -(-8 * 1_100_000_000 // 4104)
    assert rates.average == -(-8 * 1_500_000_000 // 8108)


@given(st.lists(st.tuples(st.floats(0.1, 30), st.integers(1, 10**9)), min_size=1, max_size=30))
def test_the_peak_is_never_below_the_average(pieces: list[tuple[float, int]]) -> None:
    rates = playlist.rates_of([Segment(f"{n}", seconds, "i", size) for n, (seconds, size) in enumerate(pieces)])

    assert rates.peak >= rates.average > 0


def test_the_master_names_the_largest_first_and_adds_the_sound_to_each() -> None:
    sound = Sound("sound/playlist.m3u8", Rates(100, 90), "mp4a.40.2", 2, "en")

    text = playlist.master([rung("../b/playlist.m3u8", 240), rung("../a/playlist.m3u8", 720)], sound)

    playlist.check_master(text, ["../a/playlist.m3u8", "../b/playlist.m3u8", "sound/playlist.m3u8"])
    assert text.index("../a/") < text.index("../b/")
    assert (
        text.count(
            'BANDWIDTH=1100,AVERAGE-BANDWIDTH=990,RESOLUTION=1440x720,FRAME-RATE=29.970,CODECS="avc1.64001f,mp4a.40.2",AUDIO="sound"'
        )
        == 1
    )
    assert 'LANGUAGE="en"' in text


def test_a_master_that_names_another_playlist_is_invalid() -> None:
    text = playlist.master([rung("../a/playlist.m3u8", 720)], None)

    for others in ([], ["../b/playlist.m3u8"], ["../a/playlist.m3u8"] * 2):
        with pytest.raises(OutputInvalid):
            playlist.check_master(text, others)


@pytest.mark.parametrize(("code", "told"), [("en", "en"), ("eng", "eng"), ("und", None), ('x"', None), (None, None)])
def test_a_language_that_is_none_is_not_named(code: str | None, told: str | None) -> None:
    assert playlist.language(code) == told
