"""Are captions made window by window, and does what cannot be made fail alone?"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from pipeline import runner as running
from pipeline.core.errors import AsrDown, AsrFailed, AsrLanguageUnsupported, BadRequest
from pipeline.core.job import Stage, Status
from pipeline.media import asr as engines
from pipeline.media import ffmpeg, probe
from pipeline.media.captions import Transcript, Word, transcript
from pipeline.runner import Delivery
from pipeline.store import breakers
from pipeline.store.engine import database
from tests.stages import hearing
from tests.stages.conftest import Runner
from tests.stages.hearing import Noting

SPEECH = Path(__file__).parents[1] / "media" / "speech" / "sentences.ogg"


@pytest.fixture(scope="session")
def talk(media: Path) -> Path:
    """42 s of speech under a small picture, a keyframe every second."""
    path = media / "talk.mp4"
    picture = ("-f", "lavfi", "-i", "testsrc2=size=160x90:rate=10", "-i", str(SPEECH), "-shortest")
    encoded = ("-c:v", "libx264", "-preset", "ultrafast", "-g", "10", "-bf", "0", "-c:a", "aac", "-ar", "48000")
    subprocess.run([ffmpeg.locate(), "-v", "error", "-y", *picture, *encoded, str(path)], check=True)
    return path


class Saying(Noting):
    """Hears the same text in everything, or has the same trouble with it."""

    name = "saying"

    def __init__(self, said: str | Exception) -> None:
        self._said = said

    def must_know(self, _language: str | None) -> None:
        if isinstance(self._said, AsrLanguageUnsupported):
            raise self._said

    def transcribe(self, *_: Any, **__: Any) -> Transcript:
        if isinstance(self._said, Exception):
            raise self._said
        words = [Word(0.2, 1.8, text) for text in self._said.split()]
        return transcript(words, language="en", engine=self.name, duration_s=2.0)


@pytest.fixture
def saying(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | Exception], None]:
    def say(said: str | Exception) -> None:
        monkeypatch.setattr(engines, "engine", lambda _settings: Saying(said))

    return say


def words_at(runner: Runner, job: UUID) -> list[str]:
    (found,) = [path for path in runner.objects() if path.suffix == ".json" and "captions" in str(path)]
    assert str(job) in str(found)
    return [word["text"] for word in json.loads(found.read_text())["words"]]


# -- windows ---------------------------------------------------------------------------------------------------------


def test_a_kill_in_the_seventh_window_costs_the_seventh_window(
    runner: Runner,
    talk: Path,
    env: dict[str, str],
    use: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(ASR_WINDOW_SEC="4")
    job = runner.submit(talk, clips=[{}], captions=True)
    runner.until(job, Stage.ASR)
    delivery = Delivery("here", str(uuid4()))

    first = hearing.live({**env, "ASR_WINDOW_SEC": "4"}, job, delivery, tmp_path / "first", dies_at=7)
    first.join(60)
    assert first.exitcode == -signal.SIGKILL
    running.crashed(job, delivery, "killed")
    heir = Noting(tmp_path / "second")
    monkeypatch.setattr(engines, "engine", lambda _settings: heir)
    done = runner.finish(job)

    before = Noting(tmp_path / "first").heard
    assert done["outcome"] == "full"
    assert len(before) == 7
    assert heir.heard[0] == before[6]
    assert not set(heir.heard) & set(before[:6])
    assert words_at(runner, job) == before[:6] + heir.heard
    assert len(before[:6] + heir.heard) >= 10


def test_a_window_that_another_engine_has_heard_is_heard_again(
    runner: Runner,
    talk: Path,
    env: dict[str, str],
    use: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(ASR_WINDOW_SEC="12")
    job = runner.submit(talk, clips=[{}], captions=True)
    runner.until(job, Stage.ASR)
    delivery = Delivery("here", str(uuid4()))
    hearing.live({**env, "ASR_WINDOW_SEC": "12"}, job, delivery, tmp_path / "first", dies_at=3).join(60)
    running.crashed(job, delivery, "killed")
    heir = Noting(tmp_path / "second")
    heir.name = "another"
    monkeypatch.setattr(engines, "engine", lambda _settings: heir)

    runner.finish(job)

    assert heir.heard[:3] == Noting(tmp_path / "first").heard


def test_the_language_of_the_first_words_is_asked_for_in_the_other_windows(
    runner: Runner, talk: Path, use: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(ASR_WINDOW_SEC="12")
    engine = Noting(tmp_path / "note")
    monkeypatch.setattr(engines, "engine", lambda _settings: engine)
    job = runner.submit(talk, clips=[{}], captions=True)

    runner.finish(job)

    assert engine.asked_for == [None, *["en"] * (len(engine.heard) - 1)]


def test_a_short_clip_is_heard_whole_and_needs_no_window(
    runner: Runner, talk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Noting(tmp_path / "note")
    monkeypatch.setattr(engines, "engine", lambda _settings: engine)
    job = runner.submit(talk, captions=True)

    runner.finish(job)

    assert len(engine.heard) == 1
    assert not [key for key in runner.units(job) if "window" in key]


# -- what cannot be made ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [AsrFailed("noise"), AsrLanguageUnsupported("only Klingon")])
def test_captions_that_cannot_be_made_fail_alone(
    runner: Runner, talkie: Path, saying: Callable[[str | Exception], None], trouble: AsrFailed
) -> None:
    saying(trouble)
    job = runner.submit(talkie, captions=True, burn_in=True)

    done = runner.finish(job)

    outputs = runner.outputs(job)
    assert (done["status"], done["outcome"]) == ("completed", "partial")
    assert outputs["clip1-source"]["status"] == "completed"
    for name in ("clip1-captions", "clip1-burnin"):
        assert (outputs[name]["status"], outputs[name]["error_code"]) == ("failed", trouble.code)


def test_an_engine_that_is_down_lets_the_job_wait_and_counts_against_it(
    runner: Runner, talkie: Path, saying: Callable[[str | Exception], None]
) -> None:
    saying(AsrDown("away", service="asr:whisper"))
    job = runner.submit(talkie, captions=True)
    runner.until(job, Stage.ASR)

    runner.step(job)

    waiting = runner.job(job)
    assert (waiting.status, waiting.waiting_on, waiting.attempt_count) == (Status.QUEUED, "asr:whisper", 0)
    assert breakers.load(database(), "asr:whisper").breaker.failures == (job,)


def test_a_language_that_the_embedded_model_does_not_know_is_refused_before_there_is_a_job(
    runner: Runner, talkie: Path, use: Callable[..., None]
) -> None:
    with pytest.raises(BadRequest) as refused:
        runner.submit(talkie, captions=True, language="de")

    assert (refused.value.reason, refused.value.field) == ("ASR_LANGUAGE_UNSUPPORTED", "language")
    runner.submit(talkie, captions=False, language="de")
    runner.submit(talkie, captions=True, language="en-GB")
    use(ASR_MODEL="/models/large-v3")
    runner.submit(talkie, captions=True, language="de")


# -- burn-in ---------------------------------------------------------------------------------------------------------


def test_burnt_in_captions_are_an_output_of_their_own(
    runner: Runner, talkie: Path, saying: Callable[[str | Exception], None]
) -> None:
    saying("Hello there {\\an8} & goodbye")
    job = runner.submit(talkie, captions=True, burn_in=True)

    done = runner.finish(job)

    assert done["outcome"] == "full"
    burnt = runner.outputs(job)["clip1-burnin"]
    assert (burnt["kind"], burnt["status"]) == ("burnin", "completed")
    (file,) = burnt["deliveries"][0]["files"]
    facts = probe.probe(runner.output / file["key"])
    assert facts.video is not None
    assert (facts.video.width, facts.video.height) == (320, 240)
    assert facts.has_audio


def test_a_script_that_the_font_cannot_show_fails_the_burn_in_alone(
    runner: Runner, talkie: Path, saying: Callable[[str | Exception], None]
) -> None:
    saying("\u4f60\u597d \u4e16\u754c")
    job = runner.submit(talkie, captions=True, burn_in=True)

    done = runner.finish(job)

    outputs = runner.outputs(job)
    assert (done["status"], done["outcome"]) == ("completed", "partial")
    assert outputs["clip1-captions"]["status"] == "completed"
    assert outputs["clip1-burnin"]["error_code"] == "CAPTIONS_SCRIPT_UNSUPPORTED"


def test_only_a_failed_burn_in_is_made_again(
    runner: Runner, talkie: Path, saying: Callable[[str | Exception], None]
) -> None:
    from pipeline import intake

    saying("\u4f60\u597d")
    job = runner.submit(talkie, captions=True, burn_in=True)
    runner.finish(job)
    before = {path: path.stat().st_mtime_ns for path in runner.objects()}
    saying("hello")

    intake.requeue(job, "test", failed_only=True)
    done = runner.finish(job)

    assert done["outcome"] == "full"
    assert runner.outputs(job)["clip1-burnin"]["status"] == "completed"
    assert before.items() <= {path: path.stat().st_mtime_ns for path in runner.objects()}.items()


def test_where_nothing_is_said_or_heard_nothing_is_burnt_in(
    runner: Runner, talkie: Path, silent: Path, saying: Callable[[str | Exception], None]
) -> None:
    saying("")
    wordless = runner.submit(talkie, captions=True, burn_in=True)
    mute = runner.submit(silent, captions=True, burn_in=True)

    assert runner.finish(wordless)["outcome"] == runner.finish(mute)["outcome"] == "full"
    assert runner.outputs(wordless)["clip1-burnin"]["facts"]["skipped"] == "nothing is said in the clip"
    assert runner.outputs(mute)["clip1-burnin"]["facts"]["skipped"] == "the clip has no sound"


@pytest.mark.parametrize(("burn_in", "factor"), [(False, 12), (True, 20)])
def test_burning_in_gives_the_stage_more_time(
    runner: Runner,
    talkie: Path,
    use: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    burn_in: bool,
    factor: int,
) -> None:
    use(ASR_SLA_FACTOR="12000", BURNIN_SLA_FACTOR="8000")  # two seconds of media must be more than ten minutes
    seen: list[float] = []

    def look(_settings: object) -> Noting:
        lease, began = (job := runner.job(job_id)).lease, job.processing_started_at
        assert lease is not None
        assert began is not None
        seen.append((lease.deadline_at - began).total_seconds())
        return Saying("")

    monkeypatch.setattr(engines, "engine", look)
    job_id = runner.submit(talkie, captions=True, burn_in=burn_in)

    runner.finish(job_id)

    assert seen == [pytest.approx(2 * factor * 1000, abs=1)]
