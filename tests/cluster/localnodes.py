"""How does pytest-celery drive processes of this machine instead of Docker containers?

pytest-celery's nodes talk to a `docker` container object. `LocalProcess` and `LocalServer` answer the same calls: the
first for a program that we start, the second for an embedded Redis. The command lines are the supervisor's own.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from pytest_celery import CeleryTestContainer, CeleryWorkerContainer, RedisContainer

from pipeline import processes
from pipeline.embedded.redis import Redis
from pipeline.processes import Identity

STOP_PATIENCE_S = 20.0


class LocalProcess:
    """A program in a session of its own, seen as a container. It never outlives the test run."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name, self.argv, self.log = name, argv, log
        self.id = uuid4().hex
        self.env = {**os.environ, **env}
        self.attrs: dict[str, Any] = {
            "Config": {"Hostname": "127.0.0.1", "Env": [f"{key}={value}" for key, value in env.items()]},
            "NetworkSettings": {"Networks": {"local": {"IPAddress": "127.0.0.1"}}, "Ports": {}},
        }
        self.start()

    def start(self) -> None:
        self._process = processes.start(self.argv, log=self.log, env=self.env, ends_with_us=signal.SIGKILL)
        self.main = Identity.of(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> str:
        return "running" if self._process.poll() is None else "exited"

    def tree(self) -> list[Identity]:
        """The main process and everything below it."""
        return [known for known in (self.main, *processes.descendants(self.pid)) if known]

    def reload(self) -> None:
        """Nothing is cached."""

    def logs(self) -> bytes:
        return self.log.read_bytes()

    def kill(self, signal: str | int | None = None) -> None:
        """As `docker kill`: SIGKILL takes the whole tree, any other signal goes to the main process alone."""
        number = _number(signal)
        if number is SIGKILL:
            os.killpg(self.pid, number)
            self.wait()
        else:
            self._process.send_signal(number)

    def wait(self, patience_s: float = STOP_PATIENCE_S) -> int:
        """The exit code, as soon as there is one."""
        return self._process.wait(patience_s)

    def stop(self, timeout: float = STOP_PATIENCE_S) -> None:
        if self.status == "running":
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()

    def restart(self, timeout: float = STOP_PATIENCE_S) -> None:
        self.stop(timeout)
        self.log.write_bytes(b"")
        self.start()


SIGKILL = signal.SIGKILL


def _number(name: str | int | None) -> signal.Signals:
    return signal.Signals[name] if isinstance(name, str) else signal.Signals(name or SIGKILL)


class LocalServer:
    """An embedded Redis, seen as a container."""

    def __init__(self, server: Redis) -> None:
        self.server = server
        self.name = server.name
        self.id = uuid4().hex
        self.attrs: dict[str, Any] = {
            "Config": {"Hostname": "127.0.0.1", "Env": []},
            "NetworkSettings": {"Networks": {"local": {"IPAddress": "127.0.0.1"}}, "Ports": {}},
        }

    @property
    def status(self) -> str:
        return "running" if self.server.is_running else "exited"

    def reload(self) -> None:
        """Nothing is cached."""

    def logs(self) -> bytes:
        return self.server.log.read_bytes()

    def kill(self, signal: str | int | None = None) -> None:
        self.server.kill() if _number(signal) is SIGKILL else self.server.stop()

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def restart(self, timeout: float = STOP_PATIENCE_S) -> None:
        self.server.restart()


class _Local:
    """What the Docker wrappers ask of a network is answered here without one."""

    _container: Any

    def ready(self) -> bool:
        if self.status == "exited":  # type: ignore[attr-defined]
            raise RuntimeError(f"{self.name} has ended:\n{self.logs()[-4000:]}")  # type: ignore[attr-defined]
        return bool(self._wait_ready())  # type: ignore[attr-defined]

    def teardown(self) -> None:
        self._container.stop()


class LocalRedis(_Local, RedisContainer):
    """The broker."""

    def __init__(self, server: Redis) -> None:
        super().__init__(LocalServer(server))
        self.server = server

    @property
    def url(self) -> str:
        return self.server.url

    host_url = url

    @property
    def port(self) -> int:
        return self.server.port


class _LocalProgram(_Local):
    @property
    def process(self) -> LocalProcess:
        process: LocalProcess = self._container
        return process


class LocalWorker(_LocalProgram, CeleryWorkerContainer):
    """A Celery worker, its pool and whatever that has started."""


class LocalBeat(_LocalProgram, CeleryTestContainer):
    """Celery's clock."""

    ready_prompt = "beat: Starting"
