"""Do we know what is in a file, and do we notice when it is not what it claims?"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from pathlib import Path

import pytest

from pipeline.core.errors import OutputEmpty, OutputInvalid, SourceUnreadable
from pipeline.media import probe
from pipeline.media.verify import Expected, verify
from tests.media.conftest import run_ffmpeg


def test_a_video_tells_its_facts(film: Path) -> None:
    facts = probe.probe(film)

    assert facts.duration_s == pytest.approx(12.012, abs=0.001)
    assert facts.size_bytes == film.stat().st_size
    assert facts.video is not None
    assert (facts.video.codec, facts.video.width, facts.video.height) == ("h264", 320, 240)
    assert facts.video.fps == Fraction(30000, 1001)
    assert [(a.codec, a.sample_rate) for a in facts.audio] == [("aac", 44100)]


def test_a_turned_picture_is_seen_upright(film: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turned.mp4"
    run_ffmpeg("-display_rotation", "90", "-i", film, "-c", "copy", turned)

    video = probe.probe(turned).video

    assert video is not None
    assert (video.width, video.height) == (320, 240)
    assert video.rotation == 270
    assert video.shown_size == (240, 320)


def test_a_source_without_sound_is_told_apart(silent: Path) -> None:
    assert not probe.probe(silent).has_audio


def test_sound_with_a_cover_picture_is_no_video(film: Path, tmp_path: Path) -> None:
    song, cover = tmp_path / "song.m4a", tmp_path / "cover.png"
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x64", "-frames:v", "1", cover)
    run_ffmpeg(
        *("-i", film, "-i", cover, "-map", "0:a", "-map", "1:v", "-c:a", "copy", "-c:v", "png"),
        *("-disposition:v", "attached_pic", "-f", "mp4", song),
    )

    facts = probe.probe(song)

    assert facts.video is None
    assert facts.has_audio


def test_a_recording_that_was_never_closed_still_has_a_duration(film: Path, tmp_path: Path) -> None:
    live = tmp_path / "live.mkv"
    run_ffmpeg("-i", film, "-c", "copy", "-f", "matroska", "-live", "1", live)

    assert probe.probe(live).duration_s == pytest.approx(12.0, abs=0.05)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.mp4", b"no video at all\n" * 50),
        ("empty.mp4", b""),
        ("list.ffconcat", b"ffconcat version 1.0\nfile 'film.mp4'\n"),
        ("concat.mp4", b"ffconcat version 1.0\nfile 'film.mp4'\n"),
        ("list.m3u8", b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfilm.ts\n#EXT-X-ENDLIST\n"),
        ("playlist.mp4", b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfilm.ts\n#EXT-X-ENDLIST\n"),
        ("manifest.mpd", b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"></MPD>'),
        ("session.sdp", b"v=0\no=- 0 0 IN IP4 127.0.0.2\ns=x\nc=IN IP4 127.0.0.2\nm=video 9 RTP/AVP 96\n"),
        ("image%d.png", b"\x89PNG\r\n\x1a\n"),
    ],
)
def test_what_is_no_media_of_its_own_is_refused(name: str, content: bytes, film: Path, tmp_path: Path) -> None:
    (tmp_path / "film.mp4").symlink_to(film)
    run_ffmpeg("-i", film, "-c", "copy", "-t", "1", tmp_path / "film.ts")
    (tmp_path / name).write_bytes(content)

    with pytest.raises(SourceUnreadable):
        probe.probe(tmp_path / name)


def test_keyframes_begin_with_the_one_before(film: Path) -> None:
    assert probe.keyframes(film, 3.0, span_s=3.0)[:2] == pytest.approx([2.002, 4.004], abs=0.001)
    assert probe.keyframes(film, 2.0, span_s=0.0)[0] == pytest.approx(2.002, abs=0.001)


def test_a_truncated_source_ends_where_it_breaks_off(film: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(film.read_bytes()[: film.stat().st_size // 2])

    assert 4 < probe.probe(broken).duration_s < 8


@pytest.mark.parametrize("container", ["mp4", "mkv", "flv", "avi"])
def test_a_header_that_claims_more_than_there_is_is_not_believed(container: str, film: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / f"whole.{container}", tmp_path / f"broken.{container}"
    options = (
        ("-c:v", "mpeg4", "-c:a", "libmp3lame") if container == "avi" else ("-c", "copy", "-movflags", "+faststart")
    )
    run_ffmpeg("-i", film, *options, whole)
    broken.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])

    facts = probe.probe(broken)

    assert facts.claimed_s == pytest.approx(12, abs=0.3)
    assert 3 < facts.duration_s < 9
    assert probe.probe(whole).claimed_s is None


def test_the_track_that_is_marked_is_the_first(film: Path, tmp_path: Path) -> None:
    two = tmp_path / "two.mkv"
    run_ffmpeg(
        *("-i", film, "-map", "0:v", "-map", "0:a", "-map", "0:a", "-c", "copy"),
        *("-metadata:s:a:0", "language=deu", "-metadata:s:a:1", "language=eng"),
        *("-disposition:a:0", "0", "-disposition:a:1", "default", two),
    )

    assert [track.language for track in probe.probe(two).audio] == ["eng", "deu"]


def test_the_hash_is_that_of_the_bytes(film: Path) -> None:
    assert probe.sha256(film) == hashlib.sha256(film.read_bytes()).hexdigest()


# -- verification ----------------------------------------------------------------------------------------------------

WHOLE = Expected(duration_s=12.012, tolerance_s=0.034, has_audio=True, width=320, height=240)


def test_a_good_file_passes_and_is_measured(film: Path) -> None:
    measured = verify(film, WHOLE)

    assert measured.video_packets == 360
    assert measured.duration_s == pytest.approx(12.012, abs=0.001)


@pytest.mark.parametrize("kept", [0.97, 0.5, 0.1])
def test_a_truncated_file_is_found_although_its_header_claims_everything(
    kept: float, film: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(film.read_bytes()[: int(film.stat().st_size * kept)])

    with pytest.raises(OutputInvalid):
        verify(broken, WHOLE)


def test_one_missing_byte_is_found(film: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(film.read_bytes()[:-1])

    with pytest.raises(OutputInvalid):
        verify(broken, WHOLE)


def test_a_picture_too_few_is_found(film: Path) -> None:
    with pytest.raises(OutputInvalid, match="360 pictures instead of 361"):
        verify(film, Expected(12.012, 0.034, pictures=361))


def test_damage_that_leaves_the_packets_in_place_is_found_by_decoding(film: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    content = bytearray(film.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 30_000] = b"\xff" * 30_000
    broken.write_bytes(content)

    verify(film, WHOLE, decode=True)
    verify(broken, WHOLE)
    with pytest.raises(OutputInvalid):
        verify(broken, WHOLE, decode=True)


def test_nothing_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()

    for name in ("empty.mp4", "missing.mp4"):
        with pytest.raises(OutputEmpty):
            verify(tmp_path / name, WHOLE)


@pytest.mark.parametrize(
    "other",
    [
        Expected(12.2, 0.034),
        Expected(11.9, 0.034),
        Expected(12.012, 0.034, has_video=False),
        Expected(12.012, 0.034, has_audio=False),
        Expected(12.012, 0.034, width=640, height=360),
    ],
)
def test_a_file_that_is_something_else_than_was_asked_for_is_invalid(other: Expected, film: Path) -> None:
    with pytest.raises(OutputInvalid):
        verify(film, other)


def test_a_file_without_a_picture_at_its_beginning_is_invalid(film: Path, tmp_path: Path) -> None:
    late = tmp_path / "late.mp4"
    run_ffmpeg("-i", film, "-itsoffset", "1", "-i", film, "-map", "1:v", "-map", "0:a", "-c", "copy", "-t", "12", late)

    with pytest.raises(OutputInvalid, match="no picture before"):
        verify(late, Expected(12.078, 0.034))


def test_sound_that_ends_early_is_invalid(film: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.mp4"
    run_ffmpeg("-i", film, "-t", "6", "-i", film, "-map", "0:v", "-map", "1:a", "-c", "copy", cut)

    with pytest.raises(OutputInvalid, match="sound"):
        verify(cut, WHOLE)
