"""Does a scrape tell the truth about the fleet, and only that Postgres is away when it is?"""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text

from pipeline import gauges, settings
from pipeline.core.moves import Retry
from pipeline.store import breakers, upkeep, workers
from pipeline.store.engine import Database, database
from pipeline.store.gauges import EVERYBODYS
from tests.store.world import claim, enqueue, let_pass, make_late, play, running, value


@pytest.fixture
def db(env: dict[str, str]) -> Database:
    gauges._doctor.clear()
    return database()


def read(name: str, **labels: str) -> float | None:
    found = [r.value for r in gauges.fleet() if r.name == name and dict(r.labels) == labels]
    return found[0] if found else None


def test_jobs_are_counted_by_status_and_stage(db: Database) -> None:
    enqueue(db)
    enqueue(db, published=True)
    running(db)
    waiting = running(db)
    play(db, waiting, Retry(fence=waiting.fence, code="X", reason="y", delay=timedelta(hours=1)))

    assert read("jobs_current", status="queued", stage="resolve") == 3
    assert read("jobs_current", status="processing", stage="resolve") == 1
    assert read("jobs_current", status="processing", stage="clip") == 0


def test_a_queue_is_as_old_as_the_job_that_has_been_due_longest(db: Database) -> None:
    old = enqueue(db, published=True)
    let_pass(db, old, timedelta(minutes=10))
    later = running(db)
    play(
        db, later, Retry(fence=later.fence, code="X", reason="y", delay=timedelta(hours=1))
    )  # not due: waits for nobody

    assert read("queue_age_seconds", queue="io") == pytest.approx(600, abs=30)
    assert read("queue_age_seconds", queue="media") == 0
    assert read("oldest_due_job_seconds") == pytest.approx(600, abs=30)


def test_a_job_that_waits_for_its_time_makes_no_queue_old(db: Database) -> None:
    later = running(db)
    play(db, later, Retry(fence=later.fence, code="X", reason="y", delay=timedelta(hours=1)))

    assert read("oldest_due_job_seconds") == 0


def test_a_job_whose_backoff_is_over_is_due_since_then(db: Database) -> None:
    job = running(db)
    play(db, job, Retry(fence=job.fence, code="X", reason="y", delay=timedelta(minutes=1)))
    let_pass(db, job, timedelta(minutes=6))

    assert read("oldest_due_job_seconds") == pytest.approx(300, abs=30)


def test_a_job_under_a_lease_that_is_over_is_stuck(db: Database) -> None:
    running(db)
    make_late(db, running(db))

    assert read("jobs_stuck") == 1


def test_upkeep_breakers_workers_and_webhooks_are_shown(db: Database) -> None:
    upkeep.began(db, "reap")
    upkeep.ended(db, "reap", {})
    db.run(text("UPDATE upkeep_runs SET last_ended_at = last_ended_at - interval '100 s'"))
    breakers.trip(db, "target:nas", "ann")
    about = {"name": "w", "hostname": "h", "queues": ["io"], "slots": 1, "boot_id": None, "pid": 1, "pid_started": None}
    workers.register(db, uuid4(), **about)  # type: ignore[arg-type]
    db.run(
        text(
            "INSERT INTO webhook_deliveries (id, type, payload, url, created_at) VALUES"
            " (gen_random_uuid(), 'test', '{}', 'http://x', clock_timestamp() - interval '50 s')"
        )
    )

    assert read("reaper_seconds_since_last_run") == pytest.approx(100, abs=30)
    assert read("upkeep_seconds_since_last_run", chore="reap") == pytest.approx(100, abs=30)
    assert read("breaker_state", service="target:nas") == 2
    assert read("workers_current", status="idle") == 1
    assert read("webhooks_pending") == 1
    assert read("webhooks_oldest_pending_seconds") == pytest.approx(50, abs=30)


def test_the_doctors_findings_are_shown_and_asked_for_once_a_minute(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline import doctor

    asked: list[int] = []
    examine = doctor.examine
    monkeypatch.setattr(doctor, "examine", lambda *args: asked.append(1) or examine(*args))
    make_late(db, claim(db, enqueue(db)))
    db.run(text("UPDATE jobs SET lease_expires_at = lease_expires_at - interval '1 day'"))

    first, second = gauges.fleet(), gauges.fleet()

    broken = {r.labels["invariant"]: r.value for r in first if r.name == "doctor_violations" and r.value}
    assert broken
    assert len([r for r in second if r.name == "doctor_violations"]) >= 10
    assert asked == [1]


def test_without_postgres_a_scrape_says_just_that(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none")
    settings.current.cache_clear()

    told = gauges.exposition().decode()

    assert "database_up 0.0" in told
    assert "jobs_current" not in told


def test_a_million_finished_jobs_cost_a_scrape_nothing(db: Database) -> None:
    """Every part of the query can be read from an index that holds living rows only."""
    with db.transaction() as conn:
        conn.execute(text("SET LOCAL enable_seqscan = off"))
        plan = "\n".join(row[0] for row in conn.execute(text(f"EXPLAIN {EVERYBODYS.text}")))

    assert "Seq Scan on jobs" not in plan
    assert value(db, "SELECT count(*) FROM jobs") == 0
