"""How does the sound of a file become captions, so that a kill costs one window and nothing is heard twice?

What was heard of a window is kept in its checkpoint, in the database: whoever goes on, on whichever machine, hears only
what is left. A window that was heard by another engine, or was cut elsewhere, is heard again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from pipeline.media import asr as engines
from pipeline.media import captions, probe, sound
from pipeline.media.asr import OnSeconds, Transcriber, hearing
from pipeline.media.asr.hearing import Window
from pipeline.media.captions import Transcript, Word
from pipeline.stages import services
from pipeline.stages.context import Context, Unit

WRITERS: Mapping[str, Callable[[Transcript], str]] = {"srt": captions.to_srt, "vtt": captions.to_vtt}


def listen(ctx: Context, name: str, media: Path, facts: probe.Facts, on_seconds: OnSeconds) -> Unit:
    """The words of a file that can be heard, with their times, as JSON."""

    def transcribe(work: Path) -> Mapping[str, Any]:
        engine = engines.engine(ctx.settings)
        with ctx.service(services.of_asr(ctx.settings.asr_engine)):
            engine.must_know(ctx.request.language)
        wav = ctx.scratch.path(f"{name}-sound.wav")
        sound.extract(media, facts, wav, check=ctx.check, timeout_s=ctx.allowed_s)
        said = _Listener(ctx, name, engine, wav, on_seconds).hear()
        wav.unlink()
        work.write_text(captions.to_json(said), encoding="utf-8")
        return {
            "engine": said.engine,
            "language": said.language,
            "words": len(said.words),
            "confidence": said.confidence,
        }

    return ctx.file_once(f"{name}-json", ".json", transcribe)


def subtitles(ctx: Context, name: str, said: Transcript) -> list[Unit]:
    """The files that players show."""

    def written(kind: str, write: Callable[[Transcript], str]) -> Unit:
        def make(work: Path) -> Mapping[str, Any]:
            work.write_text(write(said), encoding="utf-8")
            return {}

        return ctx.file_once(f"{name}-{kind}", f".{kind}", make)

    return [written(kind, write) for kind, write in WRITERS.items()]


def said_in(unit: Unit) -> Transcript:
    """The transcript that a unit of `listen` holds."""
    return captions.from_json(unit.path.read_text(encoding="utf-8"))


class _Listener:
    """Hears one sound, window by window."""

    def __init__(self, ctx: Context, name: str, engine: Transcriber, wav: Path, on_seconds: OnSeconds) -> None:
        self._ctx, self._name, self._engine, self._wav, self._on_seconds = ctx, name, engine, wav, on_seconds
        self._sound = sound.loudness(wav, ctx.check)

    def hear(self) -> Transcript:
        """All of it."""
        windows = hearing.windows(self._sound, self._ctx.settings.asr_window_sec)
        language = self._ctx.request.language
        parts: list[Sequence[Word]] = []
        found = None
        for n, window in enumerate(windows):
            is_whole = len(windows) == 1
            words, heard = self._window(window, found or language) if is_whole else self._once(n, window, found)
            parts.append(words)
            if words and found is None:
                found = heard  # what the first words are spoken in; the others are listened to in the same
        return captions.transcript(
            hearing.joined(parts),
            language=found or language or "und",
            engine=self._engine.name,
            duration_s=self._sound.duration_s,
        )

    def _once(self, n: int, window: Window, found: str | None) -> tuple[Sequence[Word], str]:
        """A window's words and their language, heard only if no record of it is good."""
        asked_for = found or self._ctx.request.language
        key = f"{self._name}-window-{n}"
        same = {"engine": self._engine.name, "asked_for": asked_for, "window": list(astuple(window))}
        record = self._ctx.record(key)
        if record is not None and all(record[what] == value for what, value in same.items()):
            return [Word(*word) for word in record["words"]], record["language"]
        words, language = self._window(window, asked_for)
        self._ctx.remember(key, {**same, "language": language, "words": [astuple(word) for word in words]})
        return words, language

    def _window(self, window: Window, language: str | None) -> tuple[Sequence[Word], str]:
        is_whole = (window.from_s, window.to_s) == (0.0, round(self._sound.duration_s, 2))
        piece = self._wav if is_whole else self._ctx.scratch.path(f"{self._name}-window.wav")
        if not is_whole:
            sound.copy_piece(self._wav, window.from_s, window.to_s, piece)

        def on_seconds(done_s: float, _total_s: float) -> None:
            self._on_seconds(min(window.from_s + done_s, window.end_s), self._sound.duration_s)

        with self._ctx.service(services.of_asr(self._ctx.settings.asr_engine)):
            said = self._engine.transcribe(piece, language=language, check=self._ctx.check, on_progress=on_seconds)
        return hearing.kept(said.words, window, self._sound), said.language
