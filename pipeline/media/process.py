"""How do we run a program such that it never outlives us, and stops as soon as it must?

The program runs below a small guard (`guard.py`), both in a process group of their own. We read what it says,
look twice a second whether it may go on, and whatever ends this function ends the whole group.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.errors import ClipTimeout, ToolMissing
from pipeline.files import Check, go_on

GUARD = Path(__file__).with_name("guard.py")
NOT_STARTED = 127  # the guard's exit code when there was nothing to execute
CHECK_EVERY_S = 0.25
LAST_WORDS_S = 1.0  # for what is left in the pipes of a program that has ended
LONGEST_LINE = 4096
# Programs get these and no more: the rest of our environment holds passwords.
ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT", "TZ")


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code (negative: the signal that killed it) and its last words on stderr."""

    returncode: int
    tail: tuple[str, ...]


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    check: Check = go_on,
    on_line: Callable[[str], None] | None = None,
    timeout_s: float | None = None,
    timeout_error: Callable[[str], BaseException] = ClipTimeout,
    keep_lines: int = 30,
) -> Ended:
    """Run a program to its end; its stdout goes to `on_line`, line by line.

    Whatever `check` or `on_line` raises kills the program's whole process group and propagates; so does the end
    of the time (`timeout_error`). When this returns or raises, nothing of the group is left.
    """
    program = Path(argv[0]).name
    command = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), *argv]
    child = subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ} | {"LC_ALL": "C.UTF-8"},
    )
    tail: deque[str] = deque(maxlen=keep_lines)
    try:
        _follow(child, check, on_line or _ignore, tail.append, _deadline(timeout_s))
    except _OutOfTime:
        raise timeout_error(f"{program} ran longer than {timeout_s:g} s and was stopped.") from None
    finally:
        _kill(child)
    if child.returncode == NOT_STARTED:
        raise ToolMissing(f"{program} could not be started: {' '.join(tail) or 'no reason given'}")
    return Ended(child.returncode, tuple(tail))


class _OutOfTime(Exception):
    """The deadline came before the end."""


def _ignore(_line: str) -> None:
    """Nobody listens."""


def _deadline(timeout_s: float | None) -> float:
    return time.monotonic() + timeout_s if timeout_s is not None else float("inf")


class _Lines:
    """Cuts a stream of bytes into lines; `\\r` ends one too, and one that never ends is cut."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            if line.strip():
                self._emit(line[:LONGEST_LINE].decode("utf-8", "replace"))


def _follow(
    child: subprocess.Popen[bytes],
    check: Check,
    on_line: Callable[[str], None],
    on_error_line: Callable[[str], None],
    deadline: float,
) -> None:
    """Pass the program's lines on until it has ended and said everything."""
    assert child.stdout is not None
    assert child.stderr is not None
    with selectors.DefaultSelector() as streams, _end_of(child) as (end, nap_s):
        for stream, emit in ((child.stdout, on_line), (child.stderr, on_error_line)):
            os.set_blocking(stream.fileno(), False)
            streams.register(stream, selectors.EVENT_READ, _Lines(emit))
        if end >= 0:
            streams.register(end, selectors.EVENT_READ)
        next_check = 0.0
        while not _has_ended(child):
            now = time.monotonic()
            if now >= deadline:
                raise _OutOfTime
            if now >= next_check:
                check()
                next_check = time.monotonic() + CHECK_EVERY_S
            _read_ready(streams, min(nap_s, deadline - now))
        _signal_group(child)  # a child of the program's own may still hold the pipes
        last_call = time.monotonic() + LAST_WORDS_S
        while any(key.data for key in streams.get_map().values()) and time.monotonic() < last_call:
            _read_ready(streams, 0.01)


@contextmanager
def _end_of(child: subprocess.Popen[bytes]) -> Iterator[tuple[int, float]]:
    """A descriptor that wakes a selector when the child ends (-1 where there is none), and how long one may nap."""
    if not hasattr(os, "pidfd_open"):
        yield -1, 0.02
        return
    descriptor = os.pidfd_open(child.pid)
    try:
        yield descriptor, CHECK_EVERY_S
    finally:
        os.close(descriptor)


def _read_ready(streams: selectors.BaseSelector, timeout_s: float) -> None:
    """Read once from each stream that has something to say, and forget the ones that have ended."""
    for key, _ in streams.select(timeout_s):
        if not isinstance(key.data, _Lines):
            continue
        if data := os.read(key.fd, 65536):
            key.data.feed(data)
        else:
            key.data.feed(b"\n")
            streams.unregister(key.fileobj)


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended; it is not reaped, so its number cannot become somebody else's yet."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
        os.killpg(child.pid, signal.SIGKILL)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the whole group, then the guard; safe to call when all have ended."""
    assert child.stdin is not None
    with suppress(BrokenPipeError):
        child.stdin.close()  # the guard kills the program and buries it
    if child.returncode is None:
        patience = time.monotonic() + LAST_WORDS_S
        while not _has_ended(child) and time.monotonic() < patience:
            time.sleep(0.002)
        _signal_group(child)
        child.wait()
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()
