"""Do operators hear of what they should, once, wherever it happened?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline import intake, settings, webhooks
from pipeline.core.breaker import THRESHOLD
from pipeline.core.job import Job, Stage
from pipeline.core.moves import Retry
from pipeline.store import breakers, endpoints, jobs, leases, workers
from pipeline.store import webhooks as deliveries
from pipeline.store.engine import Database, database
from pipeline.store.jobs import Table
from pipeline.upkeep import alerts
from pipeline.upkeep import webhooks as run
from tests.webhooks.world import SECRET, Place, ask, claimed, cool_down, fail, rows

Make = Callable[..., Place]


@pytest.fixture
def operators(db: Database, endpoint: Make, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Where ALERT_WEBHOOK_URL points."""
    place = endpoint()
    monkeypatch.setenv("ALERT_WEBHOOK_URL", place.url)
    settings.current.cache_clear()
    return place


def register(db: Database, name: str = "w@h") -> UUID:
    who = uuid4()
    about = {"hostname": "h", "queues": ["io"], "slots": 2, "boot_id": None, "pid": 1, "pid_started": None}
    workers.register(db, who, name=name, **about)  # type: ignore[arg-type]
    return who


def expire(db: Database, job: Job) -> Job:
    db.run(text("UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE id = :id"), id=job.id)
    (after,) = leases.expire_some(db, Table.JOBS, 10)
    return after


def test_a_job_taken_from_a_dead_worker_is_told(db: Database, film: Path, operators: Place) -> None:
    job = expire(db, claimed(db, ask(film)))

    run()

    (got,) = operators.got
    assert got.json["type"] == "stale_job_recovered"
    assert got.json["data"]["job_id"] == str(job.id)
    assert got.json["data"]["details"]["reason"] == "lease_expired"


def test_a_job_whose_attempts_are_used_up_is_told(db: Database, film: Path, operators: Place) -> None:
    job = ask(film, max_attempts=1)
    held = claimed(db, job)
    jobs.apply(db, job.id, Retry(fence=held.fence, code="X", reason="y", delay=timedelta(0)))  # type: ignore[arg-type]

    run()

    assert operators.types() == ["job_max_retries_exceeded"]
    assert operators.got[0].json["data"]["code"] == "RETRIES_EXHAUSTED"


def test_a_stage_that_stood_still_is_told(db: Database, film: Path, operators: Place) -> None:
    job = claimed(db, ask(film))
    db.run(
        text("UPDATE jobs SET last_progress_update = clock_timestamp() - interval '1 day' WHERE id = :id"), id=job.id
    )
    leases.stall_some(db, 10, dict.fromkeys(Stage, timedelta(minutes=1)))

    run()

    assert operators.types() == ["job_stalled"]


def test_several_jobs_that_fail_for_one_reason_are_a_pattern(db: Database, film: Path, operators: Place) -> None:
    least = settings.current().alert_pattern_jobs
    failed = [str(fail(db, ask(film)).id) for _ in range(least - 1)]
    fail(db, ask(film), code="ANOTHER")
    run()
    before = operators.types()
    failed.append(str(fail(db, ask(film)).id))

    run()

    assert before == []
    (got,) = operators.got
    assert got.json["type"] == "job_failed_pattern"
    assert got.json["data"]["code"] == "SOURCE_NOT_FOUND"
    assert got.json["data"]["jobs"] == least
    assert set(got.json["data"]["examples"]) <= set(failed)


def test_one_job_that_fails_again_and_again_is_no_pattern(db: Database, film: Path, operators: Place) -> None:
    job = fail(db, ask(film))
    for _ in range(settings.current().alert_pattern_jobs):
        fail(db, intake.requeue(job.id, "ann"))

    run()

    assert operators.types() == []


def test_a_worker_that_starts_and_stops_is_told_and_how_it_ended(db: Database, operators: Place) -> None:
    polite, dead, silent = register(db, "polite"), register(db, "dead"), register(db, "silent")
    run()
    workers.goodbye(db, polite)
    run()
    cool_down(db)
    workers.bury(db, [dead], None)
    run()
    cool_down(db)
    db.run(text("UPDATE workers SET last_heartbeat = clock_timestamp() - interval '1 h' WHERE id = :id"), id=silent)
    workers.bury(db, [], timedelta(minutes=1))
    run()

    ends = [(g.json["data"]["name"], g.json["data"]["ended_by"]) for g in operators.got if "ended_by" in g.json["data"]]
    assert operators.types()[0] == "worker_startup"
    assert ends == [("polite", "goodbye"), ("dead", "gone"), ("silent", "silence")]


def test_a_beating_worker_tells_nothing(db: Database, operators: Place) -> None:
    who = register(db)
    run()
    operators.got.clear()
    cool_down(db)

    for busy in (True, False, True):
        workers.beat(db, who, busy=busy)
    run()

    assert operators.types() == []


def test_an_alert_shows_no_secret(db: Database, operators: Place) -> None:
    for _ in range(THRESHOLD):
        breakers.fault(db, "target:nas", uuid4(), "no route to sftp://me:hidden@nas/x?token=hidden")

    run()

    assert b"no route to sftp://***@nas" in operators.got[0].body
    assert b"hidden" not in operators.got[0].body


def test_a_breaker_is_told_when_it_opens_and_when_it_closes_but_not_when_a_trial_fails(
    db: Database, operators: Place
) -> None:
    for _ in range(THRESHOLD):
        breakers.fault(db, "target:nas", uuid4(), "no route")
    run()
    db.run(text("UPDATE circuit_breakers SET opens_at = clock_timestamp()"))
    ticket = uuid4()
    assert breakers.begin_trial(db, "target:nas", ticket)
    breakers.trial_failed(db, "target:nas", ticket, "still no route")
    cool_down(db)
    run()
    breakers.reset(db, "target:nas", "ann")
    run()

    assert operators.types() == ["breaker_opened", "breaker_closed"]
    assert operators.got[0].json["data"]["service"] == "target:nas"
    assert operators.got[0].json["data"]["reason"] == "no route"


# -- how often -------------------------------------------------------------------------------------------------------


def test_the_same_type_is_told_once_in_a_cooldown_by_the_whole_fleet_and_the_rest_is_counted(
    db: Database, film: Path, operators: Place
) -> None:
    for _ in range(5):
        expire(db, claimed(db, ask(film)))
    fleet = [threading.Thread(target=alerts.relay, args=(database(),)) for _ in range(4)]
    for each in fleet:
        each.start()
    for each in fleet:
        each.join()
    expire(db, claimed(db, ask(film)))
    run()
    first = [got.json["repeated"] for got in operators.got]
    cool_down(db)

    run()

    assert first == [0]
    assert [got.json["repeated"] for got in operators.got] == [0, 4]
    assert rows(db, "SELECT held FROM alert_cooldowns WHERE type = 'stale_job_recovered'") == [{"held": 0}]


def test_only_one_relays_at_a_time(db: Database) -> None:
    with deliveries.relaying(db) as first, deliveries.relaying(db) as second:
        assert first is not None
        assert second is None

    with deliveries.relaying(db) as next_one:
        assert next_one is not None


def test_a_cooldown_holds_back_no_callback(db: Database, film: Path, endpoint: Make, operators: Place) -> None:
    place = endpoint()
    for _ in range(3):
        fail(db, ask(film, callback_url=place.url))

    run()

    assert place.types() == ["job_failed"] * 3


def test_endpoints_hear_of_the_types_that_they_asked_for_under_their_own_secret(db: Database, endpoint: Make) -> None:
    everything, starts, others = endpoint(), endpoint(), endpoint()
    for place, types in ((everything, []), (starts, ["worker_startup"]), (others, ["job_stalled"])):
        endpoints.add(db, place.url, f"secret of {types}", types, None)

    register(db)
    run()

    assert (everything.types(), starts.types(), others.types()) == (["worker_startup"], ["worker_startup"], [])
    (got,) = starts.got
    at = float(got.headers[webhooks.SIGNATURE].split(",")[0].removeprefix("t="))
    assert webhooks.verify("secret of ['worker_startup']", got.headers[webhooks.SIGNATURE], got.body, at)
    assert not webhooks.verify(webhooks.secret_of(SECRET, None), got.headers[webhooks.SIGNATURE], got.body, at)


def test_what_a_rolled_back_transaction_did_is_told_to_nobody(db: Database, operators: Place) -> None:
    with db.transaction() as conn:
        conn.execute(text("INSERT INTO workers (id, name, hostname) VALUES (gen_random_uuid(), 'w', 'h')"))
        conn.rollback()

    run()

    assert operators.got == []
    assert rows(db, "SELECT * FROM outbox") == []
