"""Are the words right, and do they stand at the right time?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pipeline import settings
from pipeline.core.errors import AsrDown, AsrFailed, AsrLanguageUnsupported, LeaseLost, SettingInvalid
from pipeline.media import asr, probe, sound
from pipeline.media.asr import hearing
from pipeline.media.asr.whisper import EMBEDDED, Whisper, _embedded, _loaded
from pipeline.media.captions import Transcript, transcript
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
    assert error_rate(words_of(SPEECH_TEXT.read_text()), words_of(whole.text)) < 0.10
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


# Sentences that were spoken one by one (flite, two voices) and put together with pauses: so their times are known.
SPEECH = Path(__file__).with_name("speech")
SENTENCES = json.loads((SPEECH / "sentences.json").read_text())


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wav = tmp_path_factory.mktemp("speech") / "sentences.wav"
    run_ffmpeg("-i", SPEECH / "sentences.ogg", "-ar", "16000", "-ac", "1", wav)
    return wav


@cache
def heard_by_windows(wav: Path, window_s: float) -> tuple[Transcript, int]:
    """What the stage makes of it, and of how many windows."""
    loud = sound.loudness(wav)
    windows = hearing.windows(loud, window_s)
    parts = []
    for window in windows:
        piece = sound.copy_piece(wav, window.from_s, window.to_s, wav.with_name("piece.wav"))
        parts.append(hearing.kept(Whisper().transcribe(piece).words, window, loud))
    words = hearing.joined(parts)
    return transcript(words, language="en", engine="test", duration_s=loud.duration_s), len(windows)


@pytest.mark.parametrize(("window_s", "least"), [(300.0, 1), (4.0, 10)])
def test_generated_speech_is_understood_and_in_time_however_it_is_cut(
    speech: Path, window_s: float, least: int
) -> None:
    said, windows = heard_by_windows(speech, window_s)

    assert windows >= least
    assert error_rate(words_of(" ".join(s["text"] for s in SENTENCES)), words_of(said.text)) < 0.10
    for sentence in SENTENCES:
        assert min(abs(word.start_s - sentence["start_s"]) for word in said.words) < 0.3
        assert min(abs(word.end_s - sentence["end_s"]) for word in said.words) < 0.3


def test_each_sentence_begins_a_line_that_stands_with_its_sound(speech: Path) -> None:
    said, _ = heard_by_windows(speech, 300.0)

    for sentence in SENTENCES:
        line = min(said.lines, key=lambda one: abs(one.start_s - sentence["start_s"]))
        assert line.start_s == pytest.approx(sentence["start_s"], abs=0.3)
        assert words_of(line.text)[0] == words_of(sentence["text"])[0]


def test_progress_rises_to_the_whole_length(sample: Path, tmp_path: Path) -> None:
    wav = sound.extract(sample, probe.probe(sample), tmp_path / "s.wav")
    assert wav is not None
    seen: list[tuple[float, float]] = []

    Whisper().transcribe(wav, on_progress=lambda done, total: seen.append((done, total)))

    assert seen == sorted(seen)
    assert {type(number) for pair in seen for number in pair} == {float}
    assert seen[-1][0] == seen[-1][1] == pytest.approx(30.0, abs=0.1)


@pytest.mark.parametrize("made_of", ["sine", "anullsrc", "anoisesrc=color=pink:amplitude=0.5:seed=1"])
def test_what_is_no_speech_has_no_words(made_of: str, tmp_path: Path) -> None:
    run_ffmpeg("-f", "lavfi", "-i", made_of, "-t", "8", "-ar", "16000", "-ac", "1", tmp_path / "noise.wav")

    assert Whisper().transcribe(tmp_path / "noise.wav").words == ()


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
    with pytest.raises(AsrLanguageUnsupported, match="only English"):
        Whisper().transcribe(tmp_path / "never-read.wav", language="de")


def test_a_language_is_refused_before_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.media.asr.whisper._loaded", lambda *_: pytest.fail("the model was loaded"))

    with pytest.raises(AsrLanguageUnsupported) as caught:
        Whisper().must_know("de-CH")

    assert caught.value.code == "ASR_LANGUAGE_UNSUPPORTED"
    for known in (None, "en", "en-GB"):
        Whisper().must_know(known)


@pytest.mark.parametrize("model", ["/nowhere/no-model", "large-v3", "no-such-size", "somebody/whisper-in-the-hub"])
def test_a_model_that_is_not_there_is_an_engine_that_is_down_and_nothing_is_downloaded(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    asked: list[object] = []

    def nobody(host: object, *_: object, **__: object) -> None:
        asked.append(host)
        raise OSError("there is no network")

    monkeypatch.setattr("socket.getaddrinfo", nobody)

    with pytest.raises(AsrDown, match="nothing is downloaded by itself") as caught:
        Whisper(model).transcribe(tmp_path / "never-read.wav")

    assert caught.value.service == "asr:whisper"
    assert asked == []


def test_a_model_is_found_by_its_folder_and_by_its_name_in_the_cache(
    speech: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faster_whisper.utils.huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    cached = tmp_path / "models--Systran--faster-whisper-tiny.en"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0" * 40)
    (cached / "snapshots").mkdir()
    (cached / "snapshots" / ("0" * 40)).symlink_to(_embedded())
    (tmp_path / "my-model").symlink_to(_embedded())
    piece = sound.copy_piece(speech, 0.0, 4.4, tmp_path / "piece.wav")

    by_folder = Whisper(str(tmp_path / "my-model")).transcribe(piece)
    by_name = Whisper(EMBEDDED).transcribe(piece)

    _loaded.cache_clear()
    assert by_folder.engine == "whisper:my-model"
    assert by_folder.text == by_name.text
    assert words_of(by_name.text)[:3] == ["the", "morning", "train"]


def test_a_model_is_loaded_once_in_a_process() -> None:
    Whisper().ping()
    loads = _loaded.cache_info().misses

    Whisper().ping()

    assert _loaded.cache_info().misses == loads


def test_an_engine_that_does_not_exist_is_a_bad_setting(env: Callable[..., None]) -> None:
    env(ASR_ENGINE="ouija")

    with pytest.raises(SettingInvalid, match="ouija"):
        asr.engine(settings.current())
