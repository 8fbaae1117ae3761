"""What do `demo` and `up` stand on? Embedded servers with tables, and a supervisor that keeps the rest running."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from uuid import UUID

from pipeline import embedded, settings
from pipeline.embedded import Services
from pipeline.store import keys, workers
from pipeline.store.engine import database
from pipeline.supervisor import Child, Event, Happening, Supervisor, commands

FLOWER_USER = "ironclip"
GIVE_UP_AFTER_DEATHS = 3
TAIL_LINES = 25


@dataclass
class Stack:
    """Everything that runs, and where to find it."""

    services: Services
    env: Mapping[str, str]
    flower_url: str | None = None
    flower_login: str | None = None
    api_url: str | None = None
    api_key: str | None = None
    deaths: dict[str, int] = field(default_factory=dict)
    bygone: frozenset[UUID] = frozenset()  # workers of earlier times, whatever they say of themselves

    @property
    def home(self) -> Path:
        return self.services.home

    @property
    def logs(self) -> Path:
        return self.home / "log"

    def exports(self) -> list[str]:
        """Lines to paste into another shell."""
        return [f"export {name}={shlex.quote(value)}" for name, value in self.env.items()]

    def keeps_dying(self, child: str) -> bool:
        return self.deaths.get(child, 0) >= GIVE_UP_AFTER_DEATHS

    def log_tail(self, child: str) -> str:
        """The last lines that a child wrote."""
        path = self.logs / f"{child}.log"
        with contextlib.suppress(OSError), path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 20_000))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-TAIL_LINES:])
        return ""

    def api_is_ready(self) -> bool:
        """Whether the API listens; also if there is none."""
        if self.api_url is None:
            return True
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(self.api_url.rpartition(":")[2]))) == 0

    def worker_is_ready(self) -> bool:
        """Whether a worker of ours has said hello."""
        return any(w["id"] not in self.bygone and w["stopped_at"] is None for w in workers.newest(database()))


@contextlib.contextmanager
def servers(*, share: bool) -> Iterator[Services]:
    """Postgres with our tables and Redis, for as long as the block lasts; this process is pointed at them."""
    # Only here: loading Alembic takes longer than most commands.
    from pipeline.store import migrate

    with embedded.services(share=share) as running:
        os.environ.update(running.env())
        settings.current.cache_clear()
        migrate.upgrade(running.database_url)
        yield running


@contextlib.contextmanager
def everything(running: Services, on_event: Callable[[Event], None]) -> Iterator[Stack]:
    """Worker, beat, the API and Flower on these servers; a guest of somebody else's servers uses what runs there."""
    stack = Stack(running, running.env())
    if not running.is_owner:
        yield stack
        return

    def hear(event: Event) -> None:
        if event.what is Happening.DIED:
            stack.deaths[event.child] = stack.deaths.get(event.child, 0) + 1
        on_event(event)

    stack.bygone = frozenset(w["id"] for w in workers.newest(database(), 1000))
    with Supervisor(_children(stack), home=running.home, grace_s=_grace_s(), on_event=hear):
        yield stack


def _children(stack: Stack) -> list[Child]:
    home = stack.home
    port = _port(home / "flower.port")
    login = f"{FLOWER_USER}:{embedded.secret(home, 'flower')}"
    api_port = _port(home / "api.port") if find_spec("fastapi") else None
    children = commands(stack.env, home=home, flower_port=port, flower_login=login, api_port=api_port)
    if api_port is not None:
        stack.api_url = f"http://127.0.0.1:{api_port}"
        stack.api_key = embedded.secret(home, "api", characters=64)
        keys.keep(database(), stack.api_key, "admin", name="ironclip up", by="up")
    if find_spec("flower") is None:
        return [child for child in children if child.name != "flower"]
    stack.flower_url, stack.flower_login = f"http://127.0.0.1:{port}", login
    return children


def _grace_s() -> float:
    # Longer than the worker's own patience, so that it is the worker that gives jobs back.
    return settings.current().shutdown_grace_sec + 10


def _port(note: Path) -> int:
    """A port that nobody listens on; the same as last time if it is still free."""
    with contextlib.suppress(OSError, ValueError):
        kept = int(note.read_text())
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", kept))
        return kept
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    note.write_text(str(port))
    return port


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does: what it started is drained."""

    def interrupt(_sig: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
