"""How long is a job somebody's? While its worker renews what it really runs, and until the reaper comes."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text

from pipeline.core.job import Job, Stage, Status
from pipeline.core.moves import Cancel, Complete
from pipeline.store import checkpoints, jobs, leases, workers
from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from tests.store.world import (
    LEASE,
    SILENCE,
    Another,
    Inside,
    claim,
    enqueue,
    enqueue_asr,
    let_pass,
    lock,
    make_late,
    now_of,
    play,
    reap,
    running,
    until_blocked_or_done,
    value,
)

SOON = timedelta(seconds=10)


def taken(db: Database, table: Table, **changes: str) -> Job:
    """A new row of this table in somebody's hands."""
    born = enqueue(db) if table is Table.JOBS else enqueue_asr(db)
    return claim(db, born, table=table, **changes)


@pytest.mark.parametrize("table", Table)
def test_a_renewal_pushes_the_end_of_the_lease_out(db: Database, table: Table):
    job = taken(db, table)
    let_pass(db, job, timedelta(minutes=4), table)

    kept = leases.renew(db, "worker", ["worker"], LEASE)

    after, now = jobs.read(db, job.id, table)
    assert kept == {job.id}
    assert after.lease is not None
    assert abs(after.lease.expires_at - now - LEASE) < SOON
    assert after.last_heartbeat_at is not None
    assert abs(after.last_heartbeat_at - now) < SOON
    assert after.version == job.version


@pytest.mark.parametrize("table", Table)
def test_a_renewal_never_reaches_past_the_deadline(db: Database, table: Table):
    job = taken(db, table)
    assert job.lease is not None

    kept = leases.renew(db, "worker", ["worker"], timedelta(days=1))

    after = now_of(db, job, table)
    assert kept == {job.id}
    assert after.lease is not None
    assert after.lease.expires_at == after.lease.deadline_at == job.lease.deadline_at


@pytest.mark.parametrize("table", Table)
def test_only_what_a_worker_is_really_running_is_renewed(db: Database, table: Table):
    runs = taken(db, table, by="ann", request_id="runs")
    died = taken(db, table, by="ann", request_id="died")
    others = taken(db, table, by="bob", request_id="runs")

    kept = leases.renew(db, "ann", ["runs", "never heard of"], timedelta(hours=1))

    assert kept == {runs.id}
    assert now_of(db, died, table) == died
    assert now_of(db, others, table) == others


def test_who_is_late_but_not_yet_reaped_goes_on(db: Database):
    job = running(db)
    make_late(db, job)

    kept = leases.renew(db, "worker", ["worker"], LEASE)

    assert kept == {job.id}
    assert reap(db) == []
    assert leases.pulse(db, job.id, job.fence, 10.0, 1.0, SILENCE) is not None
    assert play(db, job, Complete(fence=job.fence)).stage is Stage.CLIP


def test_past_its_deadline_no_heartbeat_saves_a_lease(db: Database):
    job = running(db, deadline_ms=60_000)
    let_pass(db, job, timedelta(minutes=2))

    leases.renew(db, "worker", ["worker"], LEASE)

    assert [each.id for each in reap(db)] == [job.id]
    assert now_of(db, job).last_error == "TIMEOUT: lease_expired"


def test_a_pulse_is_a_sign_of_progress_only_when_its_value_changed(db: Database):
    job = running(db)
    leases.pulse(db, job.id, job.fence, 10.0, 1.0, SILENCE)
    let_pass(db, job, timedelta(minutes=1))
    stood = now_of(db, job).last_progress_update

    leases.pulse(db, job.id, job.fence, 20.0, 1.0, SILENCE)
    same = now_of(db, job)
    leases.pulse(db, job.id, job.fence, None, None, SILENCE)
    silent = now_of(db, job)
    leases.pulse(db, job.id, job.fence, None, 2.0, SILENCE)
    further = now_of(db, job)

    assert (same.progress, same.last_progress_update) == (20.0, stood)
    assert silent == same
    assert (further.progress, further.last_progress_value) == (20.0, 2.0)
    assert further.last_progress_update is not None
    assert stood is not None
    assert further.last_progress_update - stood > timedelta(seconds=59)


def test_a_pulse_tells_whose_job_was_cancelled(db: Database):
    job = running(db)
    cancelled = play(db, job, Cancel(by="ann"))

    assert leases.pulse(db, job.id, job.fence, 50.0, 5.0, SILENCE) is None
    assert now_of(db, job) == cancelled


def test_a_holder_knows_when_others_may_stop_waiting_for_its_lease(db: Database):
    job = running(db)

    fresh = leases.left_s(db, job.id, job.fence, SILENCE)
    let_pass(db, job, timedelta(minutes=4))
    stale = leases.pulse(db, job.id, job.fence, 1.0, 1.0, SILENCE)
    leases.renew(db, "worker", ["worker"], LEASE)
    renewed = leases.left_s(db, job.id, job.fence, SILENCE)

    assert (round(fresh, -1), round(stale, -1), round(renewed, -1)) == (300, 60, 300)


def test_a_holder_knows_when_others_may_take_its_worker_for_dead(db: Database):
    worker = uuid4()
    workers.register(db, worker, name="w", hostname="h", queues=[], slots=1, boot_id=None, pid=1, pid_started=None)
    job = running(db, by=str(worker))

    heard = leases.left_s(db, job.id, job.fence, SILENCE)
    db.run(text("UPDATE workers SET last_heartbeat = last_heartbeat - interval '60 s'"))
    silent = leases.pulse(db, job.id, job.fence, 1.0, 1.0, SILENCE)

    assert (round(heard, -1), round(silent, -1)) == (90, 30)


# -- the reaper ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", Table)
def test_the_reaper_takes_what_has_expired_and_nothing_else(db: Database, table: Table):
    alive, late, ended = (taken(db, table) for _ in range(3))
    play(db, ended, Cancel(by="ann"), table=table)
    for job in (late, ended):
        make_late(db, job, table)

    (reaped,) = reap(db, table)

    assert reaped == now_of(db, late, table)
    assert (reaped.id, reaped.status, reaped.recovery) == (late.id, Status.QUEUED, True)
    assert now_of(db, alive, table) == alive


def test_the_reaper_waits_as_long_as_it_is_told_to(db: Database):
    job = running(db)
    let_pass(db, job, LEASE + timedelta(minutes=1))

    patient = leases.expire_some(db, Table.JOBS, 10, grace=timedelta(minutes=2))
    strict = leases.expire_some(db, Table.JOBS, 10)

    assert patient == []
    assert [each.id for each in strict] == [job.id]


def test_the_reaper_takes_no_more_at_once_than_it_was_asked_for(db: Database):
    for _ in range(3):
        make_late(db, running(db))

    batches = [len(leases.expire_some(db, Table.JOBS, 2)) for _ in range(3)]

    assert batches == [2, 1, 0]


def test_the_reaper_does_not_wait_for_a_row_that_somebody_is_writing(db: Database):
    busy, free = running(db), running(db)
    for job in (busy, free):
        make_late(db, job)

    with db.transaction() as conn:
        lock(conn, busy)
        reaped = reap(db)

    assert [job.id for job in reaped] == [free.id]


def test_nobody_loses_a_lease_in_the_middle_of_a_write(db: Database, another: Another):
    job, people = running(db), another()
    make_late(db, job)
    with ThreadPoolExecutor(1) as pool:
        with db.transaction() as conn:
            wrote = checkpoints.put(Inside(conn), job.id, job.fence, 1, "unit", {})
            reaped = reap(db)
            cancelled = pool.submit(jobs.apply, people, job.id, Cancel(by="ann"))
            until_blocked_or_done(db, cancelled)
            waited = not cancelled.done()

        assert isinstance(cancelled.result(20), Job)
    assert (wrote, reaped, waited) == (True, [], True)
    assert value(db, "SELECT count(*) FROM checkpoints") == 1
