"""What does one move write, all at once?"""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from pipeline.core.errors import NoSuchJob
from pipeline.core.job import Job, Stage, Status
from pipeline.core.moves import Cancel, Complete, Expire, Fail, Refusal, Release, Retry
from pipeline.store import checkpoints, jobs, leases, outputs
from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from tests.store.world import (
    LEASE,
    SILENCE,
    a_claim,
    advance,
    claim,
    enqueue,
    enqueue_asr,
    events,
    let_pass,
    now_of,
    outputs_of,
    play,
    rows,
    running,
    value,
)

SOON = timedelta(seconds=10)


def attempts(db: Database, job: Job) -> list[tuple[str, int, str, str | None, bool]]:
    told = rows(db, "SELECT * FROM job_attempts WHERE job_id = :id ORDER BY started_at", id=job.id)
    return [(r["stage"], r["attempt"], r["worker"], r["ended_by"], r["ended_at"] is not None) for r in told]


def test_a_claim_writes_row_event_and_attempt_in_one_commit(db: Database):
    job = enqueue(db)

    held = claim(db, job, by="ann")

    assert now_of(db, job) == held
    assert (held.status, held.version, held.attempt_count) == (Status.PROCESSING, 1, 1)
    assert events(db, job) == ["queued", "claimed"]
    assert attempts(db, job) == [("resolve", 1, "ann", None, False)]


def test_an_ended_attempt_says_how(db: Database):
    job = running(db)

    play(db, job, Retry(fence=job.fence, code="X", reason="y", delay=timedelta(0)))
    again = claim(db, now_of(db, job), by="bob")
    play(db, again, Complete(fence=again.fence))

    assert attempts(db, job) == [
        ("resolve", 1, "worker", "retry_scheduled", True),
        ("resolve", 2, "bob", "stage_completed", True),
    ]


def test_a_time_in_a_move_is_counted_from_the_moment_of_writing(db: Database):
    job = running(db)
    assert job.lease is not None

    waits = play(db, job, Retry(fence=job.fence, code="X", reason="y", delay=timedelta(minutes=3)))
    _, now = jobs.read(db, job.id)

    assert waits.next_earliest_run_at is not None
    assert abs(waits.next_earliest_run_at - now - timedelta(minutes=3)) < SOON
    assert abs(job.lease.expires_at - now - LEASE) < SOON
    assert abs(job.lease.deadline_at - now - timedelta(hours=2)) < SOON


def test_there_is_no_move_for_a_job_that_is_not_there(db: Database):
    with pytest.raises(NoSuchJob):
        jobs.apply(db, uuid4(), Cancel(by="ann"))


def test_a_refused_move_leaves_no_trace(db: Database):
    job = running(db)

    answer = jobs.apply(db, job.id, a_claim(job, by="bob"))

    assert answer is Refusal.HELD
    assert now_of(db, job) == job
    assert events(db, job) == ["queued", "claimed"]
    assert value(db, "SELECT count(*) FROM job_attempts") == 1


def test_a_holder_completes_in_one_round_trip_with_the_snapshot_of_its_claim(db: Database, monkeypatch):
    job = running(db)
    statements = []
    run = db.run
    monkeypatch.setattr(db, "run", lambda statement, **params: statements.append(statement) or run(statement, **params))

    after = jobs.apply(db, job.id, Complete(fence=job.fence), snapshot=job)

    assert isinstance(after, Job)
    assert (after.status, after.stage) == (Status.QUEUED, Stage.CLIP)
    assert len(statements) == 1


def test_a_stale_snapshot_is_read_again_and_refused(db: Database):
    job = running(db)
    play(db, job, Cancel(by="ann"))

    answer = jobs.apply(db, job.id, Complete(fence=job.fence), snapshot=job)

    assert answer is Refusal.LEASE_LOST
    assert now_of(db, job).status is Status.CANCELLED


def test_a_refusal_speaks_of_the_row_and_not_of_an_old_snapshot(db: Database):
    job = running(db, plan=[Stage.FINALIZE])
    play(db, job, Cancel(by="ann"))

    answer = jobs.apply(db, job.id, Complete(fence=job.fence), a_claim(job), snapshot=job)

    assert answer is Refusal.LEASE_LOST


def test_what_a_heartbeat_wrote_meanwhile_survives_a_move_that_does_not_speak_of_it(db: Database):
    job = running(db)
    leases.pulse(db, job.id, job.fence, 40.0, 123.0, SILENCE)

    after = jobs.apply(db, job.id, Complete(fence=job.fence), snapshot=job)

    assert isinstance(after, Job)
    assert after.last_progress_value == 123.0


@pytest.mark.parametrize("with_snapshot", [True, False])
def test_completing_and_claiming_the_next_stage_can_be_one_commit(db: Database, with_snapshot: bool):
    job = running(db, by="ann")
    let_pass(db, job, timedelta(minutes=4))
    aged = now_of(db, job)
    next_claim = a_claim(job, by="ann", stage=Stage.CLIP)

    after = jobs.apply(db, job.id, Complete(fence=job.fence), next_claim, snapshot=aged if with_snapshot else None)

    assert isinstance(after, Job)
    assert (after.status, after.stage, after.attempt_count) == (Status.PROCESSING, Stage.CLIP, 1)
    assert after.fence == next_claim.fence
    told = rows(db, "SELECT type, stage, attempt FROM job_events WHERE job_id = :id ORDER BY id", id=job.id)
    assert [(row["type"], row["stage"], row["attempt"]) for row in told] == [
        ("queued", "resolve", 0),
        ("claimed", "resolve", 1),
        ("stage_completed", "resolve", 1),
        ("claimed", "clip", 1),
    ]
    assert attempts(db, job) == [
        ("resolve", 1, "ann", "stage_completed", True),
        ("clip", 1, "ann", None, False),
    ]


@pytest.mark.parametrize("with_snapshot", [True, False])
def test_an_execution_begins_at_its_own_claim_even_when_it_was_handed_over(db: Database, with_snapshot: bool):
    job = running(db)
    let_pass(db, job, timedelta(minutes=4))
    aged = now_of(db, job)

    after = jobs.apply(
        db,
        job.id,
        Complete(fence=job.fence),
        a_claim(job, stage=Stage.CLIP),
        snapshot=aged if with_snapshot else None,
    )

    assert isinstance(after, Job)
    assert after.lease is not None
    _, now = jobs.read(db, job.id)
    for moment in (after.processing_started_at, after.last_heartbeat_at, after.last_progress_update):
        assert moment is not None
        assert abs(now - moment) < SOON
    assert abs(after.lease.expires_at - now - LEASE) < SOON


def test_a_new_lease_is_written_whole_even_when_its_times_are_those_of_the_old_one(db: Database):
    job = running(db)
    assert job.lease is not None
    began = job.processing_started_at
    # All of the claim's clock readings fell into one microsecond, and the stage took four minutes.
    db.run(
        jobs.text(
            "UPDATE jobs SET lease_expires_at = processing_started_at + interval '5 min',"
            " deadline_at = processing_started_at + interval '2 h', last_heartbeat_at = processing_started_at,"
            " last_progress_update = processing_started_at WHERE id = :id"
        ),
        id=job.id,
    )
    snapshot = now_of(db, job)
    assert snapshot.processing_started_at == began
    let_pass(db, job, timedelta(minutes=4))

    after = jobs.apply(db, job.id, Complete(fence=job.fence), a_claim(job, stage=Stage.CLIP), snapshot=snapshot)

    assert isinstance(after, Job)
    assert after.lease is not None
    _, now = jobs.read(db, job.id)
    assert abs(after.lease.expires_at - now - LEASE) < SOON
    assert abs(after.lease.deadline_at - now - timedelta(hours=2)) < SOON


def test_the_next_link_is_as_old_as_the_completion_that_gave_it(db: Database):
    job = claim(db, advance(db, running(db)))
    # The last completion and this claim were one commit, in one microsecond.
    db.run(jobs.text("UPDATE jobs SET published_at = processing_started_at WHERE id = :id"), id=job.id)
    snapshot = now_of(db, job)
    let_pass(db, job, timedelta(minutes=4))

    after = jobs.apply(db, job.id, Complete(fence=job.fence), snapshot=snapshot)

    assert isinstance(after, Job)
    _, now = jobs.read(db, job.id)
    assert after.published_at is not None
    assert abs(now - after.published_at) < SOON


def test_the_same_code_moves_a_transcription_that_stands_alone(db: Database):
    job = enqueue_asr(db, max_attempts=1)

    held = claim(db, job, table=Table.ASR_JOBS)
    failed = play(db, held, Fail(fence=held.fence, code="ASR_FAILED", reason="noise"), table=Table.ASR_JOBS)

    assert (failed.status, failed.fail_code) == (Status.FAILED, "ASR_FAILED")
    told = rows(db, 'SELECT type, "table", data FROM job_events WHERE job_id = :id ORDER BY id', id=job.id)
    assert [(row["type"], row["table"], row["data"]["table"]) for row in told] == [
        ("claimed", "asr_jobs", "asr_jobs"),
        ("failed", "asr_jobs", "asr_jobs"),
    ]


def test_an_event_tells_which_table_it_speaks_of(db: Database):
    job = running(db, max_attempts=1)
    let_pass(db, job, LEASE)

    play(db, job, Expire())

    data = value(db, "SELECT data FROM job_events WHERE job_id = :id AND type = 'failed'", id=job.id)
    assert (data["type"], data["table"]) == ("reaper:failed(timeout)", "jobs")
    assert data["details"] == {"reason": "lease_expired", "locked_by": "worker"}


@pytest.mark.parametrize("text", ["a\0b", "half \ud83d of a face", "\\u0000", "ünïcode 🎬"])
def test_whatever_a_tool_said_can_be_written_down(db: Database, text: str):
    job = running(db, max_attempts=1)
    (output,) = outputs_of(db, job)

    checkpoints.put(db, job.id, job.fence, 1, "unit", {"said": text})
    outputs.record(db, job.id, job.fence, output, outputs.OutputStatus.FAILED, error_code="X", error_message=text)
    after = play(db, job, Retry(fence=job.fence, code="X", reason=text, delay=timedelta(0)))

    shown = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    assert after.fail_reason == f"failed after 1 attempts: X: {shown}"
    assert after.error_history[-1]["reason"] == shown
    assert checkpoints.of(db, job.id, 1) == {"unit": {"said": shown}}
    assert outputs.of(db, job.id, 1)[0].error_message == shown


def test_a_number_that_is_none_is_written_as_nothing(db: Database):
    job = running(db)

    after = play(db, job, Complete(fence=job.fence, found={"fps": float("nan"), "size": [float("inf"), 1.5]}))

    assert after.context == {"resolve": {"fps": None, "size": [None, 1.5]}}


def test_every_move_is_told_when_it_happened_by_the_databases_clock(db: Database):
    before = value(db, "SELECT clock_timestamp()")

    job = running(db)
    play(db, job, Release(fence=job.fence))

    told = [row["at"] for row in rows(db, "SELECT at FROM job_events WHERE job_id = :id ORDER BY id", id=job.id)]
    assert before <= told[0] <= told[-1] <= value(db, "SELECT clock_timestamp()")
    assert told == sorted(told)
    assert told[0] > datetime(2020, 1, 1, tzinfo=UTC)
