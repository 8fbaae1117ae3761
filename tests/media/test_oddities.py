"""What comes out of every kind of source that people have? Each row of docs/reference/media.md, on a generated file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.core import ladder
from pipeline.core.errors import IronclipError
from pipeline.media import hls, probe
from pipeline.media.clip import end_of, make_clip, plan_cut
from tests.media.oddities import ODDITIES, Made, Oddity, Refused

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "media.md"
PATIENCE_S = 120  # ffmpeg is stopped after this: a source may be broken, but nobody hangs on it


@pytest.mark.parametrize("oddity", ODDITIES, ids=lambda o: f"{o.container}-{o.codecs}-{o.oddity}".replace(" ", "_"))
def test_what_comes_out_is_what_the_table_says(oddity: Oddity, tmp_path: Path) -> None:
    source = tmp_path / f"source.{oddity.container}"
    oddity.make(source)

    assert str(outcome_of(source, oddity.start_s, oddity.end_s, tmp_path)) == str(oddity.comes)


def outcome_of(source: Path, start_s: float, end_s: float | None, folder: Path) -> Made | Refused:
    """What is made of a source: the mp4 and the rendition are verified by those who make them."""
    try:
        facts = probe.probe(source)
        cut = plan_cut(source, facts, start_s, end_s)
        measured = make_clip(source, facts, cut, folder / "clip.mp4", timeout_s=PATIENCE_S, decode=True)
    except IronclipError as exc:
        return Refused(exc.code)
    made = probe.probe(folder / "clip.mp4")
    assert made.video is not None
    assert made.video.rotation == 0
    assert cut.mode == "copy" or made.video.pix_fmt == "yuv420p"
    pictures = pictures_in_hls(source, facts, start_s, end_of(facts, start_s, end_s), folder)
    width, height = made.video.shown_size
    other = None if pictures == measured.video_packets else pictures
    return Made(cut.mode, width, height, measured.video_packets, measured.audio_packets > 0, other)


def pictures_in_hls(source: Path, facts: probe.Facts, start_s: float, end_s: float, folder: Path) -> int:
    assert facts.video is not None
    grid = ladder.grid_for(start_s, end_s, facts.video.steady_fps, 0.5, 100)
    size = ladder.size_for("240p", *facts.video.shown_size)
    ((first, count),) = grid.groups()
    (folder / "hls").mkdir()
    group = hls.Group(grid, first, count, *size)
    made = hls.make_group(source, facts, group, folder / "hls", timeout_s=PATIENCE_S, decode=True)
    return int(made["pictures"])


def test_the_page_shows_exactly_these_rows() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \w+ \|.*\|", line)]
    shown = [tuple(cell.strip().replace("`", "") for cell in line.strip("|").split("|")) for line in lines]

    assert [row for row in shown if len(row) == 5 and row[0] != "container"] == [oddity.row for oddity in ODDITIES]
