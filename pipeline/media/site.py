"""How is a film fetched that is somewhere behind the page of a site?

By yt-dlp, in a guarded process of its own (`visitor.py`): it dies with us, may connect to the open internet only, and
writes into one folder. ffmpeg never gets an address: yt-dlp fetches the pieces of HLS and DASH itself, and where a site
keeps picture and sound apart, the two local files are put together here. What the visitor says is translated here.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from pipeline.core.errors import (
    InternalTransient,
    IronclipError,
    Kind,
    ScratchFull,
    SourceDown,
    SourceError,
    SourceForbidden,
    SourceNotFound,
    SourceTimeout,
    SourceUnreadable,
    ToolMissing,
    UpstreamFailure,
)
from pipeline.files import Check
from pipeline.media import ffmpeg, probe, process
from pipeline.media.transfer import Limits, OnBytes, meaning

VISITOR = Path(__file__).with_name("visitor.py")
STREAM = re.compile(r"stream-[01]")
SECRETS = re.compile(r"(https?://)(?:[^\s/@]*@)?([^\s?#'\"]*)[^\s'\"]*")
SAID_CHARS = 300
# The visitor's words, what they mean for the job, and how that is said. The host that was spoken to last has it broken.
MEANINGS: dict[str | None, tuple[type[IronclipError], str]] = {
    "full": (ScratchFull, "There is no room left for the source."),
    "forbidden": (SourceForbidden, "{asked} leads to what is not on the open internet: {said}."),
    "silent": (SourceTimeout, "{host} fell silent."),
    "down": (SourceDown, "{host} cannot be reached."),
    "broken": (UpstreamFailure, "{host} broke off the transfer."),
    "nothing": (SourceUnreadable, "On the page of {asked} no video can be found."),
    "several": (SourceUnreadable, "The page of {asked} has several videos: give the address of one."),
    "live": (SourceUnreadable, "{asked} sends this live: there is no end to fetch."),
    "elsewhere": (SourceForbidden, "{asked} does not show this video where we are."),
    "unavailable": (SourceNotFound, "{asked} does not give this video: {said}"),
}


def is_possible() -> bool:
    """Whether yt-dlp is installed."""
    return find_spec("yt_dlp") is not None


def visit(url: str, folder: Path, limits: Limits, *, check: Check, on_progress: OnBytes) -> Path:
    """The film behind the page as a file in this folder, which is emptied first."""
    host = urlsplit(url).hostname or ""
    if not is_possible():
        raise ToolMissing(f"{host} answered with a page; what is behind it needs the extra 'sites' (yt-dlp).")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    # A file, because everybody may see the arguments of a program, and an address may hold a password.
    order = folder / "order.json"
    order.touch(mode=0o600)
    order.write_text(json.dumps(_order(url, folder, limits)))
    heard = _Heard(on_progress)
    ended = process.run(
        [sys.executable, "-I", str(VISITOR), str(order)],
        cwd=folder,
        check=check,
        on_line=heard.line,
        timeout_s=limits.timeout_s,
        timeout_error=lambda _: SourceTimeout(
            f"{host} did not give the source within {limits.timeout_s:g} s.", service=f"source:{host}"
        ),
    )
    evidence = without_secrets("\n".join(ended.tail))
    if heard.files is None:
        _complain(heard.verdict, host, limits, evidence)
    streams = [folder / name for name in heard.files if STREAM.fullmatch(name)]
    limits.hold(sum(stream.stat().st_size for stream in streams))
    return streams[0] if len(streams) == 1 else _joined(streams, folder / "joined", check)


def without_secrets(text: str) -> str:
    """The text with passwords and queries taken out of its addresses."""
    return SECRETS.sub(r"\1\2", text)


def _order(url: str, folder: Path, limits: Limits) -> dict[str, Any]:
    return {
        "url": url,
        "folder": str(folder.absolute()),
        "max_bytes": limits.max_bytes,
        "stall_s": limits.stall_s,
        "exceptions": list(limits.exceptions),
    }


class _Heard:
    """What the visitor has said so far."""

    def __init__(self, on_progress: OnBytes) -> None:
        self._on_progress = on_progress
        self.files: list[str] | None = None
        self.verdict: dict[str, Any] = {}

    def line(self, line: str) -> None:
        try:
            told = json.loads(line)
        except ValueError:
            return  # some library that prints
        if not isinstance(told, dict):
            return
        if "done" in told:
            self._on_progress(told["done"], told["total"])
        elif "files" in told:
            self.files = told["files"]
        elif "why" in told:
            self.verdict = told


def _complain(verdict: dict[str, Any], asked: str, limits: Limits, evidence: str) -> NoReturn:
    """Say what the visitor's verdict means for the job."""
    why, host = verdict.get("why"), verdict.get("host") or asked
    if why == "status":
        raise meaning(int(verdict["status"]), host)
    if why == "too large":
        limits.hold(limits.max_bytes + 1)
    if why not in MEANINGS:
        raise InternalTransient("yt-dlp ended without saying why.", evidence=evidence)
    error, sentence = MEANINGS[why]
    said = without_secrets(str(verdict.get("said", "")))[:SAID_CHARS]
    service = f"source:{host}" if error.kind is not Kind.FAIL and issubclass(error, SourceError) else None
    raise error(sentence.format(host=host, asked=asked, said=said), service=service, evidence=evidence)


def _joined(streams: Iterable[Path], into: Path, check: Check) -> Path:
    """Picture and sound, that came as two files, in one."""
    picture, sound = None, None
    for stream in streams:
        facts = probe.probe(stream)
        opened = ffmpeg.opened(stream, f=facts.container.split(",")[0])
        if facts.video is not None:
            picture = opened[str(facts.video.index)]
        elif facts.audio:
            sound = opened[str(facts.audio[0].index)]
    if picture is None or sound is None:
        raise SourceUnreadable("The site sent no picture, or no sound to it.")
    graph = ffmpeg.written([picture, sound], into, c="copy", f="matroska")
    ffmpeg.run_graph(graph, output=into, cwd=into.parent, check=check)
    return into
