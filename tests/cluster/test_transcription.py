"""Does a transcription that belongs to no job survive what a job survives, with real workers?"""

from __future__ import annotations

from pathlib import Path

import redis

from pipeline import intake
from pipeline.core.job import Job, Status
from pipeline.media.sample import SPEECH
from pipeline.store import asr, jobs, reads
from pipeline.store.jobs import Table
from tests.cluster.system import System, wait_for


def row(system: System, born: Job) -> Job:
    return jobs.read(system.db, born.id, Table.ASR_JOBS)[0]


def test_a_child_that_dies_in_it_gives_it_back_and_another_one_goes_on(system: System, tmp_path: Path) -> None:
    note = tmp_path / "crashed"
    system.worker(IRONCLIP_CRASH_AT="unit-recorded", IRONCLIP_CRASH_NOTE=str(note), ASR_WINDOW_SEC="8")
    born = intake.transcribe(str(SPEECH))
    wait_for("the crash", note.exists)

    wait_for("its end", lambda: row(system, born).is_final)

    ended = row(system, born)
    assert (ended.status, ended.outcome) == (Status.COMPLETED, "full")
    said = asr.one(system.db, born.id)["transcript"]["text"]
    assert all(part in said for part in ("Welcome to our", "takes a long video", "have a good day"))
    assert [a["ended_by"] for a in reads.attempts(system.db, born.id)] == ["worker_lost", "stage_completed"]
    assert sorted(Path(name).suffix for name in system.published()) == [".json", ".srt", ".vtt"]


def test_a_message_that_the_broker_lost_is_sent_again(system: System) -> None:
    born = intake.transcribe(str(SPEECH))
    assert row(system, born).published_at is not None
    with redis.Redis.from_url(system.env["BROKER_URL"]) as client:
        client.flushall()
    system.beat(wait=False)

    system.worker()

    wait_for("its end", lambda: row(system, born).is_final)
    assert row(system, born).status is Status.COMPLETED
    assert len(reads.attempts(system.db, born.id)) == 1
