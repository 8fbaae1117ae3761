"""Are the numbers at the top of the dashboard true, and do they cost the same whatever has been finished?"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import text

from pipeline.core.moves import Cancel, Complete, Fail
from pipeline.store import overview
from pipeline.store.engine import Database
from tests.store.world import claim, enqueue, play

FINISH = text("UPDATE jobs SET finished_at = clock_timestamp() - CAST(:age AS interval) WHERE id = :id")


def test_the_flow_counts_living_jobs_by_stage_and_failures_of_the_last_hour(db: Database) -> None:
    enqueue(db)
    claim(db, enqueue(db))
    moved = claim(db, enqueue(db))
    play(db, moved, Complete(fence=moved.fence))
    for age in (timedelta(minutes=5), timedelta(hours=2)):
        job = claim(db, enqueue(db))
        play(db, job, Fail(fence=job.fence, code="SOURCE_UNREADABLE", reason="no video"))
        db.run(FINISH, id=job.id, age=age)

    told = {each.stage: each for each in overview.overview(db).flow}

    assert list(told) == ["resolve", "clip", "upload", "asr", "finalize"]
    assert (told["resolve"].queued, told["resolve"].processing, told["resolve"].failed) == (1, 1, 1)
    assert (told["clip"].queued, told["clip"].processing, told["clip"].failed) == (1, 0, 0)


def test_what_ended_is_counted_by_the_minute(db: Database) -> None:
    ended = [enqueue(db) for _ in range(3)]
    for job in ended:
        play(db, job, Cancel(by="somebody"))
    db.run(FINISH, id=ended[0].id, age=timedelta(minutes=10))
    db.run(FINISH, id=ended[1].id, age=timedelta(minutes=10))
    db.run(FINISH, id=ended[2].id, age=timedelta(minutes=90))

    told = overview.overview(db)

    assert sum(each.cancelled for each in told.minutes) == 2
    assert all(each.at <= told.this_minute for each in told.minutes)


def test_the_age_of_a_queue_is_that_of_its_oldest_due_job(db: Database) -> None:
    waits, later = enqueue(db), enqueue(db)
    old = text("UPDATE jobs SET updated_at = clock_timestamp() - interval '1 min' WHERE id = :id")
    db.run(old, id=waits.id)
    not_due = text("UPDATE jobs SET next_earliest_run_at = clock_timestamp() + interval '1 h' WHERE id = :id")
    db.run(not_due, id=later.id)

    ages = overview.overview(db).oldest_due_s

    assert 60 <= ages["io"] < 3600
    assert ages["media"] == 0


def test_an_account_is_told_of_its_own_jobs_only(db: Database) -> None:
    db.run(text("INSERT INTO accounts (id) VALUES ('ann'), ('bob')"))
    enqueue(db, account="ann")
    for _ in range(3):
        enqueue(db, account="bob")
    ended = enqueue(db, account="bob")
    play(db, ended, Cancel(by="somebody"))

    told = overview.overview(db, "ann")

    assert sum(each.queued for each in told.flow) == 1
    assert told.minutes == []


def test_finished_rows_are_read_by_the_index_alone(db: Database) -> None:
    with db.transaction() as conn:
        conn.execute(text("SET LOCAL enable_seqscan = off"))
        plan = "\n".join(row[0] for row in conn.execute(text(f"EXPLAIN {overview.EVERYBODYS.text}")))

    assert "idx_jobs_unshortened" in plan
    assert "Seq Scan" not in plan
