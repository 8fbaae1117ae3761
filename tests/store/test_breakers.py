"""Does the whole fleet share one opinion of a service, however many speak at once?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from pipeline.core.breaker import FIRST_OPEN, LONGEST_OPEN, THRESHOLD, TRIAL_TTL, State
from pipeline.core.job import Job
from pipeline.core.moves import Cancel, Defer, Refusal
from pipeline.store import breakers, jobs
from pipeline.store.engine import Database
from tests.store.world import (
    Another,
    Start,
    a_claim,
    balance_of,
    claim,
    entries,
    events,
    everything,
    let_pass,
    now_of,
    open_account,
    output,
    play,
    rows,
    running,
    take_due,
)

NAS = "target:nas"
DAY = timedelta(days=1)


def break_down(db: Database, service: str = NAS) -> None:
    for _ in range(THRESHOLD):
        breakers.fault(db, service, uuid4(), "TARGET_DOWN: no answer")


def row(db: Database, service: str = NAS) -> dict[str, Any]:
    (found,) = rows(db, "SELECT * FROM circuit_breakers WHERE service = :service", service=service)
    return found


def pass_by(db: Database, span: timedelta, service: str = NAS) -> None:
    """Make this much time go by, as far as the breaker can tell."""
    db.run(
        text("""UPDATE circuit_breakers SET opens_at = opens_at - CAST(:span AS interval),
                       trial_expires_at = trial_expires_at - CAST(:span AS interval) WHERE service = :service"""),
        span=span,
        service=service,
    )


def deferred(db: Database, service: str = NAS, delay: timedelta = FIRST_OPEN, **changes: Any) -> Job:
    """A job that waits for the service."""
    job = running(db, **changes)
    return play(db, job, defer(job, service, delay))


def defer(job: Job, service: str = NAS, delay: timedelta = FIRST_OPEN) -> Defer:
    assert job.fence is not None
    return Defer(fence=job.fence, code="TARGET_DOWN", reason="no", service=service, delay=delay, max_wait=DAY)


# -- counting --------------------------------------------------------------------------------------------------------


def test_faults_of_five_jobs_open_the_breaker_for_five_minutes(db: Database) -> None:
    break_down(db)

    seen = breakers.load(db, NAS)

    assert seen.breaker.state is State.OPEN
    assert seen.breaker.opens_at is not None
    assert timedelta(minutes=4, seconds=50) < seen.breaker.opens_at - seen.now <= FIRST_OPEN
    assert row(db)["last_failure"] == "TARGET_DOWN: no answer"


def test_one_job_that_meets_the_same_fault_a_hundred_times_opens_nothing_and_writes_once(db: Database) -> None:
    job = uuid4()

    for _ in range(100):
        breakers.fault(db, NAS, job, "no")

    assert row(db)["failures"] == [job]
    assert row(db)["version"] == 0


def test_a_success_starts_the_count_anew(db: Database) -> None:
    for _ in range(THRESHOLD - 1):
        breakers.fault(db, NAS, uuid4(), "no")
    breakers.success(db, NAS)

    after = breakers.fault(db, NAS, uuid4(), "no")

    assert (after.state, len(after.failures)) == (State.CLOSED, 1)


def test_a_success_of_a_service_in_good_health_writes_nothing(db: Database) -> None:
    unknown = everything(db)
    breakers.success(db, NAS)
    assert everything(db) == unknown

    breakers.fault(db, NAS, uuid4(), "no")
    breakers.success(db, NAS)
    clean = everything(db)
    breakers.success(db, NAS)

    assert everything(db) == clean


def test_services_do_not_share_their_faults(db: Database) -> None:
    break_down(db)

    assert breakers.load(db, "target:other").breaker.lets_through()


def test_faults_that_are_told_at_the_same_moment_are_all_counted(db: Database, another: Another) -> None:
    views = [another() for _ in range(THRESHOLD)]

    with Start(THRESHOLD) as start:
        for n in range(20):
            start.together(
                *(lambda view=view, n=n: breakers.fault(view, f"target:{n}", uuid4(), "no") for view in views)
            )
            assert row(db, f"target:{n}")["state"] == "open"
            assert row(db, f"target:{n}")["openings"] == 1


def test_a_text_that_is_too_long_or_that_postgres_cannot_hold_is_kept_as_far_as_possible(db: Database) -> None:
    breakers.fault(db, NAS, uuid4(), "no\0" + "x" * 10_000)

    assert row(db)["last_failure"].startswith("no\ufffdxxx")
    assert len(row(db)["last_failure"]) == breakers.SAID


# -- trials ----------------------------------------------------------------------------------------------------------


def test_sixteen_that_want_the_trial_at_the_same_moment_get_exactly_one(db: Database, another: Another) -> None:
    views = [another() for _ in range(16)]

    with Start(16) as start:
        for n in range(10):
            service = f"target:{n}"
            breakers.trip(db, service, "test")
            pass_by(db, FIRST_OPEN, service)
            tickets = [uuid4() for _ in views]
            got = start.together(
                *(
                    lambda view=view, ticket=ticket, service=service: breakers.begin_trial(view, service, ticket)
                    for view, ticket in zip(views, tickets, strict=True)
                )
            )

            assert got.count(True) == 1
            assert row(db, service)["trial"] == tickets[got.index(True)]


def test_no_trial_begins_before_its_time(db: Database) -> None:
    break_down(db)

    assert not breakers.begin_trial(db, NAS, uuid4())
    assert breakers.triable(db, 10) == []


def test_a_closed_breaker_needs_no_trial(db: Database) -> None:
    assert not breakers.begin_trial(db, NAS, uuid4())
    assert rows(db, "SELECT * FROM circuit_breakers") == []


def test_the_trial_of_a_dead_prober_expires_and_blocks_nobody(db: Database) -> None:
    break_down(db)
    pass_by(db, FIRST_OPEN)
    dead, heir = uuid4(), uuid4()
    assert breakers.begin_trial(db, NAS, dead)
    assert not breakers.begin_trial(db, NAS, heir)
    assert breakers.triable(db, 10) == []

    pass_by(db, TRIAL_TTL)

    assert breakers.triable(db, 10) == [NAS]
    assert breakers.begin_trial(db, NAS, heir)


def test_a_prober_that_wakes_after_its_trial_was_given_to_another_changes_nothing(db: Database) -> None:
    break_down(db)
    pass_by(db, FIRST_OPEN)
    ghost, heir = uuid4(), uuid4()
    breakers.begin_trial(db, NAS, ghost)
    pass_by(db, TRIAL_TTL)
    breakers.begin_trial(db, NAS, heir)
    before = row(db)

    breakers.trial_failed(db, NAS, ghost, "no")
    closed = breakers.trial_succeeded(db, NAS, ghost)

    assert not closed
    assert row(db) == before


def test_a_trial_whose_answer_was_lost_with_the_connection_is_still_ours(db: Database) -> None:
    break_down(db)
    pass_by(db, FIRST_OPEN)
    ticket = uuid4()

    assert breakers.begin_trial(db, NAS, ticket)
    assert breakers.begin_trial(db, NAS, ticket)


def test_each_trial_that_fails_opens_for_twice_as_long_up_to_an_hour(db: Database) -> None:
    break_down(db)
    spans = []
    for _ in range(5):
        pass_by(db, LONGEST_OPEN)
        ticket = uuid4()
        assert breakers.begin_trial(db, NAS, ticket)
        after = breakers.trial_failed(db, NAS, ticket, "still down")
        assert after.opens_at is not None
        spans.append(round((after.opens_at - breakers.load(db, NAS).now) / timedelta(minutes=1)))

    assert spans == [10, 20, 40, 60, 60]
    assert row(db)["last_failure"] == "still down"


def test_a_trial_that_succeeds_closes_the_breaker_and_forgets_the_openings(db: Database) -> None:
    break_down(db)
    pass_by(db, FIRST_OPEN)
    ticket = uuid4()
    breakers.begin_trial(db, NAS, ticket)

    assert breakers.trial_succeeded(db, NAS, ticket)

    assert (row(db)["state"], row(db)["failures"], row(db)["openings"], row(db)["opens_at"]) == ("closed", [], 0, None)


# -- operators -------------------------------------------------------------------------------------------------------


def test_operators_trip_and_reset_what_nobody_knew(db: Database) -> None:
    tripped = breakers.trip(db, NAS, "ann")
    assert tripped.state is State.OPEN
    assert row(db)["last_failure"] == "tripped by ann"

    assert breakers.reset(db, NAS, "ann").lets_through()


def test_a_success_from_before_does_not_undo_what_an_operator_tripped(db: Database) -> None:
    breakers.trip(db, NAS, "ann")

    breakers.success(db, NAS)

    assert row(db)["state"] == "open"


# -- who waits -------------------------------------------------------------------------------------------------------


def test_waking_ends_the_wait_of_everybody_who_waits_for_that_service_and_of_nobody_else(db: Database) -> None:
    waiting = [deferred(db) for _ in range(3)]
    other = deferred(db, "target:other")

    woken = jobs.wake(db, NAS)

    assert woken == 3
    for job in waiting:
        after = now_of(db, job)
        assert (after.skip_until, after.waiting_on) == (None, None)
        assert after.first_deferred_at is not None  # the longest wait goes on
        assert after.attempt_count == 0
    assert now_of(db, other) == other
    due = {job.id for job in take_due(db)}
    assert due == {job.id for job in waiting}


def test_waking_touches_no_job_that_runs_or_has_ended(db: Database) -> None:
    job = deferred(db)
    let_pass(db, job, FIRST_OPEN)
    claim(db, job)
    play(db, deferred(db), Cancel(by="ann"))
    before = everything(db)

    assert jobs.wake(db, NAS) == 0

    assert everything(db) == before


def test_who_waits_only_shortly_is_left_alone_where_that_is_asked_for(db: Database) -> None:
    shortly = deferred(db, delay=timedelta(seconds=50))
    long = deferred(db, delay=timedelta(hours=1))

    assert jobs.wake(db, NAS, beyond=timedelta(minutes=1)) == 1

    assert now_of(db, shortly).waiting_on == NAS
    assert now_of(db, long).waiting_on is None


def test_a_woken_job_can_be_claimed_at_once_and_a_waiting_one_cannot(db: Database) -> None:
    job = deferred(db)
    assert jobs.apply(db, job.id, a_claim(job)) is Refusal.NOT_DUE

    jobs.wake(db, NAS)

    assert claim(db, job).attempt_count == 1


def test_the_list_shows_who_is_in_trouble_first_and_how_many_jobs_wait(db: Database) -> None:
    breakers.fault(db, "asr:whisper", uuid4(), "no")
    break_down(db)
    deferred(db)
    deferred(db)

    shown = breakers.shown(db)

    assert [(b["service"], b["state"], b["failures"], b["openings"], b["waiting"]) for b in shown] == [
        (NAS, "open", 5, 1, 2),
        ("asr:whisper", "closed", 1, 0, 0),
    ]


def test_only_a_source_that_a_job_waits_for_is_named(db: Database) -> None:
    deferred(db, "source:other.org", request='{"source": "http://other.org/a"}')
    assert breakers.waiting_source(db, "source:example.org") is None

    deferred(db, "source:example.org", request='{"source": "http://example.org/a"}')

    assert breakers.waiting_source(db, "source:example.org") == "http://example.org/a"


def test_a_service_that_was_closed_long_ago_is_not_looked_after_any_more(db: Database) -> None:
    breakers.trip(db, NAS, "ann")
    breakers.reset(db, NAS, "ann")
    assert breakers.closed_lately(db) == [NAS]

    db.run(text("UPDATE circuit_breakers SET updated_at = updated_at - interval '3 hours'"))

    assert breakers.closed_lately(db) == []


def test_waiting_costs_no_attempt_and_ends_as_service_unavailable_with_a_refund(db: Database) -> None:
    account = open_account(db, balance=10)
    job = deferred(db, account=account, outputs=[output("a", price=3)])
    for _ in range(5):
        let_pass(db, job, FIRST_OPEN)
        held = claim(db, job)
        job = play(db, held, defer(held))
        assert job.attempt_count == 0
    assert balance_of(db) == 7

    let_pass(db, job, DAY)
    held = claim(db, job)
    failed = play(db, held, defer(held))

    assert (failed.status, failed.fail_code) == ("failed", "SERVICE_UNAVAILABLE")
    assert NAS in (failed.fail_reason or "")
    assert balance_of(db) == 10
    assert [kind for kind, *_ in entries(db)] == ["hold", "refund"]
    assert events(db, failed)[-1] == "failed"


@pytest.mark.parametrize("state", ["open", "half_open"])
def test_the_database_refuses_a_breaker_that_says_nothing_of_its_end(db: Database, state: str) -> None:
    with pytest.raises(IntegrityError):
        db.run(text("INSERT INTO circuit_breakers (service, state) VALUES ('broker', :state)"), state=state)
