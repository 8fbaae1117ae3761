"""How is a server of our own started, stopped, and put under strain?

It listens on 127.0.0.1 only, asks for a password, and ends with the process that started it. Its port is kept over
restarts, so that an address stays true. Stopping asks politely first; `kill`, `pause` and `resume` are for those who
want to see what happens then.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from pipeline import processes
from pipeline.core.errors import IronclipError
from pipeline.processes import Identity

START_PATIENCE_S = 60.0  # a crash recovery may take its time
RETRY_PATIENCE_S = 10.0  # what a killed predecessor left (its backends, its port) is gone by then
STOP_PATIENCE_S = 15.0


class ServiceFailed(IronclipError):
    """A server of ours did not start; the end of its log is the evidence."""

    code = "SERVICE_FAILED"


class NotReadyYet(Exception):
    """The server runs but does not answer."""


class Server(ABC):
    """One server process with its data folder, its port and its log."""

    name: ClassVar[str]
    polite: ClassVar[signal.Signals]  # asks it to finish its writing and end

    def __init__(self, home: Path, password: str) -> None:
        self.data = home / self.name
        self.log = home / "log" / f"{self.name}.log"
        self.password = password
        self.port = 0
        self.identity: Identity | None = None
        self._note = home / f"{self.name}.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._is_unknown = False  # nobody was told the port yet
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(self._note.read_text())
            self.port = int(told["port"])
            self.identity = Identity(int(told["pid"]), str(told["started"]))

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients find it."""

    @abstractmethod
    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process and return at once."""

    @abstractmethod
    def greet(self) -> None:
        """Return if it answers as it should; else raise NotReadyYet."""

    @property
    def is_running(self) -> bool:
        return self.identity is not None and self.identity.is_running

    def take_over(self) -> None:
        """End what an earlier owner that was killed left behind, and settle on a port."""
        if self.is_running:
            self.stop()
        self.identity = None
        self.port = free_port(self.port)
        self._is_unknown = True

    def start(self) -> None:
        """Start it on its port and return when it answers."""
        if not self.is_running:
            self._start()

    def _start(self) -> None:
        began = time.monotonic()
        self._begin()
        while not self._answers():
            spent = time.monotonic() - began
            if spent > START_PATIENCE_S:
                self.stop()
                raise self.failure("does not answer")
            if not self.is_running and spent > RETRY_PATIENCE_S:
                raise self.failure("ended while it started")
            if not self.is_running:
                if self._is_unknown and not _is_free(self.port):  # somebody took it since we looked
                    self.port = free_port()
                self._begin()
            time.sleep(processes.POLL_S)
        self._is_unknown = False

    def _answers(self) -> bool:
        try:
            self.greet()
        except NotReadyYet:
            return False
        return True

    def _begin(self) -> None:
        self._process = self.launch()
        self.identity = Identity.of(self._process.pid)
        self._write_down()

    def _write_down(self) -> None:
        known = {"pid": self.identity.pid, "started": self.identity.started} if self.identity else {}
        draft = self._note.with_suffix(".json.making")
        draft.write_text(json.dumps({"port": self.port, **known}))
        draft.replace(self._note)

    def failure(self, what: str) -> ServiceFailed:
        lines = self.log.read_text(errors="replace").splitlines()[-5:] if self.log.exists() else []
        return ServiceFailed(f"{self.name} {what}; its log is {self.log}.", evidence="\n".join(lines))

    def stop(self) -> None:
        """Ask it to end and wait; kill it if it does not."""
        self.resume()
        self._end(self.polite)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it and start it again at the same address, with the same data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open, nothing answers."""
        for each in self._tree():
            each.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after a pause."""
        for each in self._tree():
            each.send(signal.SIGCONT)

    def _tree(self) -> list[Identity]:
        return [self.identity, *processes.descendants(self.identity.pid)] if self.identity else []

    def _end(self, sig: signal.Signals) -> None:
        if self.identity is not None:
            end(self.identity, sig)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
        self._process = self.identity = None
        self._write_down()


def end(identity: Identity, sig: signal.Signals) -> None:
    """Make a process end: by this signal, or by SIGKILL when it takes too long."""
    identity.send(sig)
    if not identity.gone_within(STOP_PATIENCE_S):
        identity.send(signal.SIGKILL)
        identity.gone_within(STOP_PATIENCE_S)


def inside_wheel(package: str, path: str) -> Path | None:
    """A file or folder that a wheel brought, without importing its package; None if it is not installed."""
    spec = importlib.util.find_spec(package)
    folders = [Path(p) / path for p in (spec.submodule_search_locations or [])] if spec else []
    return next((f for f in folders if f.exists()), None)


def free_port(preferred: int = 0) -> int:
    """A port that nobody listens on: the preferred one if it is free."""
    # Below the range of outgoing connections: a client that knocks at a closed port of that range can meet itself.
    tries = ([preferred] if preferred else []) + random.sample(range(20_000, 32_000), 200)
    return next(port for port in tries if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
