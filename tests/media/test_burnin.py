"""Can captions be seen in the picture, and can no text do anything but be shown?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import CaptionsScriptUnsupported, ClipTimeout, LeaseLost
from pipeline.media import burnin, captions, fonts, probe
from pipeline.media.captions import Transcript, Word
from tests.media.conftest import run_ffmpeg


def said(text: str, start_s: float = 0.4, end_s: float = 1.2) -> Transcript:
    words = [Word(start_s, end_s, word) for word in text.split()]
    return captions.transcript(words, language="en", engine="test", duration_s=1.6)


@pytest.fixture(scope="module")
def grey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1.6 s of plain grey, 320x180, with sound."""
    path = tmp_path_factory.mktemp("burnin") / "grey.mp4"
    run_ffmpeg(
        *("-f", "lavfi", "-i", "color=gray:size=320x180:rate=25", "-f", "lavfi", "-i", "sine", "-t", "1.6"),
        *("-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac", path),
    )
    return path


def burnt(source: Path, transcript: Transcript, folder: Path, **more: Any) -> Path:
    burnin.burn_in(source, probe.probe(source), transcript, folder / "out.mp4", folder, **more)
    return folder / "out.mp4"


def changed(one: Path, other: Path, at_s: float) -> tuple[float, float]:
    """The share of pixels of the upper two thirds, and of the lower third, that differ at that time."""
    first, second = (_picture(path, at_s) for path in (one, other))
    differs = abs(first - second) > 40
    border = len(differs) * 2 // 3
    return float(differs[:border].mean()), float(differs[border:].mean())


def _picture(path: Path, at_s: float) -> Any:
    with av.open(str(path)) as media:
        frame = next(f for f in media.decode(video=0) if f.time >= at_s)
        return frame.to_ndarray(format="gray").astype(int)


def test_words_are_seen_in_the_lower_third_while_they_are_said(grey: Path, tmp_path: Path) -> None:
    out = burnt(grey, said("Hello world"), tmp_path)

    assert changed(grey, out, 0.1) == (0.0, 0.0)
    upper, lower = changed(grey, out, 0.8)
    assert upper == 0.0
    assert lower > 0.01
    assert changed(grey, out, 1.4) == (0.0, 0.0)


@pytest.mark.parametrize("text", ["{\\an8}up", "\\Nup{\\pos(10,10)}", "a':b,c;[d]=%{e}\\", "{\\p1}m 0 0 l 99 0 99 99"])
def test_a_text_that_looks_like_a_command_is_shown_as_it_is(text: str, grey: Path, tmp_path: Path) -> None:
    out = burnt(grey, said(text), tmp_path)

    upper, lower = changed(grey, out, 0.8)
    assert upper == 0.0
    assert lower > 0.002


def test_it_is_our_own_font_that_is_drawn(grey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may have fonts of its own, or none."""
    pictures, folder = [], fonts.locate().parent
    for file in ("Roboto-Regular.ttf", "Roboto-Black.ttf"):
        monkeypatch.setattr(fonts, "locate", lambda path=folder / file: path)
        pictures.append(_picture(burnt(grey, said("Hello"), tmp_path), 0.8))

    assert abs(pictures[0] - pictures[1]).max() > 40


def test_the_copy_is_as_long_as_the_original_and_keeps_its_sound(grey: Path, tmp_path: Path) -> None:
    facts = probe.probe(burnt(grey, said("Hello"), tmp_path))

    assert facts.video is not None
    assert (facts.video.width, facts.video.height) == (320, 180)
    assert facts.duration_s == pytest.approx(1.6, abs=0.05)
    assert [track.codec for track in facts.audio] == ["aac"]


def test_a_narrow_picture_has_room_for_a_long_line(tmp_path: Path) -> None:
    source = tmp_path / "narrow.mp4"
    run_ffmpeg("-f", "lavfi", "-i", "color=gray:size=120x200:rate=5", "-t", "1.6", "-c:v", "libx264", source)

    out = burnt(source, said("wwww mmmm wwww mmmm wwww mmmm wwww mmmm"), tmp_path)

    edges = abs(_picture(source, 0.8) - _picture(out, 0.8))[:, [0, 1, -2, -1]]
    assert edges.max() < 40


@pytest.mark.parametrize("text", ["\u4f60\u597d", "\u05e9\u05dc\u05d5\u05dd", "Hello \u0939\u093f\u0928"])
def test_a_script_without_signs_in_the_font_is_refused(text: str, grey: Path, tmp_path: Path) -> None:
    with pytest.raises(CaptionsScriptUnsupported) as refused:
        burnt(grey, said(text), tmp_path)

    assert refused.value.code == "CAPTIONS_SCRIPT_UNSUPPORTED"
    assert list(tmp_path.iterdir()) == []


def test_the_font_knows_what_it_can_show() -> None:
    shown = "Hello, Gr\u00fc\u00dfe \u041f\u0440\u0438\u0432\u0435\u0442 \u0393\u03b5\u03b9\u03ac Vi\u1ec7t 123!"
    assert fonts.missing(shown) == ""
    assert fonts.missing("a\u4f60b\u4f60c") == "\u4f60"
    assert fonts.shown("\u266a la \U0001f600 la \u266a") == "la la"  # signs that say nothing are left out


@settings(deadline=None)
@given(st.text(max_size=80))
def test_no_text_can_end_its_own_line(text: str) -> None:
    written = burnin.to_ass(said(text), 320, 180)

    events = written.partition("[Events]")[2].splitlines()[2:]
    assert all(line.startswith("Dialogue: 0,") for line in events)
    assert len(events) == len(said(text).lines)


def test_a_lost_lease_and_a_deadline_stop_it(grey: Path, tmp_path: Path) -> None:
    def lost() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        burnt(grey, said("Hello"), tmp_path, check=lost)
    with pytest.raises(ClipTimeout):
        burnt(grey, said("Hello"), tmp_path, timeout_s=0.0)
