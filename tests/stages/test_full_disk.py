"""Whose fault is a full scratch disk? The machine's: the job waits, and it costs no attempt, whoever was writing."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.errors import ScratchFull
from pipeline.core.job import Stage, Status
from pipeline.media import clip as media
from tests.stages.conftest import Runner


def full(*_args: Any, **_options: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_unit_that_finds_no_room_waits_and_costs_nothing(
    runner: Runner, talkie: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = runner.submit(talkie)
    runner.until(job_id, Stage.CLIP)
    monkeypatch.setattr(media, "make_clip", full)

    runner.step(job_id)

    assert waits_for_room(runner, job_id)


def test_a_manifest_that_finds_no_room_waits_and_costs_nothing(
    runner: Runner, talkie: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = runner.submit(talkie)
    runner.until(job_id, Stage.FINALIZE)
    monkeypatch.setattr(Path, "write_text", full)

    runner.step(job_id)

    assert waits_for_room(runner, job_id)


def waits_for_room(runner: Runner, job_id: Any) -> bool:
    job = runner.job(job_id)
    told = runner.events(job_id, "deferred")
    assert [event["code"] for event in told] == [ScratchFull.code]
    return job.status is Status.QUEUED and job.attempt_count == 0 and job.skip_until is not None
