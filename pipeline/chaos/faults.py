"""How is each thing broken? One small class a fault: it strikes, waits for as long as the trouble lasts, and mends.

What the product has to mend by itself is left to it: a killed worker is started again by the supervisor, a lost message
is found by sweep. Only what an operator or a machine would bring back is brought back here.
"""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Protocol
from uuid import UUID

import redis

from pipeline import dispatch, processes
from pipeline.chaos import disk
from pipeline.chaos.keeper import Keeper
from pipeline.chaos.plan import Strike
from pipeline.chaos.stage import Notes
from pipeline.core.errors import BrokerUnavailable
from pipeline.embedded import Services
from pipeline.processes import Identity
from pipeline.store import chaos as store
from pipeline.store import jobs
from pipeline.store.engine import Database

UP_PATIENCE_S = 10.0  # a victim that was just killed by another fault comes back by then
BUSY_PATIENCE_S = 2.0  # killing somebody who does nothing shows nothing
DUPLICATES = 40
RESET_SHARE = 0.5


@dataclass(frozen=True)
class Hit:
    """Whom a fault met, and when exactly."""

    at: datetime
    what: str
    pids: tuple[int, ...] = ()
    fence: str | None = None


@dataclass
class Ground:
    """What there is to break."""

    services: Services
    keeper: Keeper
    notes: Notes
    scratch: Path
    db: Database
    zero: datetime  # Postgres's time when `began` was read
    began: float
    submitted: list[UUID] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    turns: Mapping[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    def now(self) -> datetime:
        """Postgres's time, also while Postgres is away."""
        return self.zero + timedelta(seconds=monotonic() - self.began)

    def wait(self, seconds: float) -> None:
        """Until the trouble is over, or the whole run."""
        self.over.wait(seconds)

    def tree(self, name: str) -> list[Identity]:
        """A child's processes, as soon as it is up; empty if it does not come up."""
        processes.wait_until(lambda: self.keeper.pid(name) is not None or self.over.is_set(), UP_PATIENCE_S)
        return self.keeper.tree(name)

    def at_work(self, name: str) -> list[Identity]:
        """A worker's processes at a moment when one of them is busy, if such a moment comes soon."""
        tree = self.tree(name)
        processes.wait_until(lambda: any(self.notes.fence_of(each.pid) for each in tree), BUSY_PATIENCE_S)
        return tree


class Fault(Protocol):
    def strike(self, ground: Ground, strike: Strike) -> Hit:
        """Break it, and mend it when its time is over."""


class Child:
    """A busy process of the pool if there is one, else any."""

    def strike(self, ground: Ground, strike: Strike) -> Hit:
        tree = ground.at_work(strike.lane)
        pool = [each for each in tree[1:] if processes.parent(each.pid) == tree[0].pid]
        busy = [each for each in pool if ground.notes.fence_of(each.pid)]
        if not pool:
            return Hit(ground.now(), "nobody was there")
        victim = _picked(busy or pool, strike)
        hit = Hit(ground.now(), f"pool process {victim.pid}", fence=ground.notes.fence_of(victim.pid))
        victim.send(signal.SIGKILL)
        return hit


class Worker:
    """The whole tree, as in a power cut."""

    def strike(self, ground: Ground, strike: Strike) -> Hit:
        tree = ground.at_work(strike.lane)
        if not tree:
            return Hit(ground.now(), "nobody was there")
        hit = Hit(ground.now(), f"tree of {tree[0].pid}", pids=(tree[0].pid,))
        tree[0].send(signal.SIGKILL, to_group=True)
        for each in tree:
            each.send(signal.SIGKILL)
        return hit


class Main:
    """The main process alone; its pool must not outlive it."""

    def strike(self, ground: Ground, strike: Strike) -> Hit:
        tree = ground.at_work(strike.lane)
        if not tree:
            return Hit(ground.now(), "nobody was there")
        hit = Hit(ground.now(), f"main process {tree[0].pid}", pids=(tree[0].pid,))
        tree[0].send(signal.SIGKILL)
        return hit


class Ghost:
    """Frozen until others have taken its jobs over; then it wakes up and knows nothing of it."""

    def strike(self, ground: Ground, strike: Strike) -> Hit:
        tree = ground.at_work(strike.lane)
        if not tree:
            return Hit(ground.now(), "nobody was there")
        hit = Hit(ground.now(), f"tree of {tree[0].pid}", pids=(tree[0].pid,))
        try:
            for each in tree:
                each.send(signal.SIGSTOP)
            ground.wait(strike.lasts_s)
        finally:
            for each in tree:
                each.send(signal.SIGCONT)
        return hit


class Beat:
    """The clock."""

    def strike(self, ground: Ground, strike: Strike) -> Hit:
        tree = ground.tree("beat")
        hit = Hit(ground.now(), f"beat {tree[0].pid}" if tree else "nobody was there")
        for each in tree:
            each.send(signal.SIGKILL)
        return hit


class Supervisor:
    """Whoever keeps the others running."""

    def strike(self, ground: Ground, strike: Strike) -> Hit:
        hit = Hit(ground.now(), "the supervisor, and all it kept", pids=ground.keeper.pids())
        ground.keeper.kill()
        try:
            ground.wait(strike.lasts_s)
        finally:
            ground.keeper.start()
        return hit


class BrokerRestart:
    def strike(self, ground: Ground, strike: Strike) -> Hit:
        hit = Hit(ground.now(), "Redis")
        ground.services.redis.restart()
        return hit


class BrokerLost:
    """Killed, and its disk with it."""

    def strike(self, ground: Ground, strike: Strike) -> Hit:
        server, hit = ground.services.redis, Hit(ground.now(), "Redis and its data")
        server.kill()
        try:
            ground.wait(strike.lasts_s)
            for kept in (*server.data.glob("**/*.aof*"), *server.data.glob("**/*.rdb")):
                kept.unlink(missing_ok=True)
        finally:
            server.start()
        return hit


class BrokerFlush:
    def strike(self, ground: Ground, strike: Strike) -> Hit:
        hit = Hit(ground.now(), "all messages")
        _redis(ground, lambda client: client.flushall())
        return hit


class BrokerFreeze:
    def strike(self, ground: Ground, strike: Strike) -> Hit:
        hit = Hit(ground.now(), "Redis")
        try:
            ground.services.redis.pause()
            ground.wait(strike.lasts_s)
        finally:
            ground.services.redis.resume()
        return hit


class BrokerReset:
    def strike(self, ground: Ground, strike: Strike) -> Hit:
        hit = Hit(ground.now(), "connections to Redis")
        _redis(ground, lambda client: client.client_kill_filter(_type="normal", skipme=True))
        return hit


class PostgresRestart:
    def strike(self, ground: Ground, strike: Strike) -> Hit:
        hit = Hit(ground.now(), "Postgres")
        ground.services.postgres.restart()
        return hit


class PostgresCrash:
    def strike(self, ground: Ground, strike: Strike) -> Hit:
        hit = Hit(ground.now(), "Postgres")
        ground.services.postgres.kill()
        try:
            ground.wait(strike.lasts_s)
        finally:
            ground.services.postgres.start()
        return hit


class PostgresReset:
    def strike(self, ground: Ground, strike: Strike) -> Hit:
        at = ground.now()
        return Hit(at, f"{store.reset_connections(ground.db, RESET_SHARE)} connections to Postgres")


class Duplicates:
    """Messages that were sent already; among them some of jobs that are long finished."""

    def strike(self, ground: Ground, strike: Strike) -> Hit:
        at, sent = ground.now(), 0
        known = ground.submitted[:]
        step = max(1, len(known) // (DUPLICATES // 2))
        some = {*known[-DUPLICATES // 2 :], *known[int(strike.pick * step) :: step]}
        for job in jobs.read_many(ground.db, some):
            try:
                dispatch.start(job)
                sent += 1
            except BrokerUnavailable:
                break
        return Hit(at, f"{sent} messages sent once more")


class Disk:
    def strike(self, ground: Ground, strike: Strike) -> Hit:
        hit = Hit(ground.now(), "scratch")
        ballast = disk.fill(ground.scratch)
        try:
            ground.wait(strike.lasts_s)
        finally:
            ballast.unlink()
        return hit


BY_NAME: Mapping[str, Fault] = {
    "child": Child(),
    "worker": Worker(),
    "main": Main(),
    "ghost": Ghost(),
    "beat": Beat(),
    "supervisor": Supervisor(),
    "broker-restart": BrokerRestart(),
    "broker-lost": BrokerLost(),
    "broker-flush": BrokerFlush(),
    "broker-freeze": BrokerFreeze(),
    "broker-reset": BrokerReset(),
    "postgres-restart": PostgresRestart(),
    "postgres-crash": PostgresCrash(),
    "postgres-reset": PostgresReset(),
    "duplicates": Duplicates(),
    "disk": Disk(),
}


def _picked(from_these: list[Identity], strike: Strike) -> Identity:
    return from_these[int(strike.pick * len(from_these))]


class _Act(Protocol):
    def __call__(self, client: redis.Redis) -> object: ...


def _redis(ground: Ground, act: _Act) -> None:
    with redis.Redis.from_url(ground.services.broker_url, socket_timeout=5) as client:
        act(client)
