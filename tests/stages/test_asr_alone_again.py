"""Does a transcription that was cancelled stop, go on when it is asked for again, and keep to the limits of asr?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pipeline import dispatch, intake, limits, settings, transcriptions, upkeep
from pipeline.core.job import Stage, Status
from pipeline.core.moves import Refusal
from pipeline.media import asr as engines
from pipeline.media.captions import Transcript
from pipeline.processes import wait_until
from pipeline.store import asr, due
from pipeline.store.engine import database
from pipeline.store.jobs import Table
from tests.stages.conftest import Runner
from tests.stages.hearing import Noting
from tests.stages.test_asr import SPEECH
from tests.stages.test_asr_alone import held, row, run


class CancelledIn(Noting):
    """Somebody cancels while it hears this window; it goes on until it is told to stop."""

    def __init__(self, note: Path, asr_job: UUID, window: int) -> None:
        super().__init__(note)
        self._asr_job, self._window = asr_job, window

    def transcribe(self, audio_path: Path, *, check: Callable[[], None], **more: Any) -> Transcript:
        said = super().transcribe(audio_path, **more)
        if len(self.heard) == self._window:
            intake.cancel(self._asr_job, "ann", Table.ASR_JOBS)
            wait_until(lambda: bool(check()), 20)  # type: ignore[func-returns-value]
        return said


def test_one_that_is_cancelled_stops_and_goes_on_in_the_same_window_when_requeued(
    runner: Runner, use: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(ASR_WINDOW_SEC="8", PULSE_SEC="0.05")
    born = intake.transcribe(str(SPEECH))
    first, heir = CancelledIn(tmp_path / "first", born.id, 3), Noting(tmp_path / "second")
    monkeypatch.setattr(engines, "engine", lambda _settings: first)
    answer = run(born.id)
    stopped = row(born.id)
    monkeypatch.setattr(engines, "engine", lambda _settings: heir)

    again = intake.requeue_transcription(born.id, "ann")
    sent = row(born.id).published_at
    run(born.id)

    assert (answer.word, stopped.status) == (Refusal.LEASE_LOST, Status.CANCELLED)
    assert len(first.heard) == 3
    assert (again.attempt_count, again.run) == (0, 2)
    assert sent is not None
    assert row(born.id).status is Status.COMPLETED
    assert heir.heard[0] == first.heard[2]
    assert asr.one(database(), born.id)["transcript"]["text"].split() == first.heard[:2] + heir.heard


def published(*ids: UUID) -> list[bool]:
    return [row(each).published_at is not None for each in ids]


def test_a_limit_of_the_fleet_counts_it_and_sweep_alone_sends_it(
    runner: Runner, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(FLEET_LIMITS="asr=1")
    nudged: list[bool] = []
    monkeypatch.setattr(dispatch, "nudge", lambda: nudged.append(True))
    first, second = (intake.transcribe(str(SPEECH)).id for _ in range(2))
    assert published(first, second) == [False, False]
    assert nudged == [True, True]

    upkeep.sweep()
    assert published(first, second) == [True, False]

    held(first)
    upkeep.sweep()
    assert published(second) == [False]

    intake.cancel(first, "ann", Table.ASR_JOBS)
    upkeep.sweep()
    assert published(second) == [True]


def test_what_is_claimed_while_sweep_counts_makes_no_room_under_a_limit(
    runner: Runner, use: Callable[..., None]
) -> None:
    use(FLEET_LIMITS="asr=1")
    now = settings.current()
    first, second = (intake.transcribe(str(SPEECH)).id for _ in range(2))
    upkeep.sweep()
    seen = due.sight(database(), now.silence())
    held(first)

    assert transcriptions.publish(database(), seen, now) == 0
    assert published(second) == [False]


def test_under_a_limit_the_oldest_goes_first_be_it_a_job_or_not(
    runner: Runner, use: Callable[..., None], talkie: Path
) -> None:
    use(FLEET_LIMITS="asr=1")
    older = intake.transcribe(str(SPEECH)).id
    job = runner.submit(talkie, captions=True)
    runner.until(job, Stage.ASR)
    limits.left_to_sweep(job)
    younger = intake.transcribe(str(SPEECH)).id

    upkeep.sweep()
    assert (published(older, younger), runner.job(job).published_at) == ([True, False], None)

    intake.cancel(older, "ann", Table.ASR_JOBS)
    upkeep.sweep()
    assert runner.job(job).published_at is not None
    assert published(younger) == [False]


def test_a_worker_without_a_place_for_it_lets_it_wait_for_another_message(
    runner: Runner, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(STAGE_LIMITS="asr=1")
    born = intake.transcribe(str(SPEECH)).id
    monkeypatch.setattr(limits, "_lock", lambda _byte: False)  # another process of this worker has the place

    ran = limits.in_turn(Stage.ASR, born, lambda: "ran", Table.ASR_JOBS)

    assert ran is None
    assert published(born) == [False]
