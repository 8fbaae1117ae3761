"""What can be heard in a file, in the form that a transcriber wants?"""

from __future__ import annotations

from pathlib import Path

from pipeline.files import Check, go_on
from pipeline.media import ffmpeg, probe

SAMPLE_RATE = 16_000


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
