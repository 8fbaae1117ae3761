"""How does yt-dlp fetch what is behind a page, without going anywhere else?

Run as `python -I visitor.py ORDER`, in a process of its own that is killed with its parent; never imported. Before
yt-dlp is loaded the process is shut in a cage (`cage.py`) and bounded in memory, open files and the size of any file.
It reads no configuration, plugins or cookies. What it has to say are lines of JSON on stdout.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # ours, whoever else is called so

from pipeline.media.cage import Guard

MEMORY = 2 * 1024**3
OPEN_FILES = 256
SAY_EVERY_S = 0.25
TRIES = 3
DISK = {errno.EFBIG: "too large", errno.ENOSPC: "full", errno.EDQUOT: "full"}
NATIVE = frozenset({"http", "https", "m3u8", "m3u8_native", "http_dash_segments", "http_dash_segments_generator"})


class Stopped(Exception):
    """The visit has come to nothing, for a reason that the parent knows by name."""

    def __init__(self, why: str, said: str = "") -> None:
        super().__init__(said or why)
        self.why = why


def say(**told: Any) -> None:
    """One line for the parent."""
    sys.__stdout__.write(json.dumps(told) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


class Log:
    """yt-dlp's words: warnings and errors go to stderr, as evidence."""

    def debug(self, _said: str) -> None: ...

    def error(self, said: str) -> None:
        sys.stderr.write(said + "\n")

    info, warning = debug, error


class Meter:
    """Counts what comes over all streams, says so now and then, and stops what is too much."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._before = 0  # in streams that are finished
        self._said_at = 0.0

    def __call__(self, state: dict[str, Any]) -> None:
        done = self._before + int(state.get("downloaded_bytes") or 0)
        total = state.get("total_bytes")
        self.hold(done, self._before + int(total or 0))
        if state["status"] == "finished":
            self._before = done
        elif time.monotonic() - self._said_at < SAY_EVERY_S:
            return
        self._said_at = time.monotonic()
        say(done=done, total=self._before + int(total) if total and state["status"] != "finished" else None)

    def hold(self, *sizes: int) -> None:
        if max(sizes) > self._max_bytes:
            raise Stopped("too large")


def options(order: dict[str, Any], meter: Meter) -> dict[str, Any]:
    """What yt-dlp is told."""
    return {
        **dict.fromkeys(("quiet", "noprogress", "no_color", "noplaylist", "overwrites", "hls_prefer_native"), True),
        **dict.fromkeys(("cachedir", "writeinfojson", "usenetrc", "geo_bypass", "updatetime", "continuedl"), False),
        "logger": Log(),
        "format": "bv*+ba/b",
        "playlist_items": "1:2",
        "proxy": "",
        "socket_timeout": order["stall_s"],
        "retries": TRIES,
        "fragment_retries": TRIES,
        "extractor_retries": 1,
        "skip_unavailable_fragments": False,
        "external_downloader": "native",
        "ffmpeg_location": os.devnull,
        "js_runtimes": {},
        "fixup": "never",
        "progress_hooks": [meter],
    }


def fetch(order: dict[str, Any], guard: Guard) -> list[str]:
    """The names of the streams that were written: one with everything, or picture and sound."""
    from yt_dlp import YoutubeDL
    from yt_dlp.downloader import FileDownloader
    from yt_dlp.networking._urllib import UrllibRH

    class Careful(YoutubeDL):  # type: ignore[misc]
        def build_request_director(self, _handlers: Any, preferences: Any = None) -> Any:
            # Python's own http client and no other: it is the one that the hook sees through.
            return super().build_request_director([UrllibRH], preferences)

    FileDownloader.report_retry = guard.noting(FileDownloader.report_retry)
    meter = Meter(order["max_bytes"])
    with Careful(options(order, meter), auto_init="no_verbose_header") as site:
        film = the_one(site.extract_info(order["url"], download=False))
        streams = film.pop("requested_formats", None) or [film]
        check(film, streams)
        meter.hold(sum(int(stream.get("filesize") or 0) for stream in streams))
        names = []
        for number, stream in enumerate(streams):
            names.append(f"stream-{number}")
            done, _ = site.dl(str(Path(order["folder"]) / names[-1]), {**film, **stream})
            if not done:
                raise Stopped("broken")
        return names


def the_one(found: Any) -> dict[str, Any]:
    """The film, if the page has exactly one."""
    entries = [found] if found and found.get("_type", "video") == "video" else list((found or {}).get("entries") or ())
    films = [entry for entry in entries if entry]
    if len(films) == 1:
        return the_one(films[0]) if films[0].get("_type") == "playlist" else dict(films[0])
    raise Stopped("several" if films else "nothing")


def check(film: dict[str, Any], streams: list[dict[str, Any]]) -> None:
    if film.get("is_live") or film.get("live_status") in ("is_live", "is_upcoming", "post_live"):
        raise Stopped("live")
    for stream in streams:
        if stream.get("protocol") not in NATIVE:
            raise Stopped("unavailable", f"The site sends by {stream.get('protocol')}, which is not fetched.")


def chain(exc: Any) -> Iterator[BaseException]:
    """An error and everything that it came from."""
    seen: list[BaseException] = []
    todo = [exc]
    while todo:
        this = todo.pop(0)
        if isinstance(this, BaseException) and this not in seen:
            seen.append(this)
            yield this
            told = getattr(this, "exc_info", None) or (None, None)
            todo += [told[1], getattr(this, "cause", None), this.__cause__, this.__context__]


def verdict(exc: BaseException, guard: Guard) -> dict[str, Any]:
    """What went wrong, in words that the parent knows."""
    from yt_dlp.networking.exceptions import HTTPError, TransportError
    from yt_dlp.utils import ExtractorError, GeoRestrictedError, UnsupportedError

    story = [*chain(exc), *chain(guard.trouble)]

    def first(*kinds: Any) -> Any:
        return next((one for one in story if isinstance(one, kinds)), None)

    disk = {one.errno for one in story if isinstance(one, OSError)}
    if stopped := first(Stopped):
        return {"why": stopped.why, "said": str(stopped)}
    if disk & set(DISK):
        return {"why": next(DISK[number] for number in DISK if number in disk)}
    if guard.refused:
        return {"why": "forbidden", "said": guard.refused[0]}
    if answer := first(HTTPError):
        return {"why": "status", "status": answer.status}
    for why, kinds in (
        ("silent", (TimeoutError,)),
        ("down", (ConnectionRefusedError, socket.gaierror)),
        ("broken", (TransportError, ConnectionError)),
        ("nothing", (UnsupportedError,)),
        ("elsewhere", (GeoRestrictedError,)),
    ):
        if first(*kinds):
            return {"why": why}
    return {"why": "unavailable", "said": getattr(first(ExtractorError), "orig_msg", None) or str(exc)}


def main() -> None:
    """Carry out one order."""
    paper = Path(sys.argv[1])
    order = json.loads(paper.read_text())
    paper.unlink()  # the address may hold a password
    os.environ["YTDLP_NO_PLUGINS"] = "1"
    sys.dont_write_bytecode = True
    for limit, most in (("FSIZE", order["max_bytes"] + 1), ("AS", MEMORY), ("NOFILE", OPEN_FILES)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{limit}"), (most, most))
    guard = Guard(Path(order["folder"]), tuple(order["exceptions"]))
    socket.getaddrinfo = guard.resolve
    sys.addaudithook(guard)
    try:
        say(files=fetch(order, guard))
    except Exception as exc:
        say(host=guard.host, **verdict(exc, guard))


if __name__ == "__main__":
    main()
