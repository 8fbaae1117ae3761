"""Who starts the workers and beat again when chaos has killed them? A supervisor in a process of its own.

It is the product's `Supervisor`, and may be killed like everybody else: its children end with it, and the next one
ends what it left behind. It writes down who runs under which pid, so that faults find their victims.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pipeline import processes
from pipeline.processes import Identity
from pipeline.supervisor import Child, Event, Happening, Supervisor, commands, until_told_to_stop

BACKOFF_S = (0.2, 0.5, 1.0)  # whoever is killed every few seconds is not to blame
GRACE_S = 12.0
STOP_PATIENCE_S = 20.0
INCLUDE = "pipeline.chaos.stage"


def children(env: Mapping[str, str], home: Path, workers: int, slots: int) -> list[Child]:
    """The workers by number, and beat: the product's own command lines, with our stages taken in."""
    known = commands(env, home=home, flower_port=0, flower_login="-:-", concurrency=slots)
    worker, beat = (next(c for c in known if c.name == name) for name in ("worker", "beat"))
    argv = list(worker.argv)
    at = argv.index("-n") + 1
    numbered = [[*argv[:at], f"worker{n}@%h", *argv[at + 1 :], "--include", INCLUDE] for n in range(1, workers + 1)]
    return [*(replace(worker, name=f"worker{n}", argv=line) for n, line in enumerate(numbered, 1)), beat]


class Keeper:
    """That process, seen from outside."""

    def __init__(self, home: Path, env: Mapping[str, str], workers: int, slots: int) -> None:
        self.home, self.workers = home, workers
        self._env = {**os.environ, **env, "PYTHONPATH": _path()}
        self._argv = [sys.executable, "-m", "pipeline.chaos.keeper", str(home), str(workers), str(slots)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        _note(self.home).unlink(missing_ok=True)
        self._process = processes.start(self._argv, log=self.home / "log" / "keeper.log", env=self._env)

    def kill(self) -> None:
        """End it as nobody wants to be ended; what it kept has to find its own end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Let everybody finish; end by force whoever does not."""
        if self._process is None:
            return
        for each in processes.descendants(self._process.pid):
            each.send(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            left = processes.descendants(self._process.pid)
            self.kill()
            for each in left:
                each.send(signal.SIGKILL)

    def pid(self, name: str) -> int | None:
        """The main process of a child; None while it is down."""
        with suppress(OSError, ValueError):
            pid = json.loads(_note(self.home).read_text()).get(name)
            return int(pid) if pid is not None and Identity.of(int(pid)) else None
        return None

    def tree(self, name: str) -> list[Identity]:
        """A child's main process and everything below it, the main one first; empty while it is down."""
        pid = self.pid(name)
        main = Identity.of(pid) if pid is not None else None
        return [main, *processes.descendants(main.pid)] if main else []

    def pids(self) -> tuple[int, ...]:
        """The main processes of all workers that are up."""
        found = (self.pid(f"worker{n}") for n in range(1, self.workers + 1))
        return tuple(pid for pid in found if pid is not None)


def _note(home: Path) -> Path:
    return home / "pids.json"


def _path() -> str:
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, paths))


def main(argv: Sequence[str]) -> None:
    """Keep everybody running until told to stop."""
    home, workers, slots = Path(argv[0]), int(argv[1]), int(argv[2])
    pids: dict[str, int] = {}

    def hear(event: Event) -> None:
        sys.stderr.write(f"{event} ({event.pid})\n")
        if event.what is Happening.STARTED:
            pids[event.child] = event.pid
        else:
            pids.pop(event.child, None)
        draft = _note(home).with_suffix(".making")
        draft.write_text(json.dumps(pids))
        draft.replace(_note(home))

    kept = children({}, home, workers, slots)
    with Supervisor(kept, home=home, grace_s=GRACE_S, on_event=hear, backoff_s=BACKOFF_S):
        until_told_to_stop()


if __name__ == "__main__":
    main(sys.argv[1:])
