"""Is the demo's video what the demo needs?"""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.media import probe, sample


def test_the_sample_has_the_length_size_and_keyframes_it_promises(tmp_path: Path) -> None:
    path = sample.make_sample(tmp_path / "s.mp4", seconds=5, size="320x180", fps=25)

    facts = probe.probe(path)
    assert facts.duration_s == pytest.approx(5.0, abs=0.04)
    assert facts.video is not None
    assert (facts.video.width, facts.video.height, facts.video.fps) == (320, 180, 25)
    assert facts.has_audio
    assert probe.keyframes(path, 0.0) == pytest.approx((0.0, 2.0, 4.0))


def test_the_speech_is_small_enough_to_ship() -> None:
    assert sample.SPEECH.stat().st_size < 150_000
    assert probe.probe(sample.SPEECH).duration_s == pytest.approx(sample.SPEECH_S, abs=0.1)
