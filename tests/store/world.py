"""Words for tests on a real Postgres: jobs that are enqueued, claimed and late, and rows that somebody else locks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, TextClause, text

from pipeline.core.job import Job, Stage
from pipeline.core.moves import Claim, Complete, Refusal
from pipeline.core.routing import QUEUE_OF
from pipeline.core.window import Rooms
from pipeline.store import due, jobs, leases
from pipeline.store.engine import Database, dumps, fetch
from pipeline.store.jobs import Table

Another = Callable[[], Database]  # one more process's view of the same database

LEASE = timedelta(minutes=5)
SILENCE = timedelta(seconds=90)
PLAN = tuple(Stage)


def columns(**changes: Any) -> dict[str, Any]:
    """What `jobs.insert` wants of a new job with one output."""
    plan = [str(stage) for stage in changes.pop("plan", PLAN)]
    outputs = changes.pop("outputs", [output("a")])
    told = {
        "id": uuid4(),
        "account": None,
        "key": None,
        "hash": "hash",
        "stage": plan[0],
        "plan": plan,
        "priority": "normal",
        "request": "{}",
        "max_attempts": 3,
        "expected_duration_ms": None,
        "deadline_ms": None,
        "published": False,
        "outputs": dumps(outputs),
    }
    return {**told, **changes}


def output(name: str, price: int = 0) -> dict[str, Any]:
    return {"name": name, "kind": "video", "clip": name, "quality": "source", "critical": False, "price": price}


def enqueue(db: Database, **changes: Any) -> Job:
    with db.transaction() as conn:
        job, _ = jobs.insert(conn, **columns(**changes))
    return job


def enqueue_asr(db: Database, **changes: Any) -> Job:
    """A transcription that stands alone: it has a lease and attempts of its own."""
    told = {"id": uuid4(), "max_attempts": 3, **changes}
    db.run(
        text("INSERT INTO asr_jobs (id, stage, plan, max_attempts) VALUES (:id, 'asr', '{asr}', :max_attempts)"),
        **told,
    )
    return jobs.read(db, told["id"], Table.ASR_JOBS)[0]


def claim(db: Database, job: Job, *, table: Table = Table.JOBS, **changes: Any) -> Job:
    """The job in the hands of a worker; the claim must not be refused."""
    got = jobs.apply(db, job.id, a_claim(job, **changes), table=table)
    assert isinstance(got, Job), got
    return got


def a_claim(job: Job, *, by: str = "worker", **changes: Any) -> Claim:
    return Claim(**{"stage": job.stage, "holder": by, "fence": uuid4(), "lease": LEASE, "request_id": by, **changes})


def running(db: Database, *, by: str = "worker", **changes: Any) -> Job:
    """A new job that this worker has claimed."""
    return claim(db, enqueue(db, **changes), by=by)


def advance(db: Database, job: Job) -> Job:
    """The job, one stage further."""
    assert job.fence is not None
    got = jobs.apply(db, job.id, Complete(fence=job.fence))
    assert isinstance(got, Job), got
    return got


def play(db: Database, job: Job, *moves: Any, table: Table = Table.JOBS) -> Job:
    """The job after moves that must not be refused."""
    got = jobs.apply(db, job.id, *moves, table=table)
    assert isinstance(got, Job), got
    return got


MOMENTS = (
    *("lease_expires_at", "deadline_at", "processing_started_at", "last_heartbeat_at", "next_earliest_run_at"),
    *("skip_until", "first_deferred_at", "published_at", "last_progress_update", "finished_at", "created_at"),
)


def let_pass(db: Database, job: Job, span: timedelta, table: Table = Table.JOBS) -> None:
    """Make this much time go by, as far as the row can tell."""
    moved = ", ".join(f"{name} = {name} - CAST(:span AS interval)" for name in MOMENTS)
    db.run(text(f"UPDATE {table} SET {moved} WHERE id = :id"), id=job.id, span=span)


def make_late(db: Database, job: Job, table: Table = Table.JOBS) -> None:
    """The lease of this job is over."""
    let_pass(db, job, LEASE + timedelta(seconds=1), table)


def reap(db: Database, table: Table = Table.JOBS) -> list[Job]:
    return leases.expire_some(db, table, 100)


def take_due(db: Database, limit: int = 100) -> list[Job]:
    """The jobs that are due, as if every queue had room for all of them."""
    rooms = Rooms(dict.fromkeys(QUEUE_OF.values(), limit), dict.fromkeys(Stage, limit))
    return due.take_due(db, rooms, limit, timedelta(minutes=10))


def now_of(db: Database, job: Job, table: Table = Table.JOBS) -> Job:
    return jobs.read(db, job.id, table)[0]


def rows(db: Database, statement: str, **params: Any) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in db.run(text(statement), **params)]


def value(db: Database, statement: str, **params: Any) -> Any:
    """The one value that a query answers with."""
    (row,) = db.run(text(statement), **params)
    return row[0]


def events(db: Database, job: Job) -> list[str]:
    return [row["type"] for row in rows(db, "SELECT type FROM job_events WHERE job_id = :id ORDER BY id", id=job.id)]


def outputs_of(db: Database, job: Job) -> list[int]:
    return [row["id"] for row in rows(db, "SELECT id FROM outputs WHERE job_id = :id ORDER BY id", id=job.id)]


# Nobody stands before what it refers to.
TABLES = (
    *("outbox", "alert_cooldowns"),
    *("accounts", "jobs", "outputs", "asr_jobs", "deliveries", "checkpoints", "job_events", "job_attempts"),
    *("credit_entries", "workers", "api_keys", "circuit_breakers", "webhook_endpoints", "webhook_deliveries"),
    *("signing_keys", "audit_log", "event_feed", "feed_head", "feed_gaps"),
    *("upkeep_runs", "queue_markers"),
)


def everything(db: Database) -> dict[str, list[dict[str, Any]]]:
    """All that is written anywhere, to see whether somebody wrote."""
    return {table: rows(db, f"SELECT * FROM {table} t ORDER BY t::text") for table in TABLES}


# -- money -----------------------------------------------------------------------------------------------------------


def open_account(db: Database, name: str = "ann", balance: int = 100) -> str:
    db.run(text("INSERT INTO accounts (id, balance) VALUES (:name, :balance)"), name=name, balance=balance)
    return name


def balance_of(db: Database, account: str = "ann") -> int:
    return int(value(db, "SELECT balance FROM accounts WHERE id = :account", account=account))


def entries(db: Database, account: str = "ann") -> list[tuple[str, int, int]]:
    """Kind, run and amount of all that was written for an account, oldest first."""
    told = rows(db, "SELECT kind, run, amount FROM credit_entries WHERE account_id = :id ORDER BY id", id=account)
    return [(row["kind"], row["run"], row["amount"]) for row in told]


# -- all at the same moment ------------------------------------------------------------------------------------------


class Start:
    """Lets several threads do something at the same moment, again and again."""

    def __init__(self, runners: int) -> None:
        self._pool = ThreadPoolExecutor(runners)
        self._barrier = threading.Barrier(runners)

    def together(self, *acts: Callable[[], Any]) -> list[Any]:
        def run(act: Callable[[], Any]) -> Any:
            self._barrier.wait(20)
            return act()

        return [each.result(20) for each in [self._pool.submit(run, act) for act in acts]]

    def __enter__(self) -> Start:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


# -- races that always end the same way ------------------------------------------------------------------------------


class Inside:
    """A Database whose every statement belongs to one transaction that has not committed yet."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn

    def run(self, statement: TextClause, /, **params: Any) -> list[Any]:
        return fetch(self.conn.execute(statement, params))

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        yield self.conn


def lock(conn: Connection, job: Job) -> None:
    conn.execute(text("SELECT 1 FROM jobs WHERE id = :id FOR UPDATE"), {"id": job.id})


def until(condition: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    """Wait until it is so."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never became so"
        time.sleep(0.002)


BLOCKED = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"""


def until_blocked_or_done(db: Database, future: Future[Any]) -> None:
    """Wait until whoever runs there waits for a lock, or has not waited at all."""
    until(lambda: future.done() or value(db, BLOCKED) > 0)


def refused(answer: object) -> bool:
    """Whether a write says that it did nothing: a Refusal, False, or an empty set."""
    return isinstance(answer, Refusal) or answer in (False, set())
