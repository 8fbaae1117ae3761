"""Who turns speech into words?

Engines stand behind one small protocol, a file each; ASR_ENGINE names the one that is used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pipeline.core.errors import SettingInvalid
from pipeline.files import Check
from pipeline.media.asr.whisper import Whisper
from pipeline.media.captions import Transcript
from pipeline.settings import Settings

OnSeconds = Callable[[float, float], None]  # so much has been heard, of so much


class Transcriber(Protocol):
    """Hears a 16 kHz mono wav and says which words are in it, and when."""

    @property
    def name(self) -> str:
        """The engine as a breaker and a manifest name it, e.g. `whisper:tiny.en`."""

    def ping(self) -> None:
        """Nothing if the engine is there, AsrDown if it is not."""

    def transcribe(self, audio_path: Path, *, language: str | None, check: Check, on_progress: OnSeconds) -> Transcript:
        """The transcript; AsrFailed if the sound cannot be read, AsrDown if the engine is not there."""


def engine(settings: Settings) -> Transcriber:
    """The engine that the settings name."""
    if settings.asr_engine == "whisper":
        return Whisper(settings.asr_model, settings.asr_threads)
    raise SettingInvalid(f"ASR_ENGINE is {settings.asr_engine!r}; the engine that exists is 'whisper'.")
