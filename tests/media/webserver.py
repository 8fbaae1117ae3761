"""A web server for tests that can do what real ones do: ranges, marks, redirects, slowness, breaking off."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[["Request"], None]
LONG_AGO = formatdate(1_000_000_000, usegmt=True)


class Request(BaseHTTPRequestHandler):
    """One request, and the ways to answer it."""

    protocol_version = "HTTP/1.1"
    server: _Http

    def do_GET(self) -> None:
        self.close_connection = True
        web = self.server.web
        web.asked.append(self)
        answer = web.answers.get(self.path.partition("?")[0])
        if answer is None:
            self.send(404, b"there is nothing")
        else:
            answer(self)

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def log_message(self, *_: object) -> None:
        pass

    @property
    def start(self) -> int | None:
        """The first byte that is asked for, if the request asks for a range."""
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        return int(match[1]) if match else None

    def send(self, status: int, body: bytes = b"", length: int | None = None, **headers: str) -> None:
        self.head(status, len(body) if length is None else length, **headers)
        if self.command != "HEAD":
            self.wfile.write(body)
            self.wfile.flush()

    def head(self, status: int, length: int | None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    web: Web

    def handle_error(self, *_: object) -> None:
        """Whoever hangs up has his reasons."""


class Web:
    """A server on a loopback address."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[Request] = []
        self._http = _Http((host, 0), Request)
        self._http.web = self
        self.port: int = self._http.server_address[1]
        self.base = f"http://{host}:{self.port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def serve(self, path: str, answer: Answer) -> str:
        """Answer so at this path; its address."""
        self.answers[path] = answer
        return self.base + path

    def ranges(self, path: str) -> list[int | None]:
        """From where each request for this path asked."""
        return [request.start for request in self.asked if request.path.partition("?")[0] == path]

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def page(html: str) -> Answer:
    return lambda request: request.send(200, html.encode(), Content_Type="text/html; charset=utf-8")


def media(body: bytes, kind: str = "video/mp4") -> Answer:
    return lambda request: request.send(200, body, Content_Type=kind)


def redirect(url: str) -> Answer:
    return lambda request: request.send(302, Location=url)


@dataclass
class Film:
    """A file that can be had in pieces. The first answers break off after so many bytes each."""

    body: bytes
    mark: dict[str, str] = field(default_factory=lambda: {"ETag": '"one"'})
    breaks: list[int] = field(default_factory=list)
    has_ranges: bool = True

    def __call__(self, request: Request) -> None:
        start = request.start if self.has_ranges and self._is_same(request) else None
        if start is not None and start >= len(self.body):
            request.send(416, Content_Range=f"bytes */{len(self.body)}")
            return
        rest = self.body[start or 0 :]
        told = {"Content_Range": f"bytes {start}-{len(self.body) - 1}/{len(self.body)}"} if start is not None else {}
        cut = self.breaks.pop(0) if self.breaks else None
        headers = {name.replace("-", "_"): value for name, value in self.mark.items()} | told
        sent = rest if cut is None else rest[:cut]
        request.send(206 if start is not None else 200, sent, len(rest), Content_Type="video/mp4", **headers)

    def _is_same(self, request: Request) -> bool:
        return request.headers.get("If-Range") in (None, *self.mark.values())
