"""How do we run ffmpeg, hear how far it is, and learn what its end means?

Graphs are built with ffmpeg-python and run with an argument list. An input is always opened through `opened`, which
says what ffmpeg may read: files, and only in the container that the probe has found.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import ffmpeg as graph

from pipeline import settings
from pipeline.core.errors import FfmpegFailed, FfmpegKilled, InternalTransient, OutputEmpty, ScratchFull, ToolMissing
from pipeline.files import Check, go_on
from pipeline.media import process

PROTOCOLS = "file,pipe"
GLOBAL = ("-nostdin", "-hide_banner", "-loglevel", "warning", "-nostats", "-progress", "pipe:1", "-stats_period", "0.5")
EVIDENCE_CHARS = 4000

Stream = Any  # ffmpeg-python has no types


@dataclass(frozen=True)
class Progress:
    """How far ffmpeg is. What it does not know yet is 0."""

    media_time_s: float = 0.0
    frame: int = 0
    total_bytes: int = 0
    speed: float = 0.0


OnProgress = Callable[[Progress], None]


def ignore(_progress: Progress) -> None:
    """Nobody wants to know."""


@cache
def _from_wheel() -> str | None:
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        return str(get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        return None


def locate() -> str:
    """The path of ffmpeg: the setting, else the wheel's, else the one on PATH."""
    wanted = settings.current().ffmpeg
    if wanted:
        found = shutil.which(wanted)
        if found is None:
            raise ToolMissing("FFMPEG names a program that is not there or cannot be executed.")
        return found
    found = _from_wheel() or shutil.which("ffmpeg")
    if found is None:
        raise ToolMissing("There is no ffmpeg: install the extra 'embedded' or set FFMPEG to its path.")
    return found


def opened(path: Path, **options: Any) -> Stream:
    """An input of a graph that reads this one file and follows nothing in it."""
    return graph.input(str(path.absolute()), protocol_whitelist=PROTOCOLS, **options)


def generated(filters: str) -> Stream:
    """An input of a graph that ffmpeg makes up itself, e.g. `testsrc2=size=1280x720`."""
    return graph.input(filters, f="lavfi")


def written(streams: Iterable[Stream], path: Path, **options: Any) -> Stream:
    """The graph that writes these streams to a file."""
    return graph.output(*streams, str(path.absolute()), **options)


class ProgressReader:
    """Makes a `Progress` of each block of `key=value` lines; values that are no numbers leave the last one standing."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._seen: dict[str, str] = {}
        self._last = Progress()

    def feed(self, line: str) -> None:
        """Take one line of `-progress` output, or of anything else."""
        key, _, value = line.partition("=")
        if key.strip() != "progress":
            self._seen[key.strip()] = value.strip()
            return
        last, seen, self._seen = self._last, self._seen, {}
        self._last = Progress(
            media_time_s=_number(seen.get("out_time_us"), last.media_time_s * 1e6) / 1e6,
            frame=int(_number(seen.get("frame"), last.frame)),
            total_bytes=int(_number(seen.get("total_size"), last.total_bytes)),
            speed=_number(seen.get("speed", "").removesuffix("x"), last.speed),
        )
        self._on_progress(self._last)


def _number(text: str | None, otherwise: float) -> float:
    """A number that is finite and not negative, else `otherwise` (`N/A`, `nan`, the start's `-577014:32:22.77`)."""
    if text is None or not re.fullmatch(r"\d{1,18}(\.\d{1,18})?(e[+-]?\d{1,2})?", text.strip()):
        return otherwise
    return float(text)


def run_graph(
    stream: Stream,
    *,
    output: Path,
    cwd: Path,
    check: Check = go_on,
    on_progress: OnProgress = ignore,
    timeout_s: float | None = None,
) -> None:
    """Run a graph that writes `output`. Raises one of ours unless ffmpeg ended well and the file has content."""
    arguments: list[str] = graph.get_args(stream)
    ended = process.run(
        [locate(), *GLOBAL, "-y", *arguments],
        cwd=cwd,
        check=check,
        on_line=ProgressReader(on_progress).feed,
        timeout_s=timeout_s,
    )
    evidence = _without_paths(ended.tail, cwd, arguments)
    if ended.returncode != 0:
        _complain(ended, evidence)
    if not output.is_file() or output.stat().st_size == 0:
        raise OutputEmpty("ffmpeg ended well and left an empty file.", evidence=evidence)


def _complain(ended: process.Ended, evidence: str) -> NoReturn:
    """Say what an exit code means. Its text is read here and nowhere else."""
    if ended.returncode < 0:
        raise FfmpegKilled(f"ffmpeg was killed by signal {-ended.returncode}.", evidence=evidence)
    if ended.returncode == 255 and "received signal" in evidence:
        raise FfmpegKilled("ffmpeg was asked to stop by somebody else.", evidence=evidence)
    if "No space left on device" in evidence:
        raise ScratchFull("There was no room left for ffmpeg's output.", evidence=evidence)
    if "Cannot allocate memory" in evidence:
        raise InternalTransient("ffmpeg did not get the memory that it needs.", evidence=evidence)
    last = evidence.rpartition("\n")[2]
    raise FfmpegFailed(f"ffmpeg ended with {ended.returncode}: {last[:300] or 'it gave no reason'}", evidence=evidence)


def _without_paths(lines: Iterable[str], cwd: Path, arguments: Iterable[str]) -> str:
    """The lines with folders taken out: relative below `cwd`, else the bare file name."""
    text = re.sub(r" @ 0x[0-9a-f]+", "", "\n".join(lines)).replace(f"{cwd}/", "")
    for argument in sorted((a for a in arguments if a.startswith("/")), key=len, reverse=True):
        text = text.replace(argument, Path(argument).name)
    return re.sub(r"(?<![\w.:/])(?:/[^\s/'\",\]]+)+/(?=[^\s/])", "", text)[-EVIDENCE_CHARS:]
