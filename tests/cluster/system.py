"""What does a test ask of a whole system of its own? To start workers, hand in jobs, wait, and look.

Everything is real: Postgres, Redis, Celery's processes, ffmpeg. Only the settings are small, so that what takes
minutes in production takes seconds here.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from pytest_celery import CeleryTestNode, CeleryTestWorker, RedisTestBroker
from sqlalchemy import text

from pipeline import dispatch, processes, settings, supervisor
from pipeline.chaos.run import SMALL as SECONDS
from pipeline.core.job import Job, Status
from pipeline.embedded.redis import Redis
from pipeline.media.process import GUARD
from pipeline.processes import Identity
from pipeline.store import engine, jobs, reads
from pipeline.store.engine import Database
from tests.cluster.localnodes import LocalBeat, LocalProcess, LocalRedis, LocalWorker

T = TypeVar("T")

SMALL = {**SECONDS, "MIN_FREE_DISK_BYTES": "0", "MIN_FREE_MEMORY_BYTES": "0"}
PATIENCE_S = 60.0  # the machine may be busy; whoever is sure of the answer waits for it
ROOT = Path(__file__).resolve().parents[2]


def wait_for(what: str, ask: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """The first answer that is true; fails the test, naming what it waited for, if none comes."""
    answer: list[T] = []

    def is_so() -> bool:
        answer[:] = [ask()]
        return bool(answer[0])

    if not processes.wait_until(is_so, patience_s):
        pytest.fail(f"waited {patience_s:g} s in vain for {what}; last answer: {answer[0]!r}")
    return answer[0]


class System:
    """Settings, a broker, and the programs that were started on them."""

    def __init__(self, home: Path, database_url: str, **changes: str) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self._redis = Redis(home, "secret")
        self._redis.take_over()
        self._redis.start()
        self.broker = RedisTestBroker(LocalRedis(self._redis))
        self.output = home / "output"
        self.scratch = home / "scratch"
        self.env = {
            "DATABASE_URL": database_url,
            "BROKER_URL": self._redis.url,
            "SCRATCH_DIR": str(self.scratch),
            "OUTPUT_DIR": str(self.output),
            "IRONCLIP_HOME": str(home),
            **SMALL,
            **changes,
        }
        self.nodes: list[CeleryTestNode] = []

    # -- programs ----------------------------------------------------------------------------------------------------

    def worker(
        self,
        app: str = "tasks",
        *,
        slots: int = 2,
        wait: bool = True,
        name: str | None = None,
        queues: Sequence[str] = (),
        **changes: str,
    ) -> CeleryTestWorker:
        """A worker that is ready, of its own name unless one is given, for all queues unless some are given."""
        called = f"worker{len(self.nodes)}"
        argv, env = self._command("worker", slots)
        argv[argv.index("tasks")] = app
        argv[argv.index("-n") + 1] = f"{name or called}@%h"
        argv += ["-Q", ",".join(queues)] if queues else []
        container = LocalWorker(LocalProcess(called, argv, env | changes, self.home / "log" / f"{called}.log"))
        return self._started(CeleryTestWorker(container, dispatch.client), wait)

    def beat(self, *, wait: bool = True) -> CeleryTestNode:
        """The clock: without it nothing is reaped or swept."""
        argv, env = self._command("beat", 1)
        return self._started(
            CeleryTestNode(LocalBeat(LocalProcess("beat", argv, env, self.home / "log/beat.log"))), wait
        )

    def _command(self, name: str, slots: int) -> tuple[list[str], dict[str, str]]:
        children = supervisor.commands(self.env, home=self.home, flower_port=0, flower_login="a:b", concurrency=slots)
        child = next(c for c in children if c.name == name)
        return list(child.argv), dict(child.env)

    def _started(self, node: Any, wait: bool) -> Any:
        self.nodes.append(node)
        if wait:
            wait_for(
                f"{node.name()} to be ready",
                lambda: node.container.status == "exited" or node.container.ready_prompt in node.logs(),
            )
            assert node.ready()
        return node

    def hostname_of(self, worker: CeleryTestWorker) -> str:
        """What Celery calls it."""
        return f"{worker.container.process.name}@{socket.gethostname()}"

    def queues_of(self, worker: CeleryTestWorker) -> list[str]:
        """The queues that it consumes from right now."""
        name = self.hostname_of(worker)
        answer = dispatch.client.control.inspect(destination=[name]).active_queues() or {}
        return [queue["name"] for queue in answer.get(name, [])]

    def last_consumed(self, worker: CeleryTestWorker) -> Any:
        """When it last got a message, as far as its row knows."""
        rows = self.db.run(
            text("SELECT last_consumed_at FROM workers WHERE name = :name"), name=self.hostname_of(worker)
        )
        return rows[0].last_consumed_at

    def close(self) -> None:
        """End everything that is left. What was drained is a test's own business."""
        for node in self.nodes:
            if node.container.status == "running":
                for each in node.container.process.tree():
                    each.send(signal.SIGCONT)
                node.kill()
        self._redis.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def programs(self) -> list[Identity]:
        """Whatever still works in this system's scratch: ffmpeg and its guards."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and self._works_here(folder) and (known := Identity.of(int(folder.name))):
                found.append(known)
        return found

    def _works_here(self, process: Path) -> bool:
        try:
            return (
                str(self.scratch) in str((process / "cwd").readlink())
                or str(self.scratch).encode() in (process / "cmdline").read_bytes()
            )
        except OSError:
            return False

    # -- jobs --------------------------------------------------------------------------------------------------------

    @property
    def db(self) -> Database:
        return engine.database()

    def job(self, job_id: UUID | str) -> Job:
        return jobs.read(self.db, UUID(str(job_id)))[0]

    def show(self, job_id: UUID | str) -> dict[str, Any]:
        return reads.one(self.db, UUID(str(job_id)))

    def finished(self, job_id: UUID | str, status: Status = Status.COMPLETED) -> dict[str, Any]:
        """The job when it has ended; it must have ended like that."""
        wait_for(f"job {job_id} to end", lambda: self.job(job_id).is_final or None, 90)
        shown = self.show(job_id)
        assert shown["status"] == status, (shown["fail_code"], shown["fail_reason"], shown["last_error"])
        return shown

    def at(self, job_id: UUID | str, stage: str) -> None:
        """Wait until the stage's work is under way."""
        wait_for(f"{stage} to run", lambda: (j := self.job(job_id)).stage == stage and j.status is Status.PROCESSING)

    def encoding(self, job_id: UUID | str) -> list[Identity]:
        """Wait until ffmpeg runs for the job; it, its guard and whatever they have started."""
        self.at(job_id, "clip")
        return wait_for("ffmpeg to run", self.programs)

    def hold_up(self, job_id: UUID | str) -> list[Identity]:
        """Stop the job's ffmpeg: it is surely still there when something happens to its worker. It and its guard."""
        self.encoding(job_id)
        for each in wait_for("ffmpeg itself", lambda: [p for p in self.programs() if not _is_guard(p)]):
            each.send(signal.SIGSTOP)
        return self.programs()

    def events(self, job_id: UUID | str, kind: str | None = None) -> list[dict[str, Any]]:
        told = reads.events(self.db, UUID(str(job_id)))
        return [event for event in told if kind in (None, event["type"])]

    def claims(self, job_id: UUID | str) -> list[str]:
        """The stage of each claim, in order."""
        return [event["stage"] for event in self.events(job_id, "claimed")]

    def ran_again(self, chore: str) -> Callable[[], bool]:
        """Ask whether this upkeep has run since now."""
        before = self._last_run(chore)
        return lambda: self._last_run(chore) > before

    def _last_run(self, chore: str) -> float:
        rows = self.db.run(
            text("SELECT extract(epoch FROM last_began_at)::float AS at FROM upkeep_runs WHERE name = :name"),
            name=chore,
        )
        return float(rows[0].at) if rows else 0.0

    def now_due(self, job_id: UUID | str) -> None:
        """The job has waited long enough."""
        self.db.run(text("UPDATE jobs SET skip_until = clock_timestamp() WHERE id = :id"), id=UUID(str(job_id)))

    def published(self) -> dict[str, str]:
        """Every object at the local target and the hash of its content."""
        files = [path for path in self.output.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def checkpoints(self, job_id: UUID | str) -> dict[str, Any]:
        """When each unit was made."""
        rows = self.db.run(text("SELECT key, made_at FROM checkpoints WHERE job_id = :job"), job=UUID(str(job_id)))
        return {row.key: row.made_at for row in rows}


@contextmanager
def inside(system: System, patch: pytest.MonkeyPatch) -> Iterator[System]:
    """This process uses the system's settings too, as a web app beside the workers does."""
    for name, value in system.env.items():
        patch.setenv(name, value)
    _read_again()
    yield system
    if system.nodes:
        engine.database().dispose()
    patch.undo()
    _read_again()


def _read_again() -> None:
    # What a process reads once, a test must read again; a real web app has one broker for all its life.
    settings.current.cache_clear()
    engine._of_process.cache_clear()
    dispatch.client.conf.update(dispatch.wire(dispatch.IMPATIENT))
    dispatch.client._pool = None
    dispatch.client.amqp._producer_pool = None


def _is_guard(process: Identity) -> bool:
    with suppress(OSError):
        return str(GUARD).encode() in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    return False
