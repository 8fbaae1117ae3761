"""Does a transcription that belongs to no job live like one: claimed, renewed, killed, resumed, refused, delivered?"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import pytest
from sqlalchemy import text

from pipeline import dispatch, intake, settings, upkeep
from pipeline import runner as running
from pipeline.core.errors import AsrDown, AsrFailed, BadRequest, BrokerUnavailable, LeaseLost
from pipeline.core.job import Job, Stage, Status
from pipeline.core.moves import Claim, Refusal, Release
from pipeline.heartbeat import Pulse
from pipeline.media import asr as engines
from pipeline.processes import wait_until
from pipeline.runner import Answer, Delivery, run_stage
from pipeline.store import asr, jobs, leases, reads
from pipeline.store.engine import database
from pipeline.store.jobs import Table
from tests.stages import hearing
from tests.stages.conftest import Runner
from tests.stages.hearing import Noting
from tests.stages.test_asr import SPEECH, Saying
from tests.store.world import let_pass


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | Exception], None]:
    return lambda said: monkeypatch.setattr(engines, "engine", lambda _settings: Saying(said))


def row(asr_job: UUID) -> Job:
    return jobs.read(database(), asr_job, Table.ASR_JOBS)[0]


def run(asr_job: UUID, delivery: Delivery | None = None) -> Answer:
    return run_stage(Stage.ASR, asr_job, delivery or Delivery("here", str(uuid4())), Table.ASR_JOBS)


def held(asr_job: UUID) -> Job:
    claim = Claim(stage=Stage.ASR, holder="nobody", fence=uuid4(), lease=timedelta(minutes=5), sla_factor=12)
    claimed = jobs.apply(database(), asr_job, claim, table=Table.ASR_JOBS)
    assert isinstance(claimed, Job)
    return claimed


def test_a_file_becomes_captions_at_its_target(runner: Runner, say: Callable[[str | Exception], None]) -> None:
    say("Hello there.")
    born = intake.transcribe(str(SPEECH))

    answer = run(born.id)

    shown = asr.one(database(), born.id)
    assert (answer.word, shown["status"], shown["outcome"]) == ("completed", "completed", "full")
    assert shown["transcript"]["text"] == "Hello there."
    files = shown["context"]["asr"]["files"]["local"]
    assert sorted(Path(file["key"]).suffix for file in files) == [".json", ".srt", ".vtt"]
    assert sorted(path.name for path in runner.objects()) == sorted(Path(file["key"]).name for file in files)
    assert all(path.name.startswith("sentences-") for path in runner.objects())
    assert list((runner.scratch / "jobs").iterdir()) == []
    told = [event["type"] for event in reads.events(database(), born.id)]
    assert told == ["queued", "claimed", "stage_completed", "completed"]


def test_its_message_is_sent_at_once_and_its_deadline_follows_from_its_length(
    runner: Runner, use: Callable[..., None]
) -> None:
    use(ASR_SLA_FACTOR="100")
    born = intake.transcribe(str(SPEECH))

    assert row(born.id).published_at is not None
    assert row(born.id).expected_duration_ms == pytest.approx(42_465, abs=100)
    seen = jobs.decide(row(born.id), [_claim(100)], row(born.id).published_at)  # type: ignore[arg-type]
    assert not isinstance(seen, Refusal)
    lease, began = seen.job.lease, seen.job.processing_started_at
    assert lease is not None
    assert began is not None
    assert (lease.deadline_at - began).total_seconds() == pytest.approx(4246, abs=10)


def _claim(sla: float) -> Claim:
    return Claim(stage=Stage.ASR, holder="h", fence=uuid4(), lease=timedelta(minutes=5), sla_factor=sla)


def test_a_kill_in_the_seventh_window_costs_the_seventh_window(
    runner: Runner,
    env: dict[str, str],
    use: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(ASR_WINDOW_SEC="4")
    born = intake.transcribe(str(SPEECH))
    delivery = Delivery("here", str(uuid4()))
    first = hearing.live(
        {**env, "ASR_WINDOW_SEC": "4"}, born.id, delivery, tmp_path / "first", dies_at=7, table=Table.ASR_JOBS
    )
    first.join(60)
    assert first.exitcode == -signal.SIGKILL
    running.crashed(born.id, delivery, "killed", Table.ASR_JOBS)
    heir = Noting(tmp_path / "second")
    monkeypatch.setattr(engines, "engine", lambda _settings: heir)

    run(born.id)

    before = Noting(tmp_path / "first").heard
    assert row(born.id).status is Status.COMPLETED
    assert heir.heard[0] == before[6]
    assert asr.one(database(), born.id)["transcript"]["text"].split() == before[:6] + heir.heard


def test_a_second_message_runs_nothing(runner: Runner, say: Callable[[str | Exception], None]) -> None:
    say("Hello.")
    born = intake.transcribe(str(SPEECH))
    owner = held(born.id)

    assert run(born.id).word == Refusal.HELD
    assert row(born.id).fence == owner.fence


def test_a_ghost_can_neither_remember_nor_tell_nor_finish(runner: Runner) -> None:
    born = intake.transcribe(str(SPEECH))
    ghost = held(born.id)
    assert ghost.fence is not None
    running.crashed(born.id, Delivery("nobody", "other"), "not its delivery", Table.ASR_JOBS)
    assert row(born.id).fence == ghost.fence
    let_pass(database(), ghost, timedelta(minutes=6), Table.ASR_JOBS)
    assert leases.expire_some(database(), Table.ASR_JOBS, 10)

    assert not asr.remember(database(), born.id, ghost.fence, "w", {})
    assert not asr.transcribed(database(), born.id, ghost.fence, {})
    assert leases.pulse(database(), born.id, ghost.fence, 5, 5, timedelta(minutes=1), Table.ASR_JOBS) is None
    assert asr.records(database(), born.id) == {}


def test_the_pulse_of_its_holder_tells_how_far_it_is_and_when_it_is_lost(
    runner: Runner, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(PULSE_SEC="0.05")
    monkeypatch.setattr("pipeline.heartbeat.WRITE_EVERY_S", 0.0)
    born = intake.transcribe(str(SPEECH))
    holder = held(born.id)

    with Pulse(database(), holder, settings.current(), Table.ASR_JOBS) as pulse:
        pulse.progress(np.float64(40), np.float64(17.0))  # as an engine may say it
        assert wait_until(lambda: row(born.id).last_progress_value == 17.0, 20)
        assert holder.fence is not None
        jobs.apply(database(), born.id, Release(fence=holder.fence), table=Table.ASR_JOBS)
        assert wait_until(lambda: _is_lost(pulse), 20)


def _is_lost(pulse: Pulse) -> bool:
    try:
        pulse.check()
    except LeaseLost:
        return True
    return False


def test_one_that_stands_still_is_stopped(runner: Runner, use: Callable[..., None]) -> None:
    use(DATABASE_GRACE_SEC="0")
    born = intake.transcribe(str(SPEECH))
    holder = held(born.id)
    let_pass(database(), holder, timedelta(minutes=11), Table.ASR_JOBS)
    database().run(
        text("UPDATE asr_jobs SET lease_expires_at = clock_timestamp() + interval '5 min' WHERE id = :id"), id=born.id
    )

    assert upkeep.stalls().stopped == [str(born.id)]
    assert (row(born.id).status, row(born.id).attempt_count) == (Status.QUEUED, 1)


def test_what_is_wrong_with_it_fails_it_and_what_is_down_lets_it_wait(
    runner: Runner, say: Callable[[str | Exception], None], silent: Path
) -> None:
    broken, waiting, mute = (intake.transcribe(str(path)).id for path in (SPEECH, SPEECH, silent))

    say(AsrFailed("noise"))
    run(broken)
    say(AsrDown("away", service="asr:whisper"))
    run(waiting)
    run(mute)

    assert (row(broken).status, row(broken).fail_code) == (Status.FAILED, "ASR_FAILED")
    assert (row(waiting).waiting_on, row(waiting).attempt_count) == ("asr:whisper", 0)
    assert row(mute).fail_code == "SOURCE_UNREADABLE"


def test_a_service_that_is_back_wakes_it_and_sweep_sends_it(
    runner: Runner, say: Callable[[str | Exception], None]
) -> None:
    born = intake.transcribe(str(SPEECH))
    say(AsrDown("away", service="asr:whisper"))
    run(born.id)
    upkeep.sweep()
    assert row(born.id).published_at is None

    jobs.wake(database(), "asr:whisper")
    upkeep.sweep()

    assert row(born.id).published_at is not None


def test_without_a_broker_it_waits_and_nobody_gets_an_error(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_job: Job) -> None:
        raise BrokerUnavailable("away")

    real = dispatch.start_transcription
    monkeypatch.setattr(dispatch, "start_transcription", away)
    born = intake.transcribe(str(SPEECH))
    assert row(born.id).published_at is None

    monkeypatch.setattr(dispatch, "start_transcription", real)
    upkeep.sweep()

    assert row(born.id).published_at is not None


def test_only_a_few_are_on_their_way_at_once(runner: Runner, use: Callable[..., None]) -> None:
    use(WINDOW_MIN="2")
    several = [intake.transcribe(str(SPEECH), priority=priority) for priority in ("low", "low", "low", "high")]

    sent = [row(born.id).published_at is not None for born in several]

    assert sent == [True, True, False, False]
    held(several[0].id)
    upkeep.sweep()
    assert [row(born.id).published_at is not None for born in several[2:]] == [False, True]


def test_a_message_that_a_marker_has_overtaken_is_sent_again(runner: Runner) -> None:
    born = intake.transcribe(str(SPEECH))
    assert row(born.id).published_at is not None
    database().run(
        text("""INSERT INTO queue_markers (queue, sent, seen, sent_at, seen_at, covered_until)
                VALUES ('media', 1, 1, clock_timestamp(), clock_timestamp() - interval '1 min',
                        clock_timestamp() + interval '1 min')""")
    )
    first = row(born.id)

    swept = upkeep.sweep()

    assert swept.lost == 1
    assert row(born.id).published_at != first.published_at
    assert replace(row(born.id), published_at=None) == replace(first, published_at=None)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"file": "/no/such/file.mp4"}, "SOURCE_MISSING"),
        ({"file": str(SPEECH), "targets": ["nowhere"]}, "UNKNOWN_TARGET"),
        ({"file": str(SPEECH), "language": "de"}, "ASR_LANGUAGE_UNSUPPORTED"),
        ({"file": str(SPEECH), "priority": "urgent"}, "BAD_PRIORITY"),
    ],
)
def test_what_cannot_be_done_is_refused_and_leaves_no_row(runner: Runner, asked: dict[str, str], reason: str) -> None:
    with pytest.raises(BadRequest) as refused:
        intake.transcribe(**asked)  # type: ignore[arg-type]

    assert refused.value.reason == reason
    assert database().run(text("SELECT 1 FROM asr_jobs")) == []
