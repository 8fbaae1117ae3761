"""Is an HLS package whole, in step across its renditions, and playable where it was delivered?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import av
import pytest
from sqlalchemy import text

from pipeline import intake
from pipeline.core.errors import FfmpegFailed, IronclipError, OutputInvalid
from pipeline.core.job import Stage
from pipeline.delivery import published_keys
from pipeline.media import asr as engines
from pipeline.media import hls, playlist
from pipeline.store import outputs
from pipeline.store.engine import database
from tests.stages import crashing
from tests.stages.conftest import Runner, _made
from tests.stages.playing import master_of, play, streams_of

LADDER = ["source", "720p", "360p", "240p"]
FPS = 30000 / 1001
QUICK = {"HLS_SEGMENT_SEC": "0.5", "HLS_GROUP_SEGMENTS": "2"}


@pytest.fixture(scope="session")
def wide(media: Path) -> Path:
    """4 s of 640x360 at 30000/1001 with sound."""
    picture = ("-f", "lavfi", "-i", "testsrc2=size=640x360:rate=30000/1001", "-f", "lavfi", "-i", "sine")
    return _made(media / "wide.mp4", *picture, "-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac")


@pytest.fixture
def job(runner: Runner, use: Callable[..., None], wide: Path) -> UUID:
    """A clip of 2.9 s as HLS in three renditions; a fourth does not apply."""
    use(**QUICK)
    job = runner.submit(wide, clips=[{"name": "a", "start": 0.7, "end": 3.6}], formats=["hls"], qualities=LADDER)
    assert runner.finish(job)["outcome"] == "full"
    return job


def test_a_package_plays_in_every_rendition_and_segments_begin_at_the_same_time(
    runner: Runner, job: UUID, tmp_path: Path
) -> None:
    master = master_of(runner.output, job)
    streams = streams_of(master)
    pictures, frame_s = round(2.9 * FPS), 1 / FPS

    assert len(streams.pictures) == 3
    for path in streams.pictures.values():
        told = playlist.read(path.read_text())
        seen = play(path)
        assert (seen.pictures, seen.first_s) == (pictures, pytest.approx(0, abs=0.001))
        assert seen.longest_gap_s == pytest.approx(frame_s, abs=0.0001)
        assert [s.seconds for s in told.segments] == pytest.approx([*[15 * frame_s] * 5, 12 * frame_s], abs=1e-6)
        for segment in told.segments:
            alone = tmp_path / "alone.mp4"
            alone.write_bytes((path.parent / segment.map_uri).read_bytes() + (path.parent / segment.uri).read_bytes())
            assert play(alone).pictures == round(segment.seconds * FPS)
    assert streams.sound is not None
    heard = play(streams.sound)
    assert heard.first_s == pytest.approx(0, abs=0.001)
    assert heard.sound_s == pytest.approx(2.9, abs=0.03)


def test_the_master_says_what_the_streams_really_are(runner: Runner, job: UUID) -> None:
    master = master_of(runner.output, job)
    streams = streams_of(master)

    said = {uri: told for told, uri in re.findall(r"#EXT-X-STREAM-INF:(.*)\n(.*)", master.read_text())}
    with av.open(str(master), options={"allowed_extensions": "ALL"}) as package:
        kinds = sorted(stream.type for stream in package.streams)
        times = [packet.dts for packet in package.demux(video=0) if packet.dts is not None]

    assert kinds == ["audio", "video", "video", "video"]
    assert times == sorted(set(times))
    assert streams.sound is not None
    sound_bits = bits_per_segment(streams.sound)
    for uri, path in streams.pictures.items():
        with av.open(str(path.parent / "init.mp4")) as head:
            context = head.streams.video[0].codec_context
            assert f"RESOLUTION={context.width}x{context.height}" in said[uri]
            assert f'CODECS="avc1.{bytes(context.extradata)[1:4].hex()},mp4a.40.2"' in said[uri]
        assert "FRAME-RATE=29.970" in said[uri]
        assert number("BANDWIDTH", said[uri]) >= max(bits_per_segment(path)) + max(sound_bits) - 2
        assert number("AVERAGE-BANDWIDTH", said[uri]) < number("BANDWIDTH", said[uri])
    assert master.read_text().count("#EXT-X-INDEPENDENT-SEGMENTS") == 1


def bits_per_segment(path: Path) -> list[float]:
    """Of those that are long enough to count."""
    told = playlist.read(path.read_text())
    return [
        8 * (path.parent / s.uri).stat().st_size / s.seconds for s in told.segments if s.seconds >= told.target_s / 2
    ]


def number(name: str, attributes: str) -> int:
    found = re.search(rf"(?:^|,){name}=(\d+)", attributes)
    assert found is not None
    return int(found[1])


def test_rows_and_manifest_tell_of_every_rendition_and_one_above_the_source_is_skipped(
    runner: Runner, job: UUID
) -> None:
    rows = database().run(text("SELECT * FROM outputs WHERE job_id = :job ORDER BY id"), job=job)
    (manifest,) = [path for path in runner.objects() if path.name.startswith("manifest")]

    told = {row.name: row for row in rows}
    assert {name: row.status for name, row in told.items()} == {
        "a-source-hls": "completed",
        "a-720p-hls": "skipped",
        "a-360p-hls": "completed",
        "a-240p-hls": "completed",
        "a-master": "completed",
    }
    for name in ("a-source-hls", "a-360p-hls", "a-240p-hls"):
        row = told[name]
        assert (row.segments_total, row.segments_completed, row.progress_percent) == (6, 6, 100)
        assert row.started_at < row.completed_at
        assert row.error_message is None
    listed = {file["key"] for output in json.loads(manifest.read_text())["outputs"] for file in output["files"]}
    assert listed == {str(path.relative_to(runner.output)) for path in runner.objects() if path != manifest}


def test_a_source_without_sound_has_a_master_without_sound(
    runner: Runner, use: Callable[..., None], silent: Path
) -> None:
    use(**QUICK)
    job = runner.submit(silent, clips=[{"end": 1}], formats=["hls"])

    assert runner.finish(job)["outcome"] == "full"

    master = master_of(runner.output, job)
    assert streams_of(master).sound is None
    assert "mp4a" not in master.read_text()
    assert play(next(iter(streams_of(master).pictures.values()))).pictures == 25


def test_renditions_that_cannot_be_made_leave_no_master(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent, clips=[{"start": 2, "end": 3}, {"start": 99}], formats=["mp4", "hls"])

    shown = runner.finish(job)

    assert shown["outcome"] == "partial"
    told = {name: (output["status"], output["error_code"]) for name, output in runner.outputs(job).items()}
    assert told["clip2-source-hls"] == ("failed", "SOURCE_TOO_SHORT")
    assert told["clip2-master"] == ("failed", "NOTHING_SUCCEEDED")
    assert told["clip1-master"] == ("completed", None)


def test_a_ladder_that_is_all_above_the_source_skips_its_master(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent, formats=["mp4", "hls"], qualities=["source", "2160p"])
    high = runner.submit(silent, formats=["hls"], qualities=["2160p"], thumbnail=True)

    assert runner.finish(job)["outcome"] == "full"
    assert runner.finish(high)["outcome"] == "full"

    assert runner.outputs(high)["clip1-master"]["status"] == "skipped"
    assert runner.outputs(high)["clip1-thumbnail"]["status"] == "completed"


def test_a_second_run_makes_no_segment_again(runner: Runner, use: Callable[..., None], silent: Path) -> None:
    use(**QUICK)
    job = runner.submit(silent, formats=["hls"])
    runner.until(job, Stage.UPLOAD)
    before = runner.units(job)
    database().run(text("UPDATE jobs SET stage = 'clip' WHERE id = :job"), job=job)

    runner.step(job)

    assert runner.units(job) == before
    assert len(before) > 3


def test_segments_lie_where_the_first_attempt_has_put_them_whatever_the_settings_are_by_now(
    runner: Runner, use: Callable[..., None], silent: Path
) -> None:
    use(**QUICK)
    job = runner.submit(silent, formats=["hls"], qualities=["source", "240p"])
    runner.until(job, Stage.UPLOAD)
    keep = runner.units(job)
    database().run(text("DELETE FROM checkpoints WHERE job_id = :job AND key LIKE '%240p%'"), job=job)
    database().run(text("UPDATE jobs SET stage = 'clip' WHERE id = :job"), job=job)
    use(HLS_SEGMENT_SEC="1")

    runner.finish(job)

    assert set(runner.units(job)) == set(keep)


@pytest.mark.parametrize(("source", "status"), [("wide", "completed"), ("silent", "skipped")])
def test_a_package_alone_has_captions_too(
    source: str, status: str, request: pytest.FixtureRequest, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "engine", lambda _settings: crashing.Quick())
    job = runner.submit(request.getfixturevalue(source), formats=["hls"], captions=True)

    assert runner.finish(job)["outcome"] == "full"

    assert runner.outputs(job)["clip1-captions"]["status"] == status


def test_a_rendition_that_is_made_anew_is_named_by_a_new_master(
    runner: Runner, use: Callable[..., None], silent: Path
) -> None:
    use(**QUICK)
    job = runner.submit(silent, clips=[{"end": 1}], formats=["hls"], qualities=["source", "240p"])
    runner.finish(job)
    intake.rerender(job, by="ann", qualities=["240p"])

    assert runner.finish(job)["outcome"] == "full"

    (master,) = [path for path in runner.objects() if path.name == "master.m3u8" and "g2" in path.parts]
    uris = streams_of(master).pictures
    assert sorted(uri.split("/")[-3:-1][0] for uri in uris) == ["..", "g1"]
    assert {play(path).pictures for path in uris.values()} == {25}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[IronclipError], None]:
    """Let every group but the first end with an error."""

    def use_error(error: IronclipError) -> None:
        make = hls.make_group

        def make_or_fail(source: Path, facts: Any, group: hls.Group, *rest: Any, **more: Any) -> Any:
            if group.first:
                raise error
            return make(source, facts, group, *rest, **more)

        monkeypatch.setattr(hls, "make_group", make_or_fail)

    return use_error


def test_a_group_that_is_not_what_it_should_be_is_tried_again_and_the_row_tells_how_far_it_is(
    runner: Runner, use: Callable[..., None], silent: Path, broken: Callable[[IronclipError], None]
) -> None:
    use(**QUICK)
    broken(OutputInvalid("It is too short."))
    job = runner.submit(silent, formats=["hls"])
    runner.until(job, Stage.CLIP)

    runner.step(job)

    (row,) = database().run(text("SELECT * FROM outputs WHERE job_id = :job AND kind = 'hls'"), job=job)
    assert (runner.job(job).status, row.status) == ("queued", "in_progress")
    assert (row.segments_completed, row.segments_total) == (2, 5)
    assert row.progress_percent == pytest.approx(40)


def test_what_ffmpeg_refuses_has_failed_with_its_last_words(
    runner: Runner, use: Callable[..., None], silent: Path, broken: Callable[[IronclipError], None]
) -> None:
    use(**QUICK)
    broken(FfmpegFailed("ffmpeg ended with 1.", evidence="Conversion failed!"))
    job = runner.submit(silent, formats=["mp4", "hls"])

    assert runner.finish(job)["outcome"] == "partial"

    output = runner.outputs(job)["clip1-source-hls"]
    assert (output["status"], output["error_code"]) == ("failed", "FFMPEG_FAILED")
    assert "Conversion failed!" in output["error_message"]


def test_no_master_lies_where_a_stream_was_refused_until_it_is_taken(
    runner: Runner, use: Callable[..., None], wide: Path, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    (told := tmp_path / "targets.toml").write_text(f'[targets.second]\nkind = "file"\npath = "{second}"\n')
    use(TARGETS_FILE=str(told), **QUICK)
    asked = {"clips": [{"name": "a", "start": 0.7, "end": 1.7}], "formats": ["hls"], "qualities": ["source", "240p"]}
    job = runner.submit(wide, targets=["local", "second"], **asked)
    runner.until(job, Stage.UPLOAD)
    (small,) = [o for o in outputs.of(database(), job, 1) if o.name == "a-240p-hls"]
    in_the_way = second / Path(published_keys(job, 1, small.name, small.files)[0]).parent
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()

    assert runner.finish(job)["outcome"] == "partial"
    said = {name: {d["target"]: d["status"] for d in o["deliveries"]} for name, o in runner.outputs(job).items()}
    assert said["a-source-hls"] == {"local": "delivered", "second": "delivered"}
    assert said["a-240p-hls"] == said["a-master"] == {"local": "delivered", "second": "refused"}
    assert not list(second.rglob("master*"))

    in_the_way.unlink()
    intake.requeue(job, by="test", failed_only=True)
    assert runner.finish(job)["outcome"] == "full"
    assert len(streams_of(master_of(second, job)).pictures) == 2
