"""Does the picture that stands for a clip show something?"""

from __future__ import annotations

from pathlib import Path

import av
import pytest

from pipeline.core.errors import SourceUnreadable
from pipeline.media import probe
from pipeline.media.thumbnail import make_thumbnail
from tests.media.conftest import run_ffmpeg


def brightness(path: Path) -> float:
    with av.open(str(path)) as image:
        return float(next(image.decode(video=0)).to_ndarray(format="gray").mean())


@pytest.fixture(scope="module")
def fading(media_dir: Path) -> Path:
    """4 s that are black up to 2.4 s."""
    path = media_dir / "fading.mp4"
    black, shown = "color=black:size=320x180:rate=25:duration=2.4", "testsrc2=size=320x180:rate=25:duration=1.6"
    run_ffmpeg("-f", "lavfi", "-i", black, "-f", "lavfi", "-i", shown, "-filter_complex", "concat", path)
    return path


@pytest.mark.parametrize(("start_s", "end_s"), [(0.0, 4.0), (2.0, 4.0), (0.0, 3.0)])
def test_a_black_beginning_is_passed_over(start_s: float, end_s: float, fading: Path, tmp_path: Path) -> None:
    told = make_thumbnail(fading, probe.probe(fading), start_s, end_s, tmp_path / "picture.jpg")

    assert start_s <= told["at_s"] < end_s
    assert brightness(tmp_path / "picture.jpg") > 60


def test_a_clip_that_is_all_black_still_has_a_picture(fading: Path, tmp_path: Path) -> None:
    told = make_thumbnail(fading, probe.probe(fading), 0.0, 2.0, tmp_path / "picture.jpg")

    assert told["is_black"]
    assert brightness(tmp_path / "picture.jpg") < 20


def test_it_is_upright_and_no_larger_than_720p(tmp_path: Path) -> None:
    large, turned = tmp_path / "large.mp4", tmp_path / "turned.mp4"
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=size=1920x1080:rate=5", "-t", "1", "-preset", "ultrafast", large)
    run_ffmpeg("-display_rotation", "90", "-i", large, "-c", "copy", turned)

    told = make_thumbnail(turned, probe.probe(turned), 0.0, 1.0, tmp_path / "picture.jpg")

    assert (told["width"], told["height"]) == (720, 1280)


def test_a_source_without_a_picture_has_none(film: Path, tmp_path: Path) -> None:
    song = tmp_path / "song.m4a"
    run_ffmpeg("-i", film, "-vn", "-c", "copy", song)

    with pytest.raises(SourceUnreadable):
        make_thumbnail(song, probe.probe(song), 0.0, 1.0, tmp_path / "picture.jpg")
