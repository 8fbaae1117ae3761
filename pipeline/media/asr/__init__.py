"""Who turns speech into words?

Engines stand behind one small protocol, a file each; ASR_ENGINE names the one that is used. What is common to all of
them - windows, times that are true to the sound - is in `hearing`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pipeline.core.errors import SettingInvalid
from pipeline.files import Check
from pipeline.media.asr.http import Http
from pipeline.media.asr.whisper import Whisper, knows_only_english
from pipeline.media.captions import Transcript, base_language
from pipeline.settings import Settings

OnSeconds = Callable[[float, float], None]  # so much has been heard, of so much


class Transcriber(Protocol):
    """Hears a 16 kHz mono wav and says which words are in it, and when."""

    @property
    def name(self) -> str:
        """The engine as a manifest names it, e.g. `whisper:tiny.en`."""

    def ping(self) -> None:
        """Nothing if the engine is there, AsrDown if it is not."""

    def must_know(self, language: str | None) -> None:
        """AsrLanguageUnsupported, before any work, if it cannot hear that language. None: whichever it hears."""

    def transcribe(self, audio_path: Path, *, language: str | None, check: Check, on_progress: OnSeconds) -> Transcript:
        """The transcript; AsrFailed if the sound cannot be read, AsrDown if the engine is not there."""


def is_known(language: str | None, settings: Settings) -> bool:
    """Whether the engine may know the language, as far as that can be told without loading or asking it."""
    only_english = settings.asr_engine == "whisper" and knows_only_english(settings.asr_model)
    return not only_english or base_language(language) in (None, "en")


def engine(settings: Settings) -> Transcriber:
    """The engine that the settings name."""
    if settings.asr_engine == "whisper":
        return Whisper(settings.asr_model, settings.asr_threads)
    if settings.asr_engine == "http":
        settings.need("asr_url")
        key = settings.asr_api_key.get_secret_value()
        return Http(settings.asr_url, key, settings.asr_model, settings.asr_timeout_sec)
    raise SettingInvalid(f"ASR_ENGINE is {settings.asr_engine!r}; the engines are 'whisper' and 'http'.")
