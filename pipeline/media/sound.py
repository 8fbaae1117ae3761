"""What can be heard in a file, in the form that a transcriber wants, and where is it quiet?"""

from __future__ import annotations

import wave
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.files import Check, go_on
from pipeline.media import ffmpeg, probe

SAMPLE_RATE = 16_000
STEP_S = 0.02  # how finely loudness is measured
STEP = int(SAMPLE_RATE * STEP_S)
STEPS_AT_ONCE = 1500  # 30 s
# Quiet is what lies nearer to the quietest tenth than to the loudest: a share of the way up, on a scale of loudness.
QUIET_SHARE = 0.3
HEARD = 100.0  # of 32,768: below that nobody hears anything


def extract(
    source: Path,
    facts: probe.Facts,
    wav: Path,
    *,
    check: Check = go_on,
    on_progress: ffmpeg.OnProgress = ffmpeg.ignore,
    timeout_s: float | None = None,
) -> Path | None:
    """The first sound track as 16 kHz mono wav, aligned with the picture; None if there is nothing to hear."""
    if not facts.audio:
        return None
    track = ffmpeg.opened(source, f=facts.container.split(",")[0])[str(facts.audio[0].index)]
    # A track that starts late, or has holes, gets silence there: the words' times must be those of the picture.
    aligned = track.filter("aresample", SAMPLE_RATE, **{"async": 1, "first_pts": 0})
    graph = ffmpeg.written([aligned], wav, **{"f": "wav", "c:a": "pcm_s16le", "ac": 1})
    ffmpeg.run_graph(graph, output=wav, cwd=wav.parent, check=check, on_progress=on_progress, timeout_s=timeout_s)
    return wav


def copy_piece(wav: Path, start_s: float, end_s: float, piece: Path) -> Path:
    """A part of a wav as a wav of its own."""
    with wave.open(str(wav)) as whole, wave.open(str(piece), "wb") as part:
        part.setparams(whole.getparams())
        first = min(int(start_s * whole.getframerate()), whole.getnframes())
        whole.setpos(first)
        part.writeframes(whole.readframes(int(end_s * whole.getframerate()) - first))
    return piece


@dataclass(frozen=True)
class Loudness:
    """How loud a sound is, step by step, and below which level that counts as quiet."""

    steps: Sequence[float]
    quiet_below: float

    @property
    def duration_s(self) -> float:
        return len(self.steps) * STEP_S

    def is_quiet(self, step: int) -> bool:
        return not 0 <= step < len(self.steps) or self.steps[step] < self.quiet_below

    def quietest(self, start_s: float, end_s: float, span_s: float) -> float:
        """The middle of the quietest stretch of this length between two times; the latest of several."""
        span, first, last = max(1, int(span_s / STEP_S)), int(start_s / STEP_S), int(end_s / STEP_S)
        sums = [sum(self.steps[n : n + span]) for n in range(first, max(first + 1, last - span))]
        least = min(sums)
        found = max(n for n, total in enumerate(sums) if total == least)
        return (first + found + span / 2) * STEP_S


def loudness(wav: Path, check: Check = go_on) -> Loudness:
    """How loud a 16 kHz mono wav is: the mean height of its samples for each step."""
    steps = array("f")
    with wave.open(str(wav)) as sound:
        while frames := sound.readframes(STEP * STEPS_AT_ONCE):
            check()
            samples = array("h", frames)
            steps.extend(sum(map(abs, samples[n : n + STEP])) / STEP for n in range(0, len(samples), STEP))
    return Loudness(steps, _quiet_below(steps))


def _quiet_below(steps: Sequence[float]) -> float:
    ordered = sorted(steps)
    if not ordered:
        return HEARD
    low, high = ordered[len(ordered) // 10], ordered[len(ordered) * 9 // 10]
    low, high = max(low, HEARD / 10), max(high, HEARD)
    return max(HEARD, float(low * (high / low) ** QUIET_SHARE))
