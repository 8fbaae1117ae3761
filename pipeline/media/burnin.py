"""How do captions get into the picture itself?

They are written as a subtitle file of our own making, and the renderer reads that: no text of anybody's ever stands in
the language of ffmpeg's filters, and neither does a path. The sound is copied, the picture encoded like a clip's.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pipeline.core import ladder
from pipeline.core.errors import CaptionsScriptUnsupported
from pipeline.files import Check, go_on
from pipeline.media import ffmpeg, fonts, probe
from pipeline.media.captions import Transcript, cues
from pipeline.media.clip import ENCODE_VIDEO, MUX
from pipeline.media.ffmpeg import OnProgress
from pipeline.media.verify import Expected, Measured, verify

SUBTITLES = "captions.ass"  # names that mean nothing to a filter, in the folder that ffmpeg runs in
FONTS = "fonts"
HEIGHT_SHARE = 0.075  # of the picture, for a row of text
WIDTH_SHARE = 0.055  # of the picture: in a narrow one a row of 42 signs would not fit otherwise
MISSING_SHOWN = 20

# The words joiner keeps a backslash from being the beginning of a command; a brace is escaped as the renderer knows it.
ESCAPES = str.maketrans({"\\": "\\\u2060", "{": "\\{", "}": "\\}"})

STYLE = (
    "Style: Default,{font},{size},&H00FFFFFF,&H00FFFFFF,&H00000000,&H80000000,"
    "0,0,0,0,100,100,0,0,1,{outline},0,2,{side},{side},{bottom},1"
)
HEAD = """[Script Info]
ScriptType: v4.00+
PlayResX: {width}
PlayResY: {height}
WrapStyle: 0
ScaledBorderAndShadow: yes

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, Bold, Italic, Underline, \
StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, Alignment, MarginL, MarginR, MarginV, Encoding
{style}

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""


def must_show(said: Transcript) -> None:
    """CaptionsScriptUnsupported if the font has no signs for what is said."""
    missing = fonts.missing(said.text)
    if missing:
        raise CaptionsScriptUnsupported(
            f"{fonts.NAME} has no signs for {missing[:MISSING_SHOWN]!r}; the SRT and VTT files have them."
        )


def to_ass(said: Transcript, width: int, height: int) -> str:
    """The captions as the renderer reads them, for a picture of this size."""
    size = max(8, round(min(height * HEIGHT_SHARE, width * WIDTH_SHARE)))
    style = STYLE.format(font=fonts.NAME, size=size, outline=max(1, size // 10), side=width // 20, bottom=height // 20)
    lines = (
        f"Dialogue: 0,{_clock(start)},{_clock(end)},Default,,0,0,0,,{fonts.shown(text).translate(ESCAPES)}\n"
        for start, end, text in cues(said.lines)
    )
    return HEAD.format(width=width, height=height, style=style) + "".join(lines)


def burn_in(
    video: Path,
    facts: probe.Facts,
    said: Transcript,
    out_path: Path,
    folder: Path,
    *,
    check: Check = go_on,
    on_progress: OnProgress = ffmpeg.ignore,
    timeout_s: float | None = None,
) -> Measured:
    """Make a copy of the video with the captions in its picture, and verify it; `folder` is for what ffmpeg reads."""
    assert facts.video is not None
    must_show(said)
    width, height = ladder.size_for(ladder.SOURCE, *facts.video.shown_size)
    (folder / SUBTITLES).write_text(to_ass(said, width, height), encoding="utf-8")
    (folder / FONTS).mkdir(exist_ok=True)
    shutil.copyfile(fonts.locate(), folder / FONTS / fonts.FILE)
    opened = ffmpeg.opened(video, f=facts.container.split(",")[0])
    picture = opened[str(facts.video.index)].filter("scale", width, height).filter("setsar", 1)
    streams = [picture.filter("ass", SUBTITLES, fontsdir=FONTS)]
    options: dict[str, Any] = {**ENCODE_VIDEO, **MUX}
    if facts.audio:
        streams.append(opened[str(facts.audio[0].index)])
        options["c:a"] = "copy"
    graph = ffmpeg.written(streams, out_path, **options)
    ffmpeg.run_graph(graph, output=out_path, cwd=folder, check=check, on_progress=on_progress, timeout_s=timeout_s)
    return verify(out_path, _expected(facts, width, height), check)


def _expected(facts: probe.Facts, width: int, height: int) -> Expected:
    assert facts.video is not None
    return Expected(
        duration_s=facts.video.duration_s or facts.duration_s,
        tolerance_s=facts.video.frame_s + 0.001,
        has_audio=facts.has_audio,
        width=width,
        height=height,
    )


def _clock(ms: int) -> str:
    return f"{ms // 3_600_000}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}.{ms % 1000 // 10:02}"
