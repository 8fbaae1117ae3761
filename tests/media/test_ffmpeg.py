"""What do ffmpeg's progress and its end mean?"""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import ClipTimeout, FfmpegFailed, OutputEmpty, ScratchFull, ToolMissing
from pipeline.media import ffmpeg
from pipeline.media.ffmpeg import Progress, ProgressReader


def read(*lines: str) -> list[Progress]:
    seen: list[Progress] = []
    reader = ProgressReader(seen.append)
    for line in lines:
        reader.feed(line)
    return seen


def test_progress_is_read_from_each_block() -> None:
    seen = read("frame=10", "out_time_us=400000", "total_size=2048", "speed=1.5x", "progress=continue", "progress=end")

    assert seen == [Progress(0.4, 10, 2048, 1.5)] * 2


def test_values_that_are_not_known_yet_leave_the_last_ones_standing() -> None:
    seen = read(
        *("frame=5", "out_time_us=200000", "total_size=99", "speed=2x", "progress=continue"),
        *("frame=6", "out_time_us=N/A", "total_size=N/A", "speed=N/A", "progress=continue"),
        *("out_time_us=-9223372036854775807", "speed=nan", "progress=end"),
    )

    assert seen == [Progress(0.2, 5, 99, 2.0), Progress(0.2, 6, 99, 2.0), Progress(0.2, 6, 99, 2.0)]


@given(st.lists(st.one_of(st.text(), st.text().map("out_time_us={}".format), st.just("progress=continue"))))
def test_garbage_never_breaks_the_reader(lines: list[str]) -> None:
    assert all(progress.media_time_s >= 0 for progress in read(*lines))


def test_a_setting_that_names_no_program_is_a_missing_tool(env: Callable[..., None]) -> None:
    env(FFMPEG="/nowhere/ffmpeg")

    with pytest.raises(ToolMissing, match="FFMPEG"):
        ffmpeg.locate()


def test_progress_runs_to_the_end_of_the_media(tmp_path: Path) -> None:
    seen: list[Progress] = []
    output = tmp_path / "o.ts"
    graph = ffmpeg.written([ffmpeg.generated("testsrc2=size=320x240:rate=30:duration=3")], output)

    ffmpeg.run_graph(graph, output=output, cwd=tmp_path, on_progress=seen.append)

    assert seen[-1].frame == 90
    assert seen[-1].media_time_s == pytest.approx(3, abs=0.1)
    assert [p.media_time_s for p in seen] == sorted(p.media_time_s for p in seen)


def test_a_failure_brings_the_last_lines_without_the_folders_of_the_machine(tmp_path: Path) -> None:
    bad = tmp_path / "elsewhere" / "bad.mp4"
    bad.parent.mkdir()
    bad.write_bytes(b"this is no video" * 100)
    work = tmp_path / "work"
    work.mkdir()
    graph = ffmpeg.written([ffmpeg.opened(bad)["v:0"]], work / "o.mp4")

    with pytest.raises(FfmpegFailed) as caught:
        ffmpeg.run_graph(graph, output=work / "o.mp4", cwd=work)

    assert caught.value.evidence is not None
    assert "bad.mp4" in caught.value.evidence
    assert "moov atom not found" in caught.value.evidence or "Invalid data" in caught.value.evidence
    assert str(tmp_path) not in caught.value.evidence + caught.value.message


def test_a_full_disk_is_not_the_jobs_fault(tmp_path: Path) -> None:
    graph = ffmpeg.written([ffmpeg.generated("testsrc2=duration=1")], Path("/dev/full"), f="mpegts")

    with pytest.raises(ScratchFull):
        ffmpeg.run_graph(graph, output=Path("/dev/full"), cwd=tmp_path)


def test_an_ffmpeg_that_writes_nothing_and_says_all_is_well_left_an_empty_output(
    tmp_path: Path, env: Callable[..., None]
) -> None:
    liar = tmp_path / "ffmpeg"
    liar.write_text("#!/bin/sh\nfor last; do :; done\n: > $last\n")
    liar.chmod(liar.stat().st_mode | stat.S_IXUSR)
    env(FFMPEG=str(liar))
    output = tmp_path / "o.mp4"

    with pytest.raises(OutputEmpty):
        ffmpeg.run_graph(ffmpeg.written([ffmpeg.generated("testsrc2")], output), output=output, cwd=tmp_path)


def test_an_ffmpeg_that_never_ends_is_stopped(tmp_path: Path) -> None:
    output = tmp_path / "o.ts"
    graph = ffmpeg.written([ffmpeg.generated("testsrc2=size=320x240,realtime")], output)

    with pytest.raises(ClipTimeout):
        ffmpeg.run_graph(graph, output=output, cwd=tmp_path, timeout_s=0.5)


def test_ffmpeg_follows_no_playlist(tmp_path: Path, sample: Path) -> None:
    playlist = tmp_path / "list.m3u8"
    playlist.write_text("#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.2:9/x.ts\n#EXT-X-ENDLIST\n")
    output = tmp_path / "o.mp4"
    graph = ffmpeg.written([ffmpeg.opened(playlist)["v:0"]], output)

    with pytest.raises(FfmpegFailed) as caught:
        ffmpeg.run_graph(graph, output=output, cwd=tmp_path)

    assert "not on whitelist" in (caught.value.evidence or "")
