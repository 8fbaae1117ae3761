"""Are the words right, and do they stand at the right time?"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline import settings
from pipeline.core.errors import AsrDown, AsrFailed, LeaseLost, SettingInvalid
from pipeline.media import asr, probe, sound
from pipeline.media.asr.whisper import Whisper
from pipeline.media.captions import Transcript
from pipeline.media.clip import make_clip, plan_cut
from pipeline.media.process import go_on
from pipeline.media.sample import SPEECH_TEXT
from tests.media.conftest import run_ffmpeg


def words_of(text: str) -> list[str]:
    return re.sub(r"[^a-z' ]", " ", text.lower()).split()


def plain(word: str) -> str:
    return word.lower().strip(".,")


def error_rate(wanted: list[str], heard: list[str]) -> float:
    row = list(range(len(heard) + 1))
    for number, word in enumerate(wanted, start=1):
        diagonal, row[0] = row[0], number
        for column, other in enumerate(heard, start=1):
            diagonal, row[column] = (
                row[column],
                min(row[column] + 1, row[column - 1] + 1, diagonal + (word != other)),
            )
    return row[-1] / len(wanted)


def heard_in(source: Path, start_s: float, end_s: float, folder: Path) -> Transcript:
    facts = probe.probe(source)
    clip = folder / "clip.mp4"
    make_clip(source, facts, plan_cut(source, facts, start_s, end_s), clip)
    wav = sound.extract(clip, probe.probe(clip), folder / "clip.wav")
    assert wav is not None
    return asr.engine(settings.current()).transcribe(wav, language=None, check=go_on, on_progress=lambda *_: None)


@pytest.fixture(scope="module")
def whole(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Transcript:
    return heard_in(sample, 0.0, 26.0, tmp_path_factory.mktemp("asr"))


def test_the_sample_is_understood(whole: Transcript) -> None:
    assert error_rate(words_of(SPEECH_TEXT.read_text()), words_of(whole.text)) < 0.05
    assert whole.language == "en"
    assert whole.engine == "whisper:tiny.en"


def test_the_words_of_a_piece_stand_where_they_stand_in_the_whole(
    whole: Transcript, sample: Path, tmp_path: Path
) -> None:
    piece = heard_in(sample, 12.3, 26.0, tmp_path)

    then = {plain(word.text): word.start_s for word in whole.words if word.start_s > 14}
    both = [(then[plain(word.text)], word.start_s) for word in piece.words if plain(word.text) in ("captions", "twice")]
    assert len(both) == 2
    assert all(b + 12.3 == pytest.approx(a, abs=0.3) for a, b in both)


def test_progress_rises_to_the_whole_length(sample: Path, tmp_path: Path) -> None:
    wav = sound.extract(sample, probe.probe(sample), tmp_path / "s.wav")
    assert wav is not None
    seen: list[tuple[float, float]] = []

    Whisper().transcribe(wav, on_progress=lambda done, total: seen.append((done, total)))

    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == pytest.approx(30.0, abs=0.1)


def test_a_tone_has_no_words(tmp_path: Path) -> None:
    run_ffmpeg("-f", "lavfi", "-i", "sine=duration=5", "-ar", "16000", tmp_path / "tone.wav")

    assert Whisper().transcribe(tmp_path / "tone.wav").words == ()


def test_a_source_without_sound_has_nothing_to_extract(silent: Path, tmp_path: Path) -> None:
    assert sound.extract(silent, probe.probe(silent), tmp_path / "s.wav") is None


def test_sound_that_begins_late_is_extracted_at_its_time(tmp_path: Path) -> None:
    source = tmp_path / "late.mp4"
    run_ffmpeg(
        *("-f", "lavfi", "-i", "testsrc2=size=320x240", "-itsoffset", "3", "-f", "lavfi", "-i", "sine=duration=1"),
        *("-t", "5", "-c:v", "libx264", "-c:a", "aac", source),
    )

    wav = sound.extract(source, probe.probe(source), tmp_path / "s.wav")

    assert wav is not None
    assert probe.probe(wav).duration_s == pytest.approx(4.0, abs=0.1)


def test_a_lost_lease_stops_the_listening(tmp_path: Path) -> None:
    def lost() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        Whisper().transcribe(tmp_path / "never-read.wav", check=lost)


def test_what_is_no_sound_fails_for_good(tmp_path: Path) -> None:
    (tmp_path / "bad.wav").write_bytes(b"nothing" * 100)

    with pytest.raises(AsrFailed):
        Whisper().transcribe(tmp_path / "bad.wav")


def test_an_english_model_refuses_another_language(tmp_path: Path) -> None:
    with pytest.raises(AsrFailed, match="only English"):
        Whisper().transcribe(tmp_path / "never-read.wav", language="de")


def test_a_model_that_is_not_there_is_an_engine_that_is_down(tmp_path: Path) -> None:
    with pytest.raises(AsrDown) as caught:
        Whisper(str(tmp_path / "no-model")).transcribe(tmp_path / "never-read.wav")

    assert caught.value.service == "asr:whisper"


def test_an_engine_that_does_not_exist_is_a_bad_setting(env: Callable[..., None]) -> None:
    env(ASR_ENGINE="ouija")

    with pytest.raises(SettingInvalid, match="ouija"):
        asr.engine(settings.current())
