"""Is a transcription that belongs to no job found, moved, and asked why it does not run, like a job?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline.core.errors import NoSuchJob
from pipeline.core.job import Job, Outcome, Stage, Status
from pipeline.core.moves import Cancel, Complete, Defer, Fail, Refusal, Requeue, Retry
from pipeline.core.window import Shape, Sight, Silence, rooms, rooms_alone
from pipeline.settings import Settings
from pipeline.store import asr, due, jobs, leases, reads
from pipeline.store import why as store
from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from pipeline.why import Code, Reason, because
from tests.store import world
from tests.store.test_why import breaker, defaults, make_due_for, swept, worker  # noqa: F401 - a fixture too
from tests.store.world import enqueue, events, let_pass, make_late, now_of, play

ALONE = Table.ASR_JOBS
SILENCE = Silence(timedelta(seconds=90), timedelta(seconds=30))


def born(db: Database, **changes: Any) -> Job:
    return world.enqueue_asr(db, **changes)


def running(db: Database, by: str = "worker") -> Job:
    return world.claim(db, born(db), table=ALONE, by=by)


def after(db: Database, job: Job, *moves: Any) -> Job:
    return play(db, job, *moves, table=ALONE)


def failed(db: Database) -> Job:
    job = running(db)
    return after(db, job, Fail(fence=job.fence, code="ASR_FAILED", reason="noise"))


def partial(db: Database) -> Job:
    job = running(db)
    return after(db, job, Complete(fence=job.fence, found={"files": {"a": []}}, outcome=Outcome.PARTIAL))


def of_a_job(db: Database) -> UUID:
    """A transcription that moves with its job."""
    asr_job = uuid4()
    db.run(
        text("INSERT INTO asr_jobs (id, job_id, stage, plan) VALUES (:id, :job, 'asr', '{asr}')"),
        id=asr_job,
        job=enqueue(db).id,
    )
    return asr_job


# -- moves -----------------------------------------------------------------------------------------------------------


def test_whoever_runs_one_that_is_cancelled_can_write_nothing_more(db: Database):
    ghost = running(db)
    assert ghost.fence is not None

    ended = after(db, ghost, Cancel(by="ann"))

    assert (ended.status, ended.fence) == (Status.CANCELLED, None)
    assert leases.pulse(db, ghost.id, ghost.fence, 5, 5, timedelta(minutes=1), ALONE) is None
    assert not asr.remember(db, ghost.id, ghost.fence, "w", {})
    assert jobs.apply(db, ghost.id, Complete(fence=ghost.fence), table=ALONE) is Refusal.LEASE_LOST
    assert [attempt["ended_by"] for attempt in reads.attempts(db, ghost.id)] == ["cancelled"]


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_one_that_is_requeued_has_all_its_attempts_and_what_it_remembers(db: Database, how: str):
    job = running(db)
    assert job.fence is not None
    asr.remember(db, job.id, job.fence, "window-0", {"words": []})
    after(db, job, Fail(fence=job.fence, code="ASR_FAILED", reason="noise") if how == "failed" else Cancel(by="ann"))

    again = after(db, job, Requeue(by="ann", failed_only=True))

    assert (again.status, again.stage, again.attempt_count, again.run) == (Status.QUEUED, Stage.ASR, 0, 2)
    assert (again.published_at, again.fail_code, again.finished_at) == (None, None, None)
    assert asr.records(db, job.id) == {"window-0": {"words": []}}
    assert [taken.id for taken in asr.take_due(db, 8)] == [job.id]
    assert events(db, job)[-2:] == [how, "requeued:manual"]


def test_what_a_target_refused_is_tried_again_and_stays_as_it_was_if_that_fails(db: Database):
    job = partial(db)

    again = world.claim(db, after(db, job, Requeue(by="ann", failed_only=True)), table=ALONE)
    ended = after(db, again, Fail(fence=again.fence, code="ASR_FAILED", reason="noise"))

    assert (ended.status, ended.outcome) == (Status.COMPLETED, Outcome.PARTIAL)
    assert ended.context == job.context


def test_what_lives_or_is_complete_is_not_requeued(db: Database):
    whole = running(db)
    after(db, whole, Complete(fence=whole.fence))

    for job in (born(db), running(db), whole):
        assert jobs.apply(db, job.id, Requeue(by="ann", failed_only=True), table=ALONE) is Refusal.NOT_ALLOWED


def test_one_that_belongs_to_a_job_is_moved_and_shown_by_nobody(db: Database):
    hidden = of_a_job(db)

    with pytest.raises(NoSuchJob, match="There is no transcription"):
        jobs.apply(db, hidden, Cancel(by="ann"), table=ALONE)
    with pytest.raises(NoSuchJob):
        asr.one(db, hidden)
    with pytest.raises(NoSuchJob):
        store.facts(db, hidden, SILENCE, ALONE)
    assert reads.beginning_with(db, hidden.hex, ALONE) == []
    assert asr.newest(db) == []


# -- finding ---------------------------------------------------------------------------------------------------------


def test_the_newest_come_first_and_a_status_chooses(db: Database):
    old, broken, new = born(db), failed(db), born(db)

    assert [row["id"] for row in asr.newest(db)] == [new.id, broken.id, old.id]
    assert [row["id"] for row in asr.newest(db, limit=1)] == [new.id]
    assert [row["id"] for row in asr.newest(db, status="failed")] == [broken.id]


def test_an_id_is_found_by_any_beginning_in_its_own_table_only(db: Database):
    low, high = UUID("3f2a91c0" + "0" * 24), UUID("3f2a91c0" + "f" * 24)
    for each in (low, high, UUID("3f2a91c1" + "0" * 24)):
        born(db, id=each)
    enqueue(db, id=UUID("3f2a91c0" + "7" * 24))

    assert set(reads.beginning_with(db, "3F2A91C0", ALONE)) == {low, high}
    assert reads.beginning_with(db, high.hex, ALONE) == [high]
    assert len(reads.beginning_with(db, "3f2a91c0")) == 1
    assert reads.beginning_with(db, "3f2a91c2", ALONE) == []


# -- why -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ask(db: Database, defaults: Settings) -> Any:  # noqa: F811 - it is that fixture
    def reason_of(job: Job) -> Reason:
        return because(store.facts(db, job.id, defaults.silence(), ALONE), defaults)

    return reason_of


def test_one_that_has_ended_says_how(db: Database, ask: Any):
    ended = [after(db, born(db), Cancel(by="cli:ann")), failed(db), partial(db)]

    told = [ask(job) for job in ended]

    assert [each.code for each in told] == [Code.CANCELLED, Code.FAILED, Code.COMPLETED_PARTLY]
    assert "by cli:ann" in told[0].sentence
    assert told[1].sentence.endswith(": ASR_FAILED: noise.")
    assert told[2].sentence.endswith(": a target refused.")


def test_one_that_runs_names_its_worker(db: Database, ask: Any):
    who = worker(db)
    job = running(db, by=str(who))

    told = ask(job)
    make_late(db, job, ALONE)

    assert told.code is Code.RUNNING
    assert told.sentence.startswith("It runs asr on ironclip@a for ")
    assert ask(job).code is Code.LEASE_OVER


def test_one_that_must_wait_says_for_what(db: Database, ask: Any):
    later, sick = running(db), running(db)
    after(db, later, Retry(fence=later.fence, code="ASR_BAD_ANSWER", reason="?", delay=timedelta(minutes=5)))
    waits = {"service": "asr:whisper", "delay": timedelta(minutes=5), "max_wait": timedelta(days=1)}
    after(db, sick, Defer(fence=sick.fence, code="ASR_DOWN", reason="away", **waits))
    deferred = ask(sick)
    breaker(db, "open", "asr:whisper")

    assert ask(later).sentence == "It tries asr again in 5 min after ASR_BAD_ANSWER, attempt 2 of 3."
    assert (deferred.code, deferred.facts["service"]) == (Code.DEFERRED, "asr:whisper")
    assert ask(sick).code is Code.SERVICE_DOWN
    assert "; the transcription waits until " in ask(sick).sentence


def test_without_a_worker_for_its_queue_it_says_so(db: Database, ask: Any):
    worker(db, "io")

    assert ask(born(db)).sentence == (
        "No live worker serves its queue media for asr (other queues have 1 worker): none was heard from within 90 s."
    )


def test_in_its_queue_it_comes_after_jobs_too_and_they_after_it(db: Database, ask: Any, defaults: Settings):  # noqa: F811
    worker(db, slots=2)
    running(db, by=str(worker(db, slots=1)))
    enqueue(db, plan=[Stage.CLIP], published=True)
    alone = born(db)
    asr.take_due(db, 8)
    last = enqueue(db, plan=[Stage.ASR], published=True)

    of_job = because(store.facts(db, last.id, defaults.silence()), defaults)

    assert ask(alone).sentence == "It is number 2 in queue media, behind 1 other, with 1 of 3 live slots busy."
    assert of_job.sentence == "It is number 3 in queue media, behind 2 others, with 1 of 3 live slots busy."


def test_one_without_room_tells_how_many_transcriptions_come_first(db: Database, ask: Any):
    worker(db, slots=1)
    swept(db)
    several = [born(db) for _ in range(10)]
    asr.take_due(db, 8)
    enqueue(db, plan=[Stage.CLIP])  # has a window of its own

    told = ask(several[-1])

    assert told.code is Code.BACKLOG
    assert "comes after 1 transcription by priority and age; queue media has 8 messages" in told.sentence


def test_one_that_the_broker_did_not_take_says_so_whatever_jobs_wait_for(db: Database, ask: Any):
    worker(db)
    for _ in range(12):  # a job at asr would be held back
        enqueue(db, plan=[Stage.FINALIZE], published=True)
    job = born(db)
    let_pass(db, job, timedelta(seconds=9), ALONE)
    make_due_for(db, job, 9, ALONE)
    swept(db)

    assert ask(job).code is Code.BROKER_AWAY


def test_one_that_a_limit_keeps_back_says_so(db: Database, defaults: Settings):  # noqa: F811
    worker(db, slots=4)
    swept(db)
    world.claim(db, enqueue(db, plan=[Stage.ASR]))
    job = born(db)

    limited = defaults.model_copy(update={"fleet_limits": "asr=1"})
    told = because(store.facts(db, job.id, limited.silence(), ALONE), limited)

    assert told.code is Code.LIMITED
    assert told.sentence.startswith("1 run asr or are on their way to it, and 1 may at once (")


# -- limits ----------------------------------------------------------------------------------------------------------

SHAPE = Shape(per_slot=4, at_least=8, fleet={Stage.ASR: 3})


def test_jobs_and_transcriptions_count_together_where_asr_is_limited():
    sight = Sight(workers={"media": {8: 1}}, running={Stage.ASR: 1}, alone_published=1)

    assert rooms(sight, SHAPE).stages[Stage.ASR] == rooms_alone(sight, SHAPE).stages[Stage.ASR] == 1
    assert rooms_alone(sight, Shape(per_slot=4, at_least=8, per_worker={Stage.ASR: 2})).stages[Stage.ASR] == 0


def test_transcriptions_fill_no_window_of_jobs_nor_jobs_theirs():
    shape = Shape(per_slot=4, at_least=8)
    sight = Sight(workers={"media": {2: 1}, "io": {2: 1}}, published={Stage.CLIP: 8}, alone_published=6)

    assert rooms_alone(sight, shape).stages[Stage.ASR] == 2
    assert rooms(Sight(workers=sight.workers, alone_published=8), shape).queues["media"] == 8


def test_those_that_stand_alone_are_counted_and_those_of_jobs_are_not(db: Database):
    running(db)
    born(db)
    asr.take_due(db, 8)
    db.run(text("UPDATE asr_jobs SET published_at = clock_timestamp() WHERE id = :id"), id=of_a_job(db))

    seen = due.sight(db, SILENCE)

    assert (seen.alone_published, seen.alone_running) == (1, 1)
    assert (seen.published, seen.running) == ({}, {})


def test_the_oldest_of_jobs_and_transcriptions_is_known(db: Database):
    assert not asr.is_older(db)
    job = enqueue(db, plan=[Stage.ASR])
    alone = born(db)
    assert not asr.is_older(db)

    let_pass(db, alone, timedelta(minutes=1), ALONE)
    assert asr.is_older(db)

    let_pass(db, job, timedelta(minutes=2))
    assert not asr.is_older(db)
    assert now_of(db, alone, ALONE).status is Status.QUEUED
