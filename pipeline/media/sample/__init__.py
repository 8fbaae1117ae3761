"""Where does a first video come from on a machine that has none?

It is made here: a moving test picture with a running clock, and under it a spoken text of ours. The speech was made
with `flite -voice rms` (whose voices are free) and is stored as Opus beside its text, so a test can compare words.
"""

from __future__ import annotations

from pathlib import Path

from pipeline.files import Check, go_on
from pipeline.media import ffmpeg

SPEECH = Path(__file__).with_name("speech.ogg")
SPEECH_TEXT = Path(__file__).with_name("speech.txt")
SPEECH_S = 25.8
KEYFRAME_EVERY_S = 2


def make_sample(
    path: Path,
    seconds: float = 30.0,
    size: str = "1280x720",
    fps: int = 30,
    *,
    check: Check = go_on,
    on_progress: ffmpeg.OnProgress = ffmpeg.ignore,
) -> Path:
    """Write an mp4 of this length, with a keyframe every 2 s; the speech is said once, then again if there is time."""
    picture = ffmpeg.generated(f"testsrc2=size={size}:rate={fps}:duration={seconds:g}")
    speech = ffmpeg.opened(SPEECH, f="ogg", stream_loop=-1)["a:0"]
    options = {
        "c:v": "libx264",
        "preset": "ultrafast",
        "crf": 30,
        "pix_fmt": "yuv420p",
        "g": fps * KEYFRAME_EVERY_S,
        "keyint_min": fps * KEYFRAME_EVERY_S,
        "sc_threshold": 0,
        "c:a": "aac",
        "b:a": "96k",
        "ar": 48000,
        "t": f"{seconds:g}",
        "movflags": "+faststart",
        "f": "mp4",
    }
    graph = ffmpeg.written([picture, speech], path, **options)
    ffmpeg.run_graph(graph, output=path, cwd=path.parent, check=check, on_progress=on_progress)
    return path
