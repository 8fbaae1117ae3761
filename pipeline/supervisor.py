"""Who starts worker, beat, API and Flower, starts them again when they die, and lets them finish before the end?

A `Supervisor` does, on any machine. Its children end with it, however it ends: at once and by the kernel on Linux,
else at the next start, which recognises them by pid and start time. `commands` are the very command lines that
compose.yaml and the docs show.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline import processes
from pipeline.processes import Identity

WATCH_S = 0.1
BACKOFF_S = (0.2, 1.0, 5.0, 15.0, 30.0)  # before the first, second, ... restart in a row
STEADY_S = 60.0  # who ran this long begins again at the first
HURRY_S = 3.0  # for those whose own supervisor was killed: what they hold is lost already


@dataclass(frozen=True)
class Child:
    """A program to keep running."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)  # on top of our own


class Happening(StrEnum):
    """What became of a child."""

    STARTED = "started"
    DIED = "died"
    STOPPED = "stopped"  # because we asked
    KILLED = "killed"  # because it did not stop when we asked


@dataclass(frozen=True)
class Event:
    """Something to tell whoever watches."""

    child: str
    what: Happening
    pid: int
    exit_code: int | None = None
    again_in_s: float | None = None

    def __str__(self) -> str:
        ended = "" if self.exit_code is None else f" (exit code {self.exit_code})"
        again = "" if self.again_in_s is None else f", starting it again in {self.again_in_s:g} s"
        return f"{self.child} {self.what}{ended}{again}"


class _Kept:
    """A child and how it has fared."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.process: subprocess.Popen[bytes] | None = None
        self.identity: Identity | None = None
        self.deaths_in_a_row = 0
        self.started_at = 0.0
        self.due_at = 0.0


class Supervisor:
    """Keeps children running until it is drained."""

    def __init__(
        self,
        children: Sequence[Child],
        *,
        home: Path,
        grace_s: float = 25.0,
        on_event: Callable[[Event], None] = lambda _event: None,
        backoff_s: Sequence[float] = BACKOFF_S,
    ) -> None:
        self.home = home
        self.grace_s = grace_s
        self._tell = on_event
        self._backoff_s = backoff_s
        self._kept = {child.name: _Kept(child) for child in children}
        self._note = home / "children.json"
        self._changing = threading.RLock()
        self._draining = threading.Event()
        self._watch = threading.Thread(target=self._keep_running, name="supervisor", daemon=True)

    def start(self) -> None:
        """End what a killed supervisor left behind, start every child, and go on watching in the background."""
        end_leftovers(self.home)
        shutil.rmtree(self.home / TEMPORARY, ignore_errors=True)
        (self.home / TEMPORARY).mkdir(parents=True, exist_ok=True)
        with self._changing:
            for kept in self._kept.values():
                self._begin(kept)
        self._watch.start()

    def drain(self) -> dict[str, int | None]:
        """Ask every child to finish, wait for the grace period, kill what is left; the exit code of each."""
        self._draining.set()
        with self._changing:
            running = [kept for kept in self._kept.values() if kept.identity]
            for kept in running:
                assert kept.identity is not None
                kept.identity.send(signal.SIGTERM)  # the main process only: it tells its own
            give_up_at = time.monotonic() + self.grace_s
            codes = {kept.child.name: self._see_off(kept, give_up_at) for kept in running}
            self._note.unlink(missing_ok=True)
        if self._watch.is_alive() and threading.current_thread() is not self._watch:
            self._watch.join()
        return codes

    def pid(self, name: str) -> int | None:
        """The main process of a child; None while it is down."""
        identity = self._kept[name].identity
        return identity.pid if identity and identity.is_running else None

    def log(self, name: str) -> Path:
        """Where a child's output goes."""
        return self.home / "log" / f"{name}.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drain()

    def _keep_running(self) -> None:
        while not self._draining.wait(WATCH_S):
            self._look_round()

    def _look_round(self) -> None:
        with self._changing:
            for kept in self._kept.values():
                if not self._draining.is_set():  # perhaps since we asked for the lock
                    self._look_after(kept)

    def _look_after(self, kept: _Kept) -> None:
        now = time.monotonic()
        if kept.process is None:
            if now >= kept.due_at:
                self._begin(kept)
        elif _has_ended(kept.process):
            steady = now - kept.started_at > STEADY_S
            kept.deaths_in_a_row = 1 if steady else kept.deaths_in_a_row + 1
            delay_s = self._backoff_s[min(kept.deaths_in_a_row, len(self._backoff_s)) - 1]
            kept.due_at = now + delay_s
            code = _end_group(kept.process)
            self._tell(Event(kept.child.name, Happening.DIED, kept.process.pid, code, delay_s))
            kept.process = kept.identity = None
            self._write_down()

    def _begin(self, kept: _Kept) -> None:
        kept.started_at = time.monotonic()
        kept.process = processes.start(
            kept.child.argv, log=self.log(kept.child.name), env={**os.environ, **kept.child.env}
        )
        kept.identity = Identity.of(kept.process.pid)
        self._write_down()
        self._tell(Event(kept.child.name, Happening.STARTED, kept.process.pid))

    def _see_off(self, kept: _Kept, give_up_at: float) -> int | None:
        process = kept.process
        assert process is not None
        in_time = processes.wait_until(lambda: _has_ended(process), give_up_at - time.monotonic())
        what = Happening.STOPPED if in_time else Happening.KILLED
        code = _end_group(process)
        kept.process = kept.identity = None
        self._tell(Event(kept.child.name, what, process.pid, code))
        return code

    def _write_down(self) -> None:
        known = [[k.identity.pid, k.identity.started] for k in self._kept.values() if k.identity]
        draft = self._note.with_suffix(".making")
        draft.write_text(json.dumps(known))
        draft.replace(self._note)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    # Without taking note of it: as long as nobody has, its number is not given to another.
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_group(process: subprocess.Popen[bytes]) -> int:
    """End whatever is left of a child; its exit code. A pool process that still works must not meet its heir."""
    members = processes.group(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    for member in members:
        member.gone_within(HURRY_S)
    return code


def end_leftovers(home: Path) -> list[int]:
    """End the children of a supervisor that was killed; their pids."""
    note = home / "children.json"
    left = []
    with contextlib.suppress(OSError, ValueError, TypeError):
        left = [known for pid, started in json.loads(note.read_text()) if (known := Identity(pid, started)).is_running]
    for known in left:
        known.send(signal.SIGTERM)
    for known in left:
        if not known.gone_within(HURRY_S):
            below = processes.descendants(known.pid)
            for each in (known, *below):
                each.send(signal.SIGKILL)
            known.gone_within(HURRY_S)
    note.unlink(missing_ok=True)
    return [known.pid for known in left]


def until_told_to_stop() -> signal.Signals:
    """Wait for Ctrl-C or SIGTERM; a second one acts as it always does, so that nobody is trapped."""
    told = threading.Event()
    which = [signal.SIGTERM]
    before = {sig: signal.getsignal(sig) for sig in (signal.SIGINT, signal.SIGTERM)}

    def hear(sig: int, _frame: object) -> None:
        which[0] = signal.Signals(sig)
        for each, handler in before.items():
            signal.signal(each, handler)
        told.set()

    for sig in before:
        signal.signal(sig, hear)
    told.wait()
    return which[0]


# -- the command lines -------------------------------------------------------------------------------------------------

# Celery waits for its running tasks only so long, and gives them back then, when SIGTERM means SIGQUIT to it.
TEMPORARY = "tmp"  # in the home: whatever a killed child leaves there goes with the next start
WORKER_ENV = {"REMAP_SIGTERM": "SIGQUIT"}


def commands(
    env: Mapping[str, str],
    *,
    home: Path,
    flower_port: int,
    flower_login: str,
    concurrency: int | None = None,
    flower_address: str = "127.0.0.1",
    api_port: int | None = None,
    api_address: str = "127.0.0.1",
) -> list[Child]:
    """Worker, beat and Flower as they run everywhere, and the API if it has a port.

    `flower_login` is `user:password`; no process list shows it.
    """
    slots = ["-c", str(concurrency)] if concurrency else []  # else MAX_CONCURRENCY, else one per core
    own = {**env, "PYTHONPATH": _ours_first(), "TMPDIR": str(home / TEMPORARY)}
    api = ["--host", api_address, "--port", str(api_port)]
    return [
        Child(
            "worker",
            _celery("worker", "--without-gossip", "--without-mingle", "-n", "ironclip@%h", *slots),
            own | WORKER_ENV,
        ),
        Child("beat", _celery("beat", "-s", str(home / "beat"), "--pidfile="), own),
        Child(
            "flower",
            _celery("flower", f"--address={flower_address}", f"--port={flower_port}"),
            own | {"FLOWER_BASIC_AUTH": flower_login},
        ),
        *([Child("api", [_beside("ironclip"), "api", *api], own)] if api_port is not None else []),
    ]


def _celery(*args: str) -> list[str]:
    return [_beside("celery"), "-A", "tasks", *args]


def _beside(program: str) -> str:
    """The program of this environment, which may not be on PATH."""
    beside = Path(sys.executable).with_name(program)
    return str(beside) if beside.exists() else program


def _ours_first() -> str:
    # Celery looks into the working folder first, unless it is on the path already: a web app may have `tasks` there.
    paths = [str(Path(__file__).resolve().parents[1]), str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(path for path in paths if path)
