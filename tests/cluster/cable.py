"""A network cable between one worker and Postgres that can be pulled: what is under way hangs, nothing is refused."""

from __future__ import annotations

import selectors
import socket
import threading
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Cable:
    """Forwards every connection to the server of `url`, until it is pulled."""

    def __init__(self, url: str) -> None:
        self._server = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._plugged, self._closed = threading.Event(), threading.Event()
        self._plugged.set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def url(self) -> str:
        """The same database, through the cable."""
        login = self._server.netloc.rpartition("@")[0]
        return urlunsplit(self._server._replace(netloc=f"{login}@127.0.0.1:{self._listener.getsockname()[1]}"))

    def pull(self) -> None:
        self._plugged.clear()

    def plug_in(self) -> None:
        self._plugged.set()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._plugged.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        self._plugged.wait()
        with (
            near,
            socket.create_connection((self._server.hostname, self._server.port)) as far,
            _both(near, far) as ends,
        ):
            while not self._closed.is_set():
                for key, _ in ends.select(0.5):
                    self._plugged.wait()
                    try:
                        data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                        key.data.sendall(data)
                    except OSError:
                        return
                    if not data:
                        return


def _both(near: socket.socket, far: socket.socket) -> selectors.DefaultSelector:
    ends = selectors.DefaultSelector()
    ends.register(near, selectors.EVENT_READ, far)
    ends.register(far, selectors.EVENT_READ, near)
    return ends
