"""How is a process started that cannot outlive us, and recognised again later?

A pid alone proves nothing: it is given out again. An `Identity` is a pid together with the moment its process started
in this boot of the machine, so it can be written down and compared by whoever comes next.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipeline import leash
from pipeline.core.errors import ToolMissing

POLL_S = 0.02
LOG_KEPT_BYTES = 20 * 1024**2


@dataclass(frozen=True)
class Identity:
    """One process of one boot of this machine."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """The identity of the process that has this pid now; None if there is none (or only its corpse)."""
        started = _started(pid)
        return cls(pid, started) if started else None

    @property
    def is_running(self) -> bool:
        return _started(self.pid) == self.started

    def send(self, sig: signal.Signals, *, to_group: bool = False) -> None:
        """Signal it, unless it is gone: another process that got its pid is never touched."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if to_group else os.kill)(self.pid, sig)

    def gone_within(self, patience_s: float) -> bool:
        """Wait until it has ended; False if it has not by then."""
        return wait_until(lambda: not self.is_running, patience_s)


@dataclass(frozen=True)
class User:
    """Somebody that a process runs as instead of root."""

    uid: int
    gid: int

    def can_reach(self, path: Path) -> bool:
        """Whether every folder above lets this user through, and the path itself can be entered or run."""
        return all(self._may_pass(p) for p in (path, *path.parents))

    def _may_pass(self, path: Path) -> bool:
        told = path.stat()
        bit = 0o100 if told.st_uid == self.uid else 0o010 if told.st_gid == self.gid else 0o001
        return bool(told.st_mode & bit)


def start(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    ends_with_us: signal.Signals = signal.SIGTERM,
    user: User | None = None,
    may_enter: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, its output appended to `log`.

    However we end, the kernel sends it `ends_with_us` (on Linux; elsewhere whoever comes next must look for it).
    """
    program = shutil.which(argv[0], path=(env or os.environ).get("PATH"))
    if program is None:
        raise ToolMissing(f"{argv[0]} is not installed, or not on PATH.")
    told: dict[str, Any] = {"parent": os.getpid(), "signal": int(ends_with_us)}
    if user is not None:
        told |= {"uid": user.uid, "gid": user.gid, "may_enter": may_enter}
    command = [sys.executable, "-I", "-S", leash.__file__, json.dumps(told), program, *argv[1:]]
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_KEPT_BYTES:
        log.replace(log.with_suffix(".old.log"))

    def spawn() -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=cwd, start_new_session=True
            )

    return _from_the_lasting_thread(spawn)


def descendants(pid: int) -> list[Identity]:
    """Every process below this one, nearest first."""
    below: dict[int, list[int]] = {}
    for child, parent, _ in _table():
        below.setdefault(parent, []).append(child)
    found = list(below.get(pid, []))
    for child in found:
        found.extend(below.get(child, []))
    return [known for known in map(Identity.of, found) if known]


def parent(pid: int) -> int | None:
    """The process above this one; None if there is no such process."""
    return next((above for each, above, _ in _table() if each == pid), None)


def group(leader: int) -> list[Identity]:
    """Every process of this process's group, itself included."""
    members = [pid for pid, _, of in _table() if of == leader]
    return [known for known in map(Identity.of, members) if known]


def wait_until(is_so: Callable[[], bool], patience_s: float) -> bool:
    """Ask until the answer is yes; False if it never was."""
    give_up_at = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(POLL_S)
    return True


# -- what the system knows about a process -----------------------------------------------------------------------------


@cache
def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    return "-"


def machine() -> str | None:
    """This boot of this machine, and who can see whose processes on it: containers share a boot but no pids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _stat(pid: int) -> list[str]:
    # The name in the second field may hold spaces and brackets; what follows its last bracket is regular.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _started(pid: int) -> str | None:
    if not Path("/proc/self/stat").exists():
        told = subprocess.run(
            ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        state, _, since = told.stdout.strip().partition(" ")
        return since.strip() if state and not state.startswith("Z") else None
    try:
        fields = _stat(pid)
    except (OSError, UnicodeDecodeError):
        return None
    state, ticks = fields[0], fields[19]
    return None if state in "ZX" else f"{_boot()}:{ticks}"


def _table() -> list[tuple[int, int, int]]:
    """Every process as (pid, parent, group)."""
    if not Path("/proc/self/stat").exists():
        told = subprocess.run(["ps", "-axo", "pid=,ppid=,pgid="], capture_output=True, text=True, check=False).stdout
        return [(int(pid), int(parent), int(of)) for pid, parent, of in map(str.split, told.splitlines())]
    rows = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = _stat(int(folder.name))
                rows.append((int(folder.name), int(fields[1]), int(fields[2])))
    return rows


# -- the thread that starts everything ---------------------------------------------------------------------------------

# The kernel ties a child to the THREAD that made it. This one lives as long as the process, whoever asks.
_Order = tuple[Callable[[], "subprocess.Popen[bytes]"], "Future[subprocess.Popen[bytes]]"]


@cache
def _orders(_of_process: int) -> queue.SimpleQueue[_Order]:
    orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()

    def carry_out() -> None:
        while True:
            spawn, answer = orders.get()
            try:
                answer.set_result(spawn())
            except OSError as exc:
                answer.set_exception(exc)

    threading.Thread(target=carry_out, name="starts-processes", daemon=True).start()
    return orders


def _from_the_lasting_thread(spawn: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    answer: Future[subprocess.Popen[bytes]] = Future()
    _orders(os.getpid()).put((spawn, answer))
    return answer.result()
