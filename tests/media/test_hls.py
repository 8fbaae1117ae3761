"""Is each group of segments exact, the same whenever it is made, and in its place in time?"""

from __future__ import annotations

from pathlib import Path

import av
import pytest

from pipeline.core import ladder
from pipeline.core.errors import OutputInvalid
from pipeline.core.ladder import Grid
from pipeline.media import boxes, hls, probe
from tests.media.conftest import run_ffmpeg
from tests.media.test_clip import nearest, pictures

SIZE = (160, 120)


def group_of(source: Path, grid: Grid, number: int, folder: Path) -> dict[str, bytes]:
    """The files of a group, by name."""
    first, count = grid.groups()[number]
    folder.mkdir()
    hls.make_group(source, probe.probe(source), hls.Group(grid, first, count, *SIZE), folder)
    return {path.name.replace("-work", ""): path.read_bytes() for path in sorted(folder.iterdir())}


def joined(source: Path, grid: Grid, folder: Path) -> Path:
    """All groups as one file, under the first one's map."""
    groups = [group_of(source, grid, n, folder / f"{n}") for n in range(len(grid.groups()))]
    assert len({group.pop("init.mp4") for group in [dict(g) for g in groups]}) == 1
    whole = folder / "whole.mp4"
    whole.write_bytes(
        groups[0].pop("init.mp4") + b"".join(b"".join(v for k, v in g.items() if k != "init.mp4") for g in groups)
    )
    return whole


def times(path: Path) -> list[float]:
    with av.open(str(path)) as media:
        return [float(frame.pts * frame.time_base) for frame in media.decode(video=0)]


@pytest.fixture(scope="module")
def clear(media_dir: Path) -> Path:
    """3 s at 30000/1001 with B-frames, a keyframe every 40 pictures."""
    path = media_dir / "clear.mp4"
    picture = ("-f", "lavfi", "-i", "testsrc2=size=320x240:rate=30000/1001", "-t", "3")
    run_ffmpeg(*picture, "-c:v", "libx264", "-preset", "veryfast", "-g", "40", path)
    return path


@pytest.mark.parametrize("container", ["mp4", "mkv", "ts"])
def test_groups_show_every_picture_once_and_in_time(container: str, clear: Path, tmp_path: Path) -> None:
    source = tmp_path / f"source.{container}"
    run_ffmpeg("-i", clear, "-c", "copy", source)
    grid = ladder.grid_for(0.5, 2.8, probe.probe(source).video.steady_fps, 0.3, 3)  # type: ignore[union-attr]

    whole = joined(source, grid, tmp_path)

    assert times(whole) == pytest.approx([n * 1001 / 30000 for n in range(grid.pictures)], abs=1e-6)
    original = pictures(clear)
    shown = [nearest(picture, original) for picture in pictures(whole)]
    assert shown == list(range(shown[0], shown[0] + grid.pictures))
    assert shown[0] == round(0.5 * 30000 / 1001)


def test_a_group_that_is_made_again_is_the_same_to_the_byte(clear: Path, tmp_path: Path) -> None:
    grid = ladder.grid_for(0.5, 2.8, probe.probe(clear).video.steady_fps, 0.3, 3)  # type: ignore[union-attr]

    assert group_of(clear, grid, 1, tmp_path / "a") == group_of(clear, grid, 1, tmp_path / "b")


@pytest.mark.parametrize("rest", [1, 2, 3])
def test_a_last_group_of_a_few_pictures_keeps_its_place(rest: int, clear: Path, tmp_path: Path) -> None:
    fps = probe.probe(clear).video.steady_fps  # type: ignore[union-attr]
    grid = Grid(start_s=0.0, fps=fps, pictures=20 + rest, per_segment=10, per_group=20)

    shown = times(joined(clear, grid, tmp_path))

    assert shown == pytest.approx([n * 1001 / 30000 for n in range(20 + rest)], abs=1e-6)


def test_a_picture_that_stands_for_long_is_shown_in_every_group_that_it_reaches(tmp_path: Path) -> None:
    source = tmp_path / "still.mp4"
    keep = "select='lt(n,10)+gt(n,80)'"  # the tenth picture stands until 3.24 s
    run_ffmpeg(
        *("-f", "lavfi", "-i", "testsrc2=size=320x240:rate=25", "-t", "4", "-vf", keep, "-fps_mode", "vfr"),
        *("-c:v", "libx264", "-preset", "veryfast", source),
    )
    grid = Grid(start_s=0.0, fps=probe.probe(source).video.steady_fps, pictures=95, per_segment=10, per_group=20)  # type: ignore[union-attr]

    whole = joined(source, grid, tmp_path)

    original = pictures(source)
    shown = [nearest(picture, original) for picture in pictures(whole)]
    assert shown[12:80] == [9] * 68
    assert shown[82:94] == list(range(11, 23))


def test_a_file_that_breaks_off_inside_of_a_box_is_invalid(clear: Path, tmp_path: Path) -> None:
    fragments = tmp_path / "f.mp4"
    run_ffmpeg("-i", clear, "-c", "copy", "-movflags", "+frag_keyframe+delay_moov+skip_trailer", fragments)
    data = fragments.read_bytes()

    head, pieces = boxes.split(data)

    assert head + b"".join(pieces) == data
    for broken in (data[:-1], data[: len(head)], head + pieces[0][:20], b""):
        with pytest.raises(OutputInvalid):
            boxes.split(broken)


def test_a_group_with_a_picture_too_few_is_invalid(clear: Path, tmp_path: Path) -> None:
    facts = probe.probe(clear)
    grid = Grid(start_s=0.0, fps=facts.video.steady_fps, pictures=120, per_segment=10, per_group=120)  # type: ignore[union-attr]

    with pytest.raises(OutputInvalid, match="pictures instead of 120"):
        group_of(clear, grid, 0, tmp_path / "late")
