"""A wire between a target and its server, that can be cut, jammed or made to lie; and that notes what was asked.

It carries bytes as they are. Faults begin when they are told and last until `mend`.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

REQUEST = re.compile(rb"(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n")
Answer = tuple[int, str]  # an HTTP status and the code in its body


class Wire:
    """Forwards every connection to a port of this machine."""

    def __init__(self, port: int) -> None:
        self._far = port
        self.asked: list[str] = []  # every HTTP request that came through, "PUT /bucket/key?uploads"
        self.connections = 0
        self.carried = 0  # bytes towards the server
        self._answers: Callable[[str], Answer | None] = lambda _request: None
        self._limit: int | None = None
        self._stalls = False
        self._damage: int | None = None
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._listen()

    # -- faults ------------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Nobody listens any more, and whoever is connected loses the connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # whoever waits in accept would take one more
        self._listener.close()
        self._drop()

    def reset_after(self, size: int) -> None:
        """Break each connection when so many further bytes have gone to the server."""
        self._limit, self._stalls = self.carried + size, False

    def stall_after(self, size: int) -> None:
        """Carry nothing more, in either direction, when so many further bytes have gone to the server."""
        self._limit, self._stalls = self.carried + size, True

    def damage_after(self, size: int) -> None:
        """Change one byte, when so many further bytes have gone to the server."""
        self._damage = self.carried + size

    def answer(self, status: int, code: str, to: str = "") -> None:
        """Answer requests that begin with `to` in the server's place."""
        self._answers = lambda request: (status, code) if request.startswith(to) else None

    def mend(self) -> None:
        self._limit, self._damage, self._answers = None, None, lambda _request: None
        if self._stalls:
            self._drop()
        self._stalls = False
        if self._listener.fileno() == -1:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listen()

    def close(self) -> None:
        self.cut()

    # -- carrying ----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                far = socket.create_connection(("127.0.0.1", self._far))
            except OSError:
                _reset(near)
                continue
            self._ends += [near, far]
            threading.Thread(target=self._there, args=(near, far), daemon=True).start()
            threading.Thread(target=self._back, args=(near, far), daemon=True).start()

    def _there(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := near.recv(65536):
                if (said := REQUEST.match(data)) and self._was_answered(near, said):
                    break
                self.carried += len(data)
                if self._limit is not None and self.carried > self._limit:
                    if self._stalls:
                        return
                    break
                if self._damage is not None and self.carried > self._damage:
                    self._damage = None
                    data = data[:-1] + bytes([data[-1] ^ 1])
                far.sendall(data)
        _reset(near)
        _reset(far)

    def _was_answered(self, near: socket.socket, said: re.Match[bytes]) -> bool:
        request = f"{said[1].decode()} {said[2].decode()}"
        self.asked.append(request)
        answer = self._answers(request)
        if answer is None:
            return False
        status, code = answer
        body = b"" if request.startswith("HEAD") else f"<Error><Code>{code}</Code></Error>".encode()
        near.sendall(f"HTTP/1.1 {status} {code}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode())
        near.sendall(body)
        near.shutdown(socket.SHUT_WR)
        near.settimeout(2)
        while near.recv(65536):
            pass
        return True

    def _back(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := far.recv(65536):
                if self._limit is not None and self._stalls and self.carried > self._limit:
                    return
                near.sendall(data)
            near.shutdown(socket.SHUT_WR)

    def _drop(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            _reset(end)


def _reset(end: socket.socket) -> None:
    """Close it with a reset."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    end.close()
