"""What may be forgotten? What has ended long enough ago, and only where somebody said how long that is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline.core.job import Job, OutputStatus, Status
from pipeline.core.moves import Cancel, Fail, Requeue, Rerender
from pipeline.store import checkpoints, jobs, outputs, prune, workers
from pipeline.store import credits as ledger
from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from tests.store.endings import DAY, HOUR, LONG, REQUEST, assert_healthy, ended, pass_by, tidy
from tests.store.world import (
    TABLES,
    Another,
    Start,
    balance_of,
    claim,
    enqueue,
    enqueue_asr,
    events,
    let_pass,
    lock,
    now_of,
    output,
    play,
    rows,
    running,
    until_blocked_or_done,
    value,
)

# -- what is referred to ---------------------------------------------------------------------------------------------


def test_every_key_of_a_living_generation_is_referred_to_and_no_other(db: Database):
    job = ended(db)
    beside = claim(db, play(db, job, Rerender(by="ann")))
    outputs.delivered(db, job.id, beside.fence, outputs.of(db, job.id, 2)[0].id, "local", files=[{"key": "new"}])
    pass_by(db, play(db, beside, Cancel(by="ann")), LONG)

    with prune.tidying(db, job.id, HOUR) as work:
        assert work is not None
        keep = work.keep

    assert keep == {"local": {f"jobs/{job.id}/g1/a.mp4", f"jobs/{job.id}/g1/m.json"}}


def test_what_a_failed_job_has_delivered_stays_for_the_requeue_that_may_come(db: Database):
    job = running(db, request=REQUEST)
    outputs.delivered(db, job.id, job.fence, outputs.of(db, job.id, 1)[0].id, "local", files=[{"key": "half"}])
    pass_by(db, play(db, job, Fail(fence=job.fence, code="X", reason="y")), LONG)

    with prune.tidying(db, job.id, HOUR) as work:
        assert work is not None
        assert work.keep == {"local": {"half"}}


def test_a_manifest_of_before_its_key_was_noted_is_known_by_its_address(db: Database):
    job = ended(db)
    db.run(text("UPDATE jobs SET context = context #- '{finalize,key}'"))

    with prune.tidying(db, job.id, HOUR) as work:
        assert work is not None
        assert f"jobs/{job.id}/g1/m.json" in work.keep["local"]


def test_when_all_is_cleared_away_the_rows_of_dead_generations_go_too(db: Database):
    job = claim(db, play(db, ended(db), Rerender(by="ann")))
    checkpoints.put(db, job.id, job.fence, 2, "unit", {})
    pass_by(db, play(db, job, Cancel(by="ann")), LONG)

    tidy(db, job)

    assert rows(db, "SELECT DISTINCT generation FROM outputs") == [{"generation": 1}]
    assert value(db, "SELECT count(*) FROM checkpoints") == 0
    assert prune.untidied(db, HOUR, None) == []
    assert_healthy(db)


def test_a_job_is_tidied_once_for_each_of_its_runs(db: Database):
    job = ended(db)
    tidy(db, job)
    pass_by(db, play(db, play(db, job, Rerender(by="ann")), Cancel(by="ann")), LONG)

    assert [each.id for each in prune.untidied(db, HOUR, None)] == [job.id]


@pytest.mark.parametrize("life", ["just ended", "queued", "running", "rerendered", "being written"])
def test_a_job_that_may_still_be_asked_for_is_left_alone(db: Database, another: Another, life: str):
    if life == "just ended":
        job = ended(db, ago=timedelta(minutes=59))
    elif life == "queued":
        job = enqueue(db)
    elif life == "running":
        job = running(db)
    else:
        job = ended(db)
    if life == "rerendered":
        play(db, job, Rerender(by="ann"))
    view = another()
    with db.transaction() as conn:
        if life == "being written":
            lock(conn, job)
        with prune.tidying(view, job.id, HOUR) as work:
            assert work is None


def test_while_a_job_is_tidied_nobody_can_ask_for_it_again(db: Database, another: Another):
    job, view = play(db, enqueue(db), Cancel(by="ann")), another()
    pass_by(db, job, LONG)
    with ThreadPoolExecutor(1) as pool:
        with prune.tidying(db, job.id, HOUR) as work:
            assert work is not None
            again = pool.submit(jobs.apply, view, job.id, Requeue(by="op"))
            until_blocked_or_done(db, again)
            assert not again.done()
            work.is_done = True
        assert isinstance(again.result(20), Job)
    assert now_of(db, job).status is Status.QUEUED


# -- retention -------------------------------------------------------------------------------------------------------


def test_a_forgotten_job_leaves_nothing_but_its_entries(db: Database):
    ledger.grant(db, "ann", 100, reference="r")
    job = ended(db, account="ann", outputs=[output("a", price=10)])
    tidy(db, job)

    assert prune.forget_jobs(db, 30 * DAY, 100, keeps_files=True) == 1

    kept = {table for table in TABLES if table != "outbox" and value(db, f"SELECT count(*) FROM {table}")}
    assert kept == {"accounts", "credit_entries"}
    assert balance_of(db) == 90
    assert_healthy(db)


def test_jobs_that_are_young_not_ended_or_not_tidied_are_not_forgotten(db: Database):
    young, waiting, untidy = ended(db, ago=DAY), enqueue(db), ended(db)
    pass_by(db, waiting, LONG)
    tidy(db, young)

    assert prune.forget_jobs(db, 30 * DAY, 100, keeps_files=True) == 0

    assert value(db, "SELECT count(*) FROM jobs") == len([young, waiting, untidy])


def test_whose_files_are_kept_for_a_time_is_not_forgotten_before_them(db: Database):
    job = ended(db)
    tidy(db, job)

    too_early = prune.forget_jobs(db, 30 * DAY, 100, keeps_files=False)
    prune.expire_files(db, 35 * DAY, 100)
    untidied = prune.forget_jobs(db, 30 * DAY, 100, keeps_files=False)
    tidy(db, job)

    assert (too_early, untidied, prune.forget_jobs(db, 30 * DAY, 100, keeps_files=False)) == (0, 0, 1)


def test_expired_files_are_referred_to_by_nobody_and_the_job_says_so(db: Database):
    old, young = ended(db), ended(db, ago=DAY)
    db.run(text("UPDATE deliveries SET updated_at = clock_timestamp() WHERE job_id = :id"), id=young.id)

    assert prune.expire_files(db, 30 * DAY, 100) == 1
    assert prune.expire_files(db, 30 * DAY, 100) == 0

    with prune.tidying(db, old.id, HOUR) as work:
        assert work is not None
        assert work.keep == {}
    told = {row["job_id"]: row["status"] for row in rows(db, "SELECT job_id, status FROM deliveries")}
    assert told == {old.id: "expired", young.id: "delivered"}
    assert_healthy(db)


def test_a_rerender_after_the_files_expired_makes_all_of_them_anew(db: Database):
    job = ended(db, outputs=[output("a"), output("b")])
    prune.expire_files(db, 30 * DAY, 100)

    play(db, job, Rerender(by="ann", only=("a",)))

    assert [o.status for o in outputs.of(db, job.id, 2)] == [OutputStatus.PENDING] * 2


def test_of_a_shortened_story_both_ends_stay_and_a_later_run_is_told_in_full(db: Database):
    job, young = ended(db), ended(db, ago=DAY)

    assert prune.shorten_stories(db, 30 * DAY, 100) == 1
    assert prune.shorten_stories(db, 30 * DAY, 100) == 0

    assert events(db, job) == ["queued", "completed"]
    assert len(events(db, young)) == 6
    assert_healthy(db)
    play(db, play(db, job, Rerender(by="ann")), Cancel(by="ann"))
    assert events(db, job) == ["queued", "completed", "rerender", "cancelled"]


def test_a_transcription_that_stood_alone_is_forgotten_too(db: Database):
    job = play(db, enqueue_asr(db), Cancel(by="ann"), table=Table.ASR_JOBS)
    enqueue_asr(db)
    let_pass(db, job, LONG, Table.ASR_JOBS)

    assert prune.forget_transcriptions(db, 30 * DAY, 100) == 1

    assert value(db, "SELECT count(*) FROM asr_jobs") == 1


def worker(db: Database, *, silent: timedelta = LONG, gone: bool = True) -> UUID:
    made = uuid4()
    told = {"name": "w", "hostname": "h", "queues": [], "slots": 1, "boot_id": None, "pid": 1, "pid_started": None}
    workers.register(db, made, **told)
    if gone:
        workers.goodbye(db, made)
    db.run(text("UPDATE workers SET last_heartbeat = last_heartbeat - CAST(:s AS interval)"), s=silent)
    return made


def test_dead_workers_are_forgotten_unless_they_have_a_key_or_still_hold_a_job(db: Database):
    keyed, holding, silent = worker(db), worker(db), worker(db, gone=False)
    dead = worker(db)
    db.run(
        text("INSERT INTO api_keys (id, prefix, sha256, role, worker_id) VALUES (:id, 'a', 'a', 'worker', :worker)"),
        id=uuid4(),
        worker=keyed,
    )
    claim(db, enqueue(db), by=str(holding))

    assert prune.forget_workers(db, 30 * DAY, 100) == 1

    left = {row["id"] for row in rows(db, "SELECT id FROM workers")}
    assert left == {keyed, holding, silent}
    assert dead not in left


def test_two_who_prune_at_once_forget_each_job_once(db: Database, another: Another):
    for _ in range(20):
        tidy(db, ended(db))
    views = [another() for _ in range(4)]
    with Start(4) as start:
        forgotten = start.together(
            *(partial(prune.forget_jobs, view, 30 * DAY, 20, keeps_files=True) for view in views)
        )

    assert sum(forgotten) == 20
    assert value(db, "SELECT count(*) FROM jobs") == 0
