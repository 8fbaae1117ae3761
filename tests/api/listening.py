"""How does a test listen to events? In a thread, coming back as a browser does when the stream ends."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.api.conftest import Api


@dataclass
class Ear:
    """Everything that was heard on a path, with the number of each event. Use it as a context manager."""

    api: Api
    key: str
    path: str = "/api/events"
    last: str | None = None
    retry_s: float = 0.05
    events: list[dict[str, Any]] = field(default_factory=list)
    progress: list[dict[str, Any]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    connected: threading.Event = field(default_factory=threading.Event)
    connections: int = 0
    _ends: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Ear:
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        assert self.connected.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the read that waits
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def numbers(self) -> list[int]:
        return [event["seq"] for event in self.events]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def _listen(self) -> None:
        while not self._ends.is_set():
            key = {"Authorization": f"Bearer {self.key}"}
            with suppress(httpx.HTTPError), httpx.Client(base_url=self.api.url, headers=key, timeout=60) as http:
                self._once(http)
            self._ends.wait(self.retry_s)

    def _once(self, http: httpx.Client) -> None:
        headers = {} if self.last is None else {"Last-Event-ID": self.last}
        with http.stream("GET", self.path, headers=headers) as answer:
            self._socket = answer.extensions["network_stream"].get_extra_info("socket")
            if answer.status_code != 200 or self._ends.is_set():
                return
            kind, number = "", None
            for line in answer.iter_lines():
                name, _, told = line.partition(": ")
                if line.startswith("retry"):
                    self.connections += 1
                elif name == "event":
                    kind = told
                elif name == "id":
                    number = told
                elif name == "data":
                    (self.events if kind == "job" else self.progress).append(json.loads(told))
                elif not line:
                    self.last, number = number or self.last, None
                    if self.last is not None:
                        self.connected.set()
                elif line.startswith(":"):
                    self.comments.append(line)
