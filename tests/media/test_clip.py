"""Is a clip the piece that was asked for, to the frame?

`testsrc2` shows another picture in every frame, so decoded pictures can be compared with those of the source.
"""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from pipeline.core.errors import FfmpegFailed, LeaseLost, OutputInvalid, SourceTooShort
from pipeline.media import probe
from pipeline.media.clip import Cut, expected, make_clip, plan_cut
from pipeline.media.verify import verify
from tests.media.conftest import run_ffmpeg

FRAME_S = 1001 / 30000


def cut_out(
    source: Path, into: Path, start_s: float, end_s: float | None, quality: str = "source", precise: bool = True
) -> tuple[Cut, probe.Facts, Path]:
    facts = probe.probe(source)
    cut = plan_cut(source, facts, start_s, end_s, quality, precise)
    out = into / "clip.mp4"
    make_clip(source, facts, cut, out)
    return cut, probe.probe(out), out


def pictures(path: Path, size: tuple[int, int] = (160, 120)) -> list[np.ndarray]:
    with av.open(str(path)) as media:
        return [f.to_ndarray(width=size[0], height=size[1], format="gray").astype(int) for f in media.decode(video=0)]


def nearest(picture: np.ndarray, among: list[np.ndarray]) -> int:
    return int(np.argmin([np.abs(picture - other).mean() for other in among]))


@pytest.mark.parametrize(("start_s", "end_s"), [(1.0, 3.0), (1.234, 5.678), (2.5, 2.6), (7.0, 12.012)])
def test_an_encoded_clip_begins_and_ends_with_the_right_picture(
    start_s: float, end_s: float, film: Path, tmp_path: Path
) -> None:
    cut, facts, out = cut_out(film, tmp_path, start_s, end_s)

    made, source = pictures(out), pictures(film)
    assert cut.mode == "encode"
    assert facts.video is not None
    assert facts.video.duration_s == pytest.approx(end_s - start_s, abs=FRAME_S + 0.001)
    assert abs(nearest(made[0], source) - start_s / FRAME_S) <= 1
    assert abs(nearest(made[-1], source) - (end_s / FRAME_S - 1)) <= 1


@pytest.mark.parametrize(("start_s", "end_s"), [(0.0, 4.004), (2.002, 6.006), (4.0, 8.0), (8.008, None)])
def test_a_clip_between_keyframes_is_copied_and_right_to_the_frame(
    start_s: float, end_s: float | None, film: Path, tmp_path: Path
) -> None:
    cut, facts, out = cut_out(film, tmp_path, start_s, end_s)

    made, source = pictures(out), pictures(film)
    wanted_s = (end_s or 12.012) - start_s
    assert cut.mode == "copy"
    assert facts.video is not None
    assert facts.video.duration_s == pytest.approx(wanted_s, abs=FRAME_S + 0.001)
    first = nearest(made[0], source)
    assert first == round(start_s / FRAME_S)
    assert len(made) == cut.pictures
    assert all(np.array_equal(a, b) for a, b in zip(made, source[first : first + len(made)], strict=True))


def test_every_end_of_a_copy_is_right_to_a_frame_or_it_is_encoded(film: Path, tmp_path: Path) -> None:
    facts = probe.probe(film)
    modes = set()
    for pictures_wanted in range(55, 67):
        end_s = 2.002 + pictures_wanted * FRAME_S
        cut = plan_cut(film, facts, 2.002, end_s)
        modes.add(cut.mode)

        measured = make_clip(film, facts, cut, tmp_path / "clip.mp4")

        assert abs(measured.duration_s - pictures_wanted * FRAME_S) <= FRAME_S + 0.001

    assert "copy" in modes


def test_a_rough_cut_is_copied_from_the_keyframe_before(film: Path, tmp_path: Path) -> None:
    cut, facts, _ = cut_out(film, tmp_path, 3.0, 7.1, precise=False)

    assert cut.mode == "copy"
    assert cut.start_s == pytest.approx(2.002, abs=0.001)
    assert cut.end_s == pytest.approx(7.1, abs=0.15)
    assert facts.video is not None
    assert facts.video.duration_s == pytest.approx(cut.duration_s, abs=0.002)


@pytest.mark.parametrize(
    ("quality", "start_s", "reason"),
    [("240p", 2.002, "another size"), ("source", 3.0, "not on a keyframe")],
)
def test_the_reason_for_encoding_is_told(quality: str, start_s: float, reason: str, film: Path) -> None:
    cut = plan_cut(film, probe.probe(film), start_s, 6.006, quality)

    assert cut.mode == "encode"
    assert reason in cut.reason


@pytest.mark.parametrize("extension", ["mkv", "ts", "avi", "flv"])
@pytest.mark.parametrize("start_s", [1.0, 6.5, 9.7])
def test_containers_that_seek_roughly_lose_no_picture_at_the_start(
    extension: str, start_s: float, film: Path, tmp_path: Path
) -> None:
    source = tmp_path / f"film.{extension}"
    b_frames = "0" if extension == "avi" else "2"
    run_ffmpeg("-i", film, "-c:v", "libx264", "-g", "60", "-bf", b_frames, "-c:a", "aac", source)

    _, facts, out = cut_out(source, tmp_path, start_s, start_s + 2)

    made = pictures(out)
    assert facts.duration_s == pytest.approx(2.0, abs=2 * FRAME_S)
    assert len(made) == pytest.approx(60, abs=1)
    assert abs(nearest(made[0], pictures(film)) - start_s / FRAME_S) <= 1.5


def test_pictures_of_a_variable_rate_keep_their_times(tmp_path: Path) -> None:
    source = tmp_path / "variable.mp4"
    run_ffmpeg(
        *("-f", "lavfi", "-i", "testsrc2=size=320x240:rate=60", "-t", "6"),
        *("-vf", "select='not(mod(n,5))+lt(mod(n,60),20)'", "-fps_mode", "vfr", "-enc_time_base", "filter"),
        *("-c:v", "libx264", source),
    )

    _, _, out = cut_out(source, tmp_path, 1.234, 5.0)

    with av.open(str(source)) as media:
        times = [float(f.pts * f.time_base) for f in media.decode(video=0)]
    with av.open(str(out)) as media:
        made = [float(f.pts * f.time_base) for f in media.decode(video=0)]
    assert made[0] == 0
    assert made[1:] == pytest.approx([t - 1.234 for t in times if 1.234 <= t < 5.0][1:], abs=0.001)


def test_a_turned_and_odd_picture_comes_out_upright_and_even(silent: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turned.mp4"
    run_ffmpeg("-display_rotation", "90", "-i", silent, "-c", "copy", turned)

    cut, facts, _ = cut_out(turned, tmp_path, 1.0, 2.0)

    assert facts.video is not None
    assert (facts.video.width, facts.video.height, facts.video.rotation) == (240, 320, 0)
    assert facts.video.pix_fmt == "yuv420p"
    assert (cut.width, cut.height) == (240, 320)


def test_a_source_without_sound_gives_a_clip_without_sound(silent: Path, tmp_path: Path) -> None:
    _, facts, _ = cut_out(silent, tmp_path, 1.0, 2.0)

    assert not facts.has_audio


def test_sound_alone_can_be_cut(film: Path, tmp_path: Path) -> None:
    song = tmp_path / "song.ogg"
    run_ffmpeg("-i", film, "-vn", "-c:a", "libopus", song)

    _, facts, _ = cut_out(song, tmp_path, 3.0, 5.5)

    assert facts.video is None
    assert facts.duration_s == pytest.approx(2.5, abs=0.05)


def test_sound_that_begins_late_stays_with_its_picture(tmp_path: Path) -> None:
    source = tmp_path / "late.mp4"
    run_ffmpeg(
        *(
            "-f",
            "lavfi",
            "-i",
            "testsrc2=size=320x240:rate=30",
            "-itsoffset",
            "3",
            "-f",
            "lavfi",
            "-i",
            "sine=duration=1",
        ),
        *("-t", "6", "-c:v", "libx264", "-c:a", "aac", source),
    )

    _, _, out = cut_out(source, tmp_path, 1.0, 5.0)

    with av.open(str(out)) as media:
        loud = [f.time for f in media.decode(audio=0) if np.abs(f.to_ndarray()).max() > 0.02 and f.time is not None]
    assert loud[0] == pytest.approx(2.0, abs=0.05)
    assert loud[-1] == pytest.approx(3.0, abs=0.05)


def test_the_index_stands_in_front(film: Path, tmp_path: Path) -> None:
    for start_s in (1.0, 2.002):
        _, _, out = cut_out(film, tmp_path, start_s, 4.004)
        content = out.read_bytes()

        assert content.index(b"moov") < content.index(b"mdat")


def test_an_end_past_the_source_is_the_sources_end(film: Path) -> None:
    assert plan_cut(film, probe.probe(film), 10.5, 99).end_s == pytest.approx(12.012, abs=0.001)


@pytest.mark.parametrize("start_s", [12.012, 500.0])
def test_a_clip_that_begins_after_the_source_has_ended_is_refused(start_s: float, film: Path) -> None:
    with pytest.raises(SourceTooShort, match=r"12\.012"):
        plan_cut(film, probe.probe(film), start_s, start_s + 5)


def test_a_damaged_source_gives_an_error_and_never_a_short_clip(film: Path, tmp_path: Path) -> None:
    facts = probe.probe(film)
    cut = plan_cut(film, facts, 3.0, 9.0)
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(film.read_bytes()[: film.stat().st_size // 2])

    with pytest.raises((OutputInvalid, FfmpegFailed)):
        make_clip(broken, facts, cut, tmp_path / "clip.mp4")


def test_a_lost_lease_stops_the_encoding(sample: Path, tmp_path: Path) -> None:
    facts = probe.probe(sample)
    cut = plan_cut(sample, facts, 1.0, 29.0, "360p")
    out = tmp_path / "clip.mp4"

    def lost() -> None:
        if out.exists():
            raise LeaseLost

    with pytest.raises(LeaseLost):
        make_clip(sample, facts, cut, out, check=lost)

    with pytest.raises(OutputInvalid):
        verify(out, expected(facts, cut))
