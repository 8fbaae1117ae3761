"""The promises that everything else leans on, shown on a real Postgres with real threads."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline.core.job import Job, OutputStatus, Stage, Status
from pipeline.core.moves import Claim, Complete, Refusal, Retry
from pipeline.core.output import File
from pipeline.store import checkpoints, jobs, outputs, reads
from pipeline.store.engine import Database
from pipeline.store.jobs import Table

T = TypeVar("T")
LEASE = timedelta(minutes=5)
SOME_FILE = File(name="a-final.mp4", sha256="0" * 64, size=1)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    opened = Database(database_url, pool_size=20)
    yield opened
    opened.dispose()


def born(db: Database, *, account: str | None = None) -> UUID:
    wanted = {"name": "a", "kind": "video", "clip": "a", "quality": "source", "critical": False, "price": 10}
    columns: dict[str, Any] = {
        "id": uuid4(),
        "account": account,
        "key": None,
        "hash": "h",
        "stage": "resolve",
        "plan": [str(s) for s in Stage],
        "priority": "normal",
        "request": "{}",
        "max_attempts": 3,
        "expected_duration_ms": None,
        "deadline_ms": None,
        "published": True,
        "outputs": json.dumps([wanted]),
    }
    with db.transaction() as conn:
        job, _is_new = jobs.insert(conn, **columns)
    return job.id


def claim(db: Database, job: UUID, by: str = "worker", lease: timedelta = LEASE) -> Job | Refusal:
    now, _ = jobs.read(db, job)
    return jobs.apply(db, job, Claim(stage=now.stage, holder=by, fence=uuid4(), lease=lease, request_id=by))


def held(db: Database, job: UUID, by: str = "worker", lease: timedelta = LEASE) -> tuple[Job, UUID]:
    taken = claim(db, job, by, lease)
    assert isinstance(taken, Job)
    assert taken.fence is not None
    return taken, taken.fence


def all_at_once(actions: list[Callable[[], T]]) -> list[T]:
    barrier = threading.Barrier(len(actions))

    def after_the_gun(action: Callable[[], T]) -> T:
        barrier.wait()
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(after_the_gun, actions))


def test_of_sixteen_simultaneous_claims_one_gets_the_lease(db: Database) -> None:
    for _ in range(10):
        job = born(db)

        answers = all_at_once([lambda job=job, n=n: claim(db, job, f"w{n}") for n in range(16)])  # type: ignore[misc]

        assert sum(isinstance(a, Job) for a in answers) == 1
        assert {a for a in answers if not isinstance(a, Job)} == {Refusal.HELD}
        assert [e["type"] for e in reads.events(db, job)] == ["queued", "claimed"]


def test_a_finisher_and_the_reaper_never_both_win(db: Database) -> None:
    for _ in range(150):
        job = born(db)
        taken, fence = held(db, job, lease=timedelta(0))

        all_at_once(
            [
                lambda job=job, fence=fence, taken=taken: jobs.apply(db, job, Complete(fence=fence), snapshot=taken),  # type: ignore[misc]
                lambda: jobs.expire_some(db, Table.JOBS, 100),
            ]
        )
        jobs.expire_some(db, Table.JOBS, 100)

        types = [e["type"] for e in reads.events(db, job)][2:]
        assert types in (["stage_completed"], ["requeued:stale"])
        assert [a["ended_by"] for a in reads.attempts(db, job)] == types


def test_a_ghost_can_write_nothing_anywhere(db: Database) -> None:
    job = born(db)
    ghost, old = held(db, job, "ghost", timedelta(0))
    jobs.expire_some(db, Table.JOBS, 10)
    heir, _ = held(db, job, "heir")
    output = outputs.of(db, job, 1)[0].id

    refused = [
        jobs.apply(db, job, Complete(fence=old), snapshot=ghost) is Refusal.LEASE_LOST,
        jobs.apply(db, job, Retry(fence=old, code="X", reason="x", delay=LEASE)) is Refusal.LEASE_LOST,
        not jobs.pulse(db, job, old, 50.0, 50.0),
        not jobs.is_held(db, job, old),
        not jobs.renew(db, "ghost", ["ghost"], LEASE),
        not checkpoints.put(db, job, old, 1, "unit", {"by": "ghost"}),
        not outputs.record(db, job, old, output, OutputStatus.COMPLETED, files=[SOME_FILE]),
        not outputs.delivered(db, job, old, output, "local"),
        not outputs.transcribed(db, job, old, output, {"text": "boo"}),
    ]

    assert all(refused), refused
    now, _ = jobs.read(db, job)
    assert now == heir
    assert checkpoints.of(db, job, 1) == {}
    assert outputs.of(db, job, 1)[0].status is OutputStatus.PENDING
    assert outputs.deliveries(db, job, 1) == []


def test_a_ghost_whose_write_began_before_it_was_reaped_still_writes_nothing(db: Database) -> None:
    job = born(db)
    _, old = held(db, job, "ghost")

    with ThreadPoolExecutor(1) as pool, db.transaction() as thief:
        # The row is taken away, not yet committed: the ghost's statement sees the old fence and must wait for us.
        thief.execute(
            text(
                "UPDATE jobs SET status = 'queued', fence = NULL, locked_by = NULL, lease_expires_at = NULL,"
                " deadline_at = NULL, last_heartbeat_at = NULL, request_id = NULL WHERE id = :id"
            ),
            {"id": job},
        )
        written = pool.submit(checkpoints.put, db, job, old, 1, "unit", {"by": "ghost"})
        waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%mine%'")
        while not written.done() and not db.run(waiting)[0][0]:
            pass
        thief.commit()

        assert written.result(10) is False
    assert checkpoints.of(db, job, 1) == {}


def test_the_reaper_does_not_wait_for_a_row_that_somebody_is_writing(db: Database) -> None:
    busy, free = born(db), born(db)
    for job in (busy, free):
        held(db, job, lease=timedelta(0))

    with db.transaction() as writer:
        writer.execute(text("SELECT 1 FROM jobs WHERE id = :id FOR UPDATE"), {"id": busy})
        reaped = jobs.expire_some(db, Table.JOBS, 10)

    assert [job.id for job in reaped] == [free]


def test_two_sweeps_at_once_publish_no_row_twice(db: Database) -> None:
    waiting = [born(db) for _ in range(40)]
    jobs.unpublish(db, waiting)

    taken = all_at_once([lambda: jobs.take_due(db, 25, LEASE, []) for _ in range(4)])

    ids = [job.id for batch in (*taken, jobs.take_due(db, 100, LEASE, [])) for job in batch]
    assert sorted(ids) == sorted(waiting)


def test_a_sweep_does_not_wait_for_a_row_that_somebody_is_writing(db: Database) -> None:
    busy, free = born(db), born(db)
    jobs.unpublish(db, [busy, free])

    with db.transaction() as writer:
        writer.execute(text("SELECT 1 FROM jobs WHERE id = :id FOR UPDATE"), {"id": busy})
        taken = jobs.take_due(db, 10, LEASE, [])

    assert [job.id for job in taken] == [free]


def test_a_backlog_is_not_published_again_while_its_queue_holds_messages(db: Database) -> None:
    job = born(db)

    in_a_backlog = jobs.take_due(db, 10, timedelta(0), [])
    lost = jobs.take_due(db, 10, timedelta(0), [Stage.RESOLVE])

    assert in_a_backlog == []
    assert [j.id for j in lost] == [job]


def test_a_renewal_never_reaches_past_the_deadline(db: Database) -> None:
    job = born(db)
    taken, _ = held(db, job)
    assert taken.lease is not None

    kept = jobs.renew(db, "worker", ["worker"], timedelta(days=1))

    now, _ = jobs.read(db, job)
    assert kept == {job}
    assert now.lease is not None
    assert now.lease.expires_at == taken.lease.deadline_at


def test_only_what_a_worker_is_really_running_is_renewed(db: Database) -> None:
    job = born(db)
    held(db, job, "worker")

    assert jobs.renew(db, "worker", ["another delivery"], LEASE) == set()
    assert jobs.renew(db, "another worker", ["worker"], LEASE) == set()


def test_a_claim_whose_answer_was_lost_is_recognised_as_ours(db: Database) -> None:
    job = born(db)
    ours = Claim(stage=Stage.RESOLVE, holder="w", fence=uuid4(), lease=LEASE)

    first = jobs.apply(db, job, ours)
    again = jobs.apply(db, job, ours)

    assert isinstance(first, Job)
    assert again == first
    assert len(reads.attempts(db, job)) == 1


def test_an_account_that_cannot_pay_gets_no_job_and_pays_nothing(db: Database) -> None:
    from pipeline.core.errors import InsufficientCredits

    with db.transaction() as conn:
        conn.execute(text("INSERT INTO accounts (id, balance) VALUES ('poor', 15)"))
    born(db, account="poor")

    with pytest.raises(InsufficientCredits):
        born(db, account="poor")

    assert db.run(text("SELECT balance FROM accounts"))[0].balance == 5
    assert db.run(text("SELECT count(*) AS n FROM jobs"))[0].n == 1


def test_what_was_held_is_given_back_once_when_the_job_fails(db: Database) -> None:
    with db.transaction() as conn:
        conn.execute(text("INSERT INTO accounts (id, balance) VALUES ('payer', 100)"))
    job = born(db, account="payer")
    for _ in range(3):
        held(db, job, lease=timedelta(0))
        jobs.expire_some(db, Table.JOBS, 10)

    now, _ = jobs.read(db, job)

    assert now.status is Status.FAILED
    assert db.run(text("SELECT balance FROM accounts"))[0].balance == 100
    assert [r.kind for r in db.run(text("SELECT kind FROM credit_entries ORDER BY id"))] == ["hold", "refund"]
