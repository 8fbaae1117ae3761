"""Who wins when two want the same row at the same moment? Exactly one, and the other one learns it."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event, text

from pipeline.core.job import Job, Stage, Status
from pipeline.core.moves import Cancel, Complete, Refusal, Retry
from pipeline.store import jobs
from pipeline.store.engine import Database
from tests.store.world import (
    Another,
    Inside,
    Start,
    a_claim,
    claim,
    enqueue,
    events,
    lock,
    make_late,
    now_of,
    play,
    reap,
    rows,
    running,
    until_blocked_or_done,
    value,
)

CLAIMERS = 16
ROUNDS = 40
RACES = 300


def test_of_sixteen_simultaneous_claims_exactly_one_gets_the_lease(db: Database, another: Another):
    views = [another() for _ in range(CLAIMERS)]
    with Start(CLAIMERS) as start:
        for _ in range(ROUNDS):
            job = enqueue(db)
            claims = [a_claim(job, by=f"worker {n}") for n in range(CLAIMERS)]

            answers = start.together(*(partial(jobs.apply, v, job.id, c) for v, c in zip(views, claims, strict=True)))

            (winner,) = [answer for answer in answers if isinstance(answer, Job)]
            assert [answer for answer in answers if answer is Refusal.HELD] == [Refusal.HELD] * (CLAIMERS - 1)
            assert now_of(db, job).fence == winner.fence
            assert events(db, job) == ["queued", "claimed"]
            assert value(db, "SELECT count(*) FROM job_attempts WHERE job_id = :id", id=job.id) == 1


def test_a_finisher_and_the_reaper_never_both_have_it(db: Database, another: Another):
    finisher, reaper = another(), another()
    ends: list[str] = []
    with Start(2) as start:
        for n in range(RACES):
            job = running(db)
            make_late(db, job)
            # Each round one of the two comes a little later, by another bit, so that both sides win often.
            late = n % 13 - 6
            finished, reaped = start.together(
                partial(_finish, finisher, job, steps=max(late, 0)),
                partial(_reap, reaper, steps=max(-late, 0)),
            )

            after = now_of(db, job)
            told = events(db, job)[2:]
            (attempt,) = rows(db, "SELECT ended_by, ended_at FROM job_attempts WHERE job_id = :id", id=job.id)
            assert [attempt["ended_by"]] == told
            assert after.version == 2
            if isinstance(finished, Job):
                assert (after.stage, after.attempt_count, told) == (Stage.CLIP, 0, ["stage_completed"])
                assert job.id not in [each.id for each in reaped]
            else:
                assert finished is Refusal.LEASE_LOST
                assert (after.stage, after.attempt_count, told) == (Stage.RESOLVE, 1, ["requeued:stale"])
                assert [each.id for each in reaped] == [job.id]
            ends += told
            play(db, after, Cancel(by="the next round"))

    assert set(ends) == {"stage_completed", "requeued:stale"}


def _dawdle(view: Database, steps: int) -> None:
    for _ in range(steps):
        view.run(text("SELECT 1"))


def _reap(view: Database, *, steps: int) -> list[Job]:
    _dawdle(view, steps)
    return reap(view)


def _finish(view: Database, job: Job, *, steps: int) -> Job | Refusal:
    _dawdle(view, steps)
    return jobs.apply(view, job.id, Complete(fence=job.fence), snapshot=job if steps % 2 else None)


def test_a_cancel_and_a_completion_never_both_end_a_job(db: Database, another: Another):
    people, worker = another(), another()
    with Start(2) as start:
        for n in range(40):
            job = running(db, plan=[Stage.FINALIZE])

            cancelled, completed = start.together(
                partial(jobs.apply, people, job.id, Cancel(by="ann")),
                partial(_finish, worker, job, steps=n % 3),
            )

            assert isinstance(cancelled, Job) != isinstance(completed, Job)
            assert events(db, job)[2:] in (["cancelled"], ["stage_completed", "completed"])


def test_the_reaper_takes_a_lease_once_however_many_reapers_there_are(db: Database, another: Another):
    views = [another() for _ in range(4)]
    with Start(4) as start:
        for _ in range(20):
            late = [running(db) for _ in range(3)]
            for job in late:
                make_late(db, job)

            reaped = start.together(*(partial(reap, view) for view in views))

            taken = [job.id for batch in reaped for job in batch] + [job.id for job in reap(db)]
            assert sorted(taken) == sorted(job.id for job in late)
            for job in late:
                play(db, job, Cancel(by="the next round"))


# -- interleavings that always go the same way -----------------------------------------------------------------------


def test_who_decided_on_an_old_row_decides_again(db: Database, another: Another):
    """The version in the write's WHERE: fences cannot tell two queued rows apart."""
    job, late = enqueue(db), another()
    with ThreadPoolExecutor(1) as pool:
        with db.transaction() as conn:
            lock(conn, job)
            answer = pool.submit(jobs.apply, late, job.id, a_claim(job, by="late"))
            until_blocked_or_done(db, answer)
            held = claim(Inside(conn), job, by="early")
            play(Inside(conn), held, Retry(fence=held.fence, code="X", reason="y", delay=timedelta(hours=1)))

        assert answer.result(20) is Refusal.NOT_DUE
    assert events(db, job) == ["queued", "claimed", "retry_scheduled"]
    assert now_of(db, job).status is Status.QUEUED


def test_a_cancel_that_waited_for_a_claim_takes_the_new_fence_away(db: Database, another: Another):
    job, people = enqueue(db), another()
    with ThreadPoolExecutor(1) as pool:
        with db.transaction() as conn:
            lock(conn, job)
            answer = pool.submit(jobs.apply, people, job.id, Cancel(by="ann"))
            until_blocked_or_done(db, answer)
            claim(Inside(conn), job)

        assert isinstance(answer.result(20), Job)
    after = now_of(db, job)
    assert (after.status, after.lease) == (Status.CANCELLED, None)
    assert rows(db, "SELECT ended_by FROM job_attempts") == [{"ended_by": "cancelled"}]


def test_losing_race_after_race_is_an_error_and_not_a_loop(db: Database, monkeypatch: pytest.MonkeyPatch):
    job = enqueue(db)
    old = now_of(db, job)
    play(db, job, Cancel(by="ann"))
    monkeypatch.setattr(jobs, "read", lambda *_: (old, value(db, "SELECT clock_timestamp()")))

    with pytest.raises(RuntimeError, match="lost races"):
        jobs.apply(db, job.id, a_claim(job))


# -- answers that are lost -------------------------------------------------------------------------------------------


class Unplugged:
    """Cuts the connection right after the first statement of a kind has committed, before its answer is read."""

    def __init__(self, victim: Database, killer: Database, marker: str) -> None:
        self.cuts = 0
        self._killer, self._marker = killer, marker
        event.listen(victim.engine, "after_cursor_execute", self._cut)

    def _cut(self, conn: Any, cursor: Any, statement: str, *_: Any) -> None:
        if self.cuts or self._marker not in statement:
            return
        self.cuts += 1
        self._killer.run(text("SELECT pg_terminate_backend(:pid, 5000)"), pid=cursor.connection.info.backend_pid)
        cursor.execute("SELECT 1")  # raises what a client sees whose server has gone


def test_a_claim_whose_answer_was_lost_is_recognised_as_ours(db: Database, another: Another):
    job, worker = enqueue(db), another()
    cable = Unplugged(worker, db, "UPDATE jobs")
    move = a_claim(job)

    answer = jobs.apply(worker, job.id, move)

    assert cable.cuts == 1
    assert isinstance(answer, Job)
    assert answer.fence == move.fence
    assert events(db, job) == ["queued", "claimed"]
    assert now_of(db, job).attempt_count == 1


def test_a_hand_over_whose_answer_was_lost_is_recognised_as_ours(db: Database, another: Another):
    job, worker = running(db), another()
    cable = Unplugged(worker, db, "UPDATE jobs")
    onward = a_claim(job, stage=Stage.CLIP)

    answer = jobs.apply(worker, job.id, Complete(fence=job.fence), onward, snapshot=job)

    assert cable.cuts == 1
    assert isinstance(answer, Job)
    assert (answer.stage, answer.fence) == (Stage.CLIP, onward.fence)
    assert events(db, job) == ["queued", "claimed", "stage_completed", "claimed"]


def test_a_completion_whose_answer_was_lost_is_written_once_and_recognised_as_ours(db: Database, another: Another):
    job, worker = running(db), another()
    cable = Unplugged(worker, db, "UPDATE jobs")

    answer = jobs.apply(worker, job.id, Complete(fence=job.fence), snapshot=job)

    assert cable.cuts == 1
    assert isinstance(answer, Job)  # a lost lease would throw away what the next stage needs
    assert answer.stage is Stage.CLIP
    assert events(db, job) == ["queued", "claimed", "stage_completed"]
    assert now_of(db, job).stage is Stage.CLIP
