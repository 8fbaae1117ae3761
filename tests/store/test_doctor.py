"""Does doctor see what is wrong, only that, and change nothing unless it is asked to?

Each test breaks one thing in a database of its own, if need be past the constraints that would have refused it.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
from sqlalchemy import text
from sqlalchemy.exc import InternalError

from pipeline import doctor, settings
from pipeline.core.job import Job, Outcome, OutputStatus, Stage
from pipeline.core.moves import Cancel, Complete, Crash, Defer, Fail, Release, Requeue, Retry
from pipeline.core.output import File
from pipeline.doctor import INVARIANTS, Broken
from pipeline.store import doctor as rows_
from pipeline.store import jobs, outputs, workers
from pipeline.store.engine import Database, database
from tests.store.world import (
    advance,
    claim,
    enqueue,
    everything,
    make_late,
    now_of,
    output,
    outputs_of,
    play,
    reap,
    running,
    value,
)

Break = Callable[[Database], Any]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "doctor.md"
FILE = File(name="a-final.mp4", sha256="0" * 64, size=1)
LAST = {"plan": [Stage.FINALIZE]}


@pytest.fixture
def db(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Database:
    """The database of a system of one's own, with a worker that serves every queue and upkeep that has just run."""
    monkeypatch.setenv("DATABASE_GRACE_SEC", "0")
    settings.current.cache_clear()
    made = database()
    a_worker(made)
    for name in doctor.upkeep.CHORES:
        made.run(text("INSERT INTO upkeep_runs VALUES (:name, clock_timestamp(), clock_timestamp(), '{}')"), name=name)
    return made


def a_worker(db: Database, status: str = "idle") -> UUID:
    who = uuid4()
    queues = ["io", "media", "control"]
    workers.register(db, who, name="a", hostname="a", queues=queues, slots=4, boot_id=None, pid=1, pid_started=None)
    db.run(text("UPDATE workers SET status = :status WHERE id = :id"), id=who, status=status)
    return who


def sql(db: Database, statement: str, **params: Any) -> None:
    db.run(text(statement), **params)


def without(db: Database, *constraints: str, table: str = "jobs") -> None:
    for name in constraints:
        sql(db, f"ALTER TABLE {table} DROP CONSTRAINT {name}")


def names(broken: list[Broken]) -> list[str]:
    return [each.invariant.name for each in broken]


def deliver(db: Database, job: Job, made: int) -> None:
    """The output is made, delivered and verified."""
    assert job.fence is not None
    outputs.record(db, job.id, job.fence, made, OutputStatus.COMPLETED, files=[FILE])
    outputs.delivered(db, job.id, job.fence, made, "local", files=[{"key": "k", "sha256": FILE.sha256}])


def completed(db: Database, **changes: Any) -> Job:
    """A job that completed in full."""
    job = running(db, **{**LAST, **changes})
    for each in outputs_of(db, job):
        deliver(db, job, each)
    return play(db, job, Complete(fence=job.fence))


def account(db: Database, name: str = "ann", balance: int = 100) -> str:
    """An account whose credits were granted."""
    sql(db, "INSERT INTO accounts (id, balance) VALUES (:name, :balance)", name=name, balance=balance)
    sql(db, "INSERT INTO credit_entries (account_id, kind, amount) VALUES (:n, 'grant', :b)", n=name, b=balance)
    return name


def paid(db: Database, **changes: Any) -> dict[str, Any]:
    return {**LAST, "account": account(db), "outputs": [output("a", price=10)], **changes}


def deferred(db: Database, service: str = "target:local", **changes: Any) -> Job:
    job = running(db, **changes)
    told = {"code": "TARGET_DOWN", "reason": "refused", "service": service}
    return play(db, job, Defer(fence=job.fence, delay=timedelta(minutes=5), max_wait=timedelta(days=1), **told))


def breaker(db: Database, state: str, ago: str, service: str = "target:local") -> None:
    """A breaker whose time (or trial, or closing) was so long ago."""
    half = state == "half_open"
    sql(
        db,
        """INSERT INTO circuit_breakers (service, state, opens_at, trial, trial_expires_at, updated_at)
           VALUES (:service, :state, clock_timestamp() - CAST(:ago AS interval), :trial,
                   CASE WHEN :half THEN clock_timestamp() - CAST(:ago AS interval) END,
                   clock_timestamp() - CAST(:ago AS interval))""",
        service=service,
        state=state,
        ago=ago,
        half=half,
        trial=uuid4() if half else None,
    )


def aged(db: Database, job: Job, by: str = "5 min") -> None:
    """As if the last move of this job had been so long ago."""
    sql(db, "UPDATE jobs SET updated_at = updated_at - CAST(:by AS interval) WHERE id = :id", id=job.id, by=by)


# -- all is well -----------------------------------------------------------------------------------------------------


def all_lawful(db: Database) -> None:
    """A job in every lawful state, and in a few lawful oddities."""
    enqueue(db)
    enqueue(db, published=True)
    running(db)
    advance(db, running(db))
    again = running(db)
    play(db, again, Retry(fence=again.fence, code="X", reason="", delay=timedelta(minutes=1)))
    deferred(db)
    deferred(db, "source:example.org")
    breaker(db, "open", "1 h", "source:nobody-waits.example")
    breaker(db, "closed", "5 min", "target:nas")
    deferred(db, "target:nas")  # since it closed: nobody has to wake it
    released = running(db)
    play(db, released, Release(fence=released.fence))
    crashed = running(db)
    play(db, crashed, Crash(fence=crashed.fence, evidence="signal 9"))
    play(db, running(db), Cancel(by="ann"))
    late = running(db)
    make_late(db, late)
    reap(db)
    claim(db, now_of(db, late))
    completed(db)
    whole = completed(db, **paid(db))
    assert whole.outcome is Outcome.FULL
    half_done(db)
    failed = running(db, account="ann", outputs=[output("a", price=10)])
    play(db, failed, Fail(fence=failed.fence, code="X", reason="no"))
    play(db, failed, Requeue(by="ann"))
    sql(db, "INSERT INTO workers (id, name, hostname, status) VALUES (gen_random_uuid(), 'b', 'b', 'offline')")


def half_done(db: Database) -> Job:
    """A job that completed in part, whose failed output is asked for once more."""
    job = running(db, account="ann", outputs=[output("a", price=10), output("b", price=3)], **LAST)
    made, broken = outputs_of(db, job)
    deliver(db, job, made)
    outputs.record(db, job.id, job.fence, broken, OutputStatus.FAILED, error_code="X")
    return play(db, job, Complete(fence=job.fence, outcome=Outcome.PARTIAL))


def test_a_database_with_jobs_in_all_lawful_states_is_clean(db: Database):
    all_lawful(db)

    assert doctor.examine(db) == []


def test_an_empty_database_that_nobody_serves_is_clean(env: dict[str, str]):
    assert doctor.examine(database()) == []


# -- each thing that can be wrong ------------------------------------------------------------------------------------

WHOLE_LEASE = ("leased_iff_processing", "a_lease_is_whole")


def lease_lost(db: Database) -> None:
    job = running(db)
    without(db, *WHOLE_LEASE)
    sql(
        db,
        "UPDATE jobs SET locked_by = NULL, fence = NULL, lease_expires_at = NULL, deadline_at = NULL WHERE id = :id",
        id=job.id,
    )


def lease_left_in_the_queue(db: Database) -> None:
    job = enqueue(db)
    without(db, *WHOLE_LEASE)
    sql(db, "UPDATE jobs SET locked_by = 'ghost' WHERE id = :id", id=job.id)


def lease_left_at_the_end(db: Database) -> None:
    job = completed(db)
    without(db, *WHOLE_LEASE)
    sql(db, "UPDATE jobs SET locked_by = 'ghost', fence = gen_random_uuid() WHERE id = :id", id=job.id)


def end_without_a_time(db: Database) -> None:
    job = completed(db)
    without(db, "an_end_has_a_time")
    sql(db, "UPDATE jobs SET finished_at = NULL WHERE id = :id", id=job.id)


def one_attempt_too_many(db: Database) -> None:
    job = running(db)
    without(db, "attempts_stay_within_the_limit")
    sql(db, "UPDATE jobs SET attempt_count = 4 WHERE id = :id", id=job.id)


def queued_without_attempts(db: Database) -> None:
    job = enqueue(db)
    without(db, "whoever_queues_has_attempts_left")
    sql(db, "UPDATE jobs SET attempt_count = 3 WHERE id = :id", id=job.id)


def attempt_missing(db: Database) -> None:
    sql(db, "DELETE FROM job_attempts WHERE fence = :fence", fence=running(db).fence)


def attempt_of_a_job_that_ended(db: Database) -> None:
    job = completed(db)
    sql(db, "UPDATE job_attempts SET ended_at = NULL, ended_by = NULL WHERE job_id = :id", id=job.id)


def second_attempt(db: Database) -> None:
    job = running(db)
    sql(
        db,
        """INSERT INTO job_attempts (fence, job_id, run, stage, attempt, worker)
           VALUES (gen_random_uuid(), :id, 1, 'resolve', 1, 'ghost')""",
        id=job.id,
    )


def lease_never_reaped(db: Database) -> None:
    job = running(db, by="gone")
    make_late(db, job)
    make_late(db, job)


def due_and_forgotten(db: Database) -> None:
    aged(db, enqueue(db), "40 s")


def sent_and_forgotten(db: Database) -> None:
    job = enqueue(db, published=True)
    sql(db, "UPDATE jobs SET published_at = published_at - interval '10 min' WHERE id = :id", id=job.id)


def queue_without_worker(db: Database) -> None:
    sql(db, "UPDATE workers SET queues = '{io}'")
    enqueue(db, plan=[Stage.CLIP], published=True)


def queue_of_a_disabled_worker(db: Database) -> None:
    sql(db, "UPDATE workers SET status = 'disabled'")
    enqueue(db, published=True)


def upkeep_asleep(db: Database) -> None:
    aged(db, running(db))
    sql(db, "UPDATE upkeep_runs SET last_ended_at = last_ended_at - interval '5 min' WHERE name = 'reap'")


def upkeep_that_never_ran(db: Database) -> None:
    aged(db, running(db))
    sql(db, "DELETE FROM upkeep_runs WHERE name = 'sweep'")


def completed_without_output(db: Database) -> None:
    job = running(db, **LAST)
    play(db, job, Complete(fence=job.fence, outcome=Outcome.PARTIAL))


def full_with_a_failure(db: Database) -> None:
    job = running(db, outputs=[output("a"), output("b")], **LAST)
    made, broken = outputs_of(db, job)
    deliver(db, job, made)
    outputs.record(db, job.id, job.fence, broken, OutputStatus.FAILED, error_code="X")
    play(db, job, Complete(fence=job.fence))


def completed_output_nowhere(db: Database) -> None:
    sql(db, "DELETE FROM deliveries WHERE job_id = :id", id=completed(db).id)


def balance_off(db: Database) -> None:
    sql(db, "UPDATE accounts SET balance = balance + 1 WHERE id = :id", id=account(db))


def hold_of_an_ended_run(db: Database) -> None:
    completed(db, **paid(db))
    sql(db, "DELETE FROM credit_entries WHERE kind = 'charge'")


def hold_of_an_earlier_run(db: Database) -> None:
    play(db, play(db, enqueue(db, **paid(db)), Cancel(by="ann")), Requeue(by="ann"))
    sql(db, "DELETE FROM credit_entries WHERE kind = 'refund'")
    sql(db, "UPDATE accounts SET balance = balance - 10")


def charged_and_refunded(db: Database) -> None:
    completed(db, **paid(db))
    sql(db, "DROP INDEX a_hold_ends_once")
    sql(
        db,
        """INSERT INTO credit_entries (account_id, job_id, output_id, run, kind, amount)
           SELECT account_id, job_id, output_id, run, 'refund', 10 FROM credit_entries WHERE kind = 'charge'""",
    )
    sql(db, "UPDATE accounts SET balance = balance + 10")


def refund_of_too_much(db: Database) -> None:
    play(db, enqueue(db, **paid(db)), Cancel(by="ann"))
    sql(db, "UPDATE credit_entries SET amount = 11 WHERE kind = 'refund'")
    sql(db, "UPDATE accounts SET balance = balance + 1")


def charge_without_hold(db: Database) -> None:
    completed(db, **paid(db))
    sql(db, "DELETE FROM credit_entries WHERE kind = 'hold'")
    sql(db, "UPDATE accounts SET balance = balance + 10")


def settled_while_it_runs(db: Database) -> None:
    job = running(db, **paid(db))
    sql(
        db,
        """INSERT INTO credit_entries (account_id, job_id, output_id, run, kind, amount)
           SELECT account_id, job_id, output_id, run, 'charge', 0 FROM credit_entries WHERE job_id = :id""",
        id=job.id,
    )


def story_without_beginning(db: Database) -> None:
    job = enqueue(db)
    sql(db, "DELETE FROM job_events WHERE job_id = :id", id=job.id)


def claim_without_end(db: Database) -> None:
    job = running(db)
    play(db, job, Release(fence=job.fence))
    sql(db, "DELETE FROM job_events WHERE type = 'aborted:shutdown'")


def claim_after_claim(db: Database) -> None:
    claim_without_end(db)
    claim(db, now_of(db, Job(id=value(db, "SELECT id FROM jobs"), stage=Stage.RESOLVE, plan=())))


def silent_worker(db: Database) -> None:
    who = a_worker(db)
    sql(db, "UPDATE workers SET last_heartbeat = clock_timestamp() - interval '2 days' WHERE id = :id", id=who)


def breaker_never_tried(db: Database) -> None:
    breaker(db, "open", "10 min")


def breaker_of_a_source_never_tried(db: Database) -> None:
    # Our own machine: the guard refuses it before anything is sent, which says nothing against the host.
    deferred(db, "source:127.0.0.1", request='{"source": "http://127.0.0.1:1/film.mp4"}')
    breaker(db, "open", "10 min", "source:127.0.0.1")


def trial_never_answered(db: Database) -> None:
    breaker(db, "half_open", "10 min")


def forgotten_sleeper(db: Database) -> None:
    aged(db, deferred(db), "10 min")
    breaker(db, "closed", "5 min")


def scratch_of(job: UUID, *, untouched: timedelta = timedelta(0)) -> Path:
    folder = settings.current().scratch_dir / "jobs" / str(job)
    (folder / "fence").mkdir(parents=True)
    (folder / "fence" / "a-work.mp4").write_text("x")
    for path in (*folder.rglob("*"), folder):
        moment = path.stat().st_mtime - untouched.total_seconds()
        os.utime(path, (moment, moment))
    return folder


def scratch_of_an_ended_job(db: Database) -> None:
    job = completed(db)
    sql(db, "UPDATE jobs SET finished_at = finished_at - interval '1 h' WHERE id = :id", id=job.id)
    scratch_of(job.id)


def scratch_of_nobody(db: Database) -> None:
    scratch_of(uuid4(), untouched=timedelta(days=2))


BREAKS: list[tuple[Break, str]] = [
    (lease_lost, "running_has_a_lease"),
    (lease_left_in_the_queue, "queued_has_no_lease"),
    (lease_left_at_the_end, "ended_has_no_lease"),
    (end_without_a_time, "ended_has_a_time"),
    (one_attempt_too_many, "attempts_are_bounded"),
    (queued_without_attempts, "attempts_are_bounded"),
    (attempt_missing, "running_has_an_attempt"),
    (attempt_of_a_job_that_ended, "attempts_end"),
    (second_attempt, "one_attempt_at_a_time"),
    (lease_never_reaped, "leases_are_reaped"),
    (due_and_forgotten, "due_jobs_are_published"),
    (sent_and_forgotten, "published_jobs_are_claimed"),
    (queue_without_worker, "queues_are_served"),
    (queue_of_a_disabled_worker, "queues_are_served"),
    (upkeep_asleep, "upkeep_is_on_time"),
    (upkeep_that_never_ran, "upkeep_is_on_time"),
    (completed_without_output, "completed_has_an_output"),
    (full_with_a_failure, "full_means_all"),
    (completed_output_nowhere, "completed_outputs_are_delivered"),
    (balance_off, "balances_add_up"),
    (hold_of_an_ended_run, "holds_end"),
    (hold_of_an_earlier_run, "holds_end"),
    (charged_and_refunded, "holds_end_once"),
    (refund_of_too_much, "ends_match_their_hold"),
    (charge_without_hold, "ends_match_their_hold"),
    (settled_while_it_runs, "nothing_is_settled_early"),
    (story_without_beginning, "stories_begin_with_queued"),
    (claim_without_end, "claims_have_an_ending"),
    (claim_after_claim, "claims_have_an_ending"),
    (silent_worker, "silent_workers_are_offline"),
    (breaker_never_tried, "open_breakers_are_tried"),
    (breaker_of_a_source_never_tried, "open_breakers_are_tried"),
    (trial_never_answered, "trials_are_answered"),
    (forgotten_sleeper, "nobody_waits_for_nothing"),
    (scratch_of_an_ended_job, "scratch_has_an_owner"),
    (scratch_of_nobody, "scratch_has_an_owner"),
]


@pytest.mark.parametrize(("breaks", "name"), BREAKS, ids=[each.__name__ for each, _ in BREAKS])
def test_what_is_wrong_is_found_and_nothing_else(db: Database, breaks: Break, name: str):
    breaks(db)
    before = everything(db)

    broken = doctor.examine(db)

    assert names(broken) == [name]
    assert len(broken[0].found) == 1
    assert broken[0].found[0].detail
    assert everything(db) == before


@pytest.mark.parametrize(("breaks", "name"), BREAKS, ids=[each.__name__ for each, _ in BREAKS])
def test_a_repair_leaves_nothing_where_there_is_one_and_everything_where_there_is_none(
    db: Database, breaks: Break, name: str
):
    breaks(db)
    before = everything(db)
    invariant = next(each for each in INVARIANTS if each.name == name)

    broken = doctor.repair(db)

    assert [(each.invariant.name, each.repaired) for each in broken] == [(name, invariant.mend is not None)]
    assert names(doctor.examine(db)) == ([] if invariant.mend else [name])
    if invariant.mend is None:
        assert everything(db) == before


def test_every_invariant_has_a_test_that_breaks_it():
    assert {name for _, name in BREAKS} == {each.name for each in INVARIANTS if not each.deep}


def test_a_repair_moves_jobs_through_the_door_only(db: Database):
    lease_never_reaped(db)
    job = value(db, "SELECT id FROM jobs")

    doctor.repair(db)

    assert value(db, "SELECT status FROM jobs") == "queued"
    assert value(db, "SELECT type FROM job_events WHERE job_id = :id ORDER BY id DESC LIMIT 1", id=job) == (
        "requeued:stale"
    )


def test_what_the_broker_still_holds_is_not_sent_again_and_not_called_repaired(db: Database, redis_url: str):
    sent_and_forgotten(db)
    with redis.Redis.from_url(redis_url) as broker:
        broker.lpush("io", "a message that no worker takes")

        (broken,) = doctor.repair(db)

        assert (broken.invariant.name, broken.repaired) == ("published_jobs_are_claimed", False)
        assert value(db, "SELECT published_at < clock_timestamp() - interval '9 min' FROM jobs")


def test_looking_cannot_write(db: Database):
    write = rows_.Query(text("INSERT INTO accounts (id) VALUES ('x') RETURNING id, '' AS detail"))

    with pytest.raises(InternalError, match="read-only"):
        rows_.look(db, {"write": write}, {})

    assert value(db, "SELECT count(*) FROM accounts") == 0


def test_more_rows_than_are_told_are_said_to_be_more(db: Database, monkeypatch: pytest.MonkeyPatch):
    for _ in range(3):
        attempt_missing(db)
    monkeypatch.setattr(doctor, "MOST", 2)

    (broken,) = doctor.examine(db)

    assert (len(broken.found), broken.more) == (2, True)


def test_a_job_that_was_just_woken_is_not_late(db: Database):
    job = deferred(db)
    aged(db, job, "10 min")
    breaker(db, "closed", "1 s")

    jobs.wake(db, "target:local")

    assert now_of(db, job).skip_until is None
    assert doctor.examine(db) == []


# -- scratch ---------------------------------------------------------------------------------------------------------


def test_scratch_that_somebody_may_need_is_left_alone(db: Database, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    folders = settings.current().scratch_dir / "jobs"
    kept = [
        scratch_of(running(db).id, untouched=timedelta(days=3)),
        scratch_of(enqueue(db, published=True).id),
        scratch_of(completed(db).id),  # whoever ended it may still be tidying up
        scratch_of(uuid4()),  # perhaps of another system on this machine
    ]
    (folders / "not-a-job").mkdir()
    link = folders / str(uuid4())
    link.symlink_to(elsewhere)
    for path in (elsewhere / "precious", elsewhere, link):
        os.utime(path, (0, 0), follow_symlinks=False)
    gone = scratch_of(uuid4(), untouched=timedelta(days=2))

    (broken,) = doctor.repair(db)

    assert [each.id for each in broken.found] == [gone.name]
    assert all((folder / "fence" / "a-work.mp4").exists() for folder in kept)
    assert (folders / "not-a-job").exists()
    assert (elsewhere / "precious").exists()
    assert not gone.exists()


# -- delivered files -------------------------------------------------------------------------------------------------


def delivered_to(db: Database, target: str, content: bytes | None, told: bytes = b"film") -> Job:
    """A completed job whose one file lies at a target with this content, or not at all."""
    sha256 = hashlib.sha256(told).hexdigest()
    job = running(db, **LAST)
    key = f"jobs/{job.id}/g1/a-{sha256[:16]}.mp4"
    (made,) = outputs_of(db, job)
    assert job.fence is not None
    outputs.record(db, job.id, job.fence, made, OutputStatus.COMPLETED, files=[replace(FILE, sha256=sha256)])
    outputs.delivered(db, job.id, job.fence, made, target, files=[{"key": key, "sha256": sha256}])
    if content is not None:
        place = settings.current().output_dir / key
        place.parent.mkdir(parents=True)
        place.write_bytes(content)
    return play(db, job, Complete(fence=job.fence))


def test_only_a_deep_look_asks_the_targets(db: Database):
    there = delivered_to(db, "local", b"film")
    missing = delivered_to(db, "local", None)
    damaged = delivered_to(db, "local", b"fog")
    unknown = delivered_to(db, "nas", None)

    plain, deep = doctor.examine(db), doctor.examine(db, deep=True)

    assert plain == []
    assert names(deep) == ["delivered_files_are_there"]
    found = {each.id: each.detail.rpartition(": ")[2] for each in deep[0].found}
    assert found == {
        str(missing.id): "is not there",
        str(damaged.id): "has other content",
        str(unknown.id): "no such target is configured here",
    }
    assert str(there.id) not in found


# -- the page --------------------------------------------------------------------------------------------------------


def test_the_page_has_every_invariant_in_order():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    told = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]

    assert told == [(f"`{each.name}`", each.severity, each.means, each.repair) for each in INVARIANTS]


def test_an_invariant_that_says_repair_has_one():
    assert all(("--repair" in each.repair) == (each.mend is not None) for each in INVARIANTS)
