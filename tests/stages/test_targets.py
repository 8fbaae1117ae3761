"""How does a job deliver to many targets, of which some are down, refuse or break? Each target stands alone.

The servers are real; the wires between us and them note everything that is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from posixpath import dirname, normpath
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline import intake, upkeep
from pipeline.core.job import Stage, Status
from pipeline.core.output import File, Output
from pipeline.stages.delivering import published
from pipeline.store import breakers, outputs
from pipeline.store.engine import database
from tests.delivery.places import Bucket, Remote
from tests.delivery.servers import Sshd, Weed, sshd, weed
from tests.stages.conftest import Runner
from tests.stages.test_services import make_due, open_and_due

__all__ = ["sshd", "weed"]  # fixtures

Use = Callable[..., None]
ALL = ["local", "bucket", "remote", "fourth", "fifth"]


@dataclass(frozen=True)
class Five:
    """Five targets of a job: a folder, a bucket, SFTP, a second bucket and a second folder."""

    bucket: Bucket
    remote: Remote
    fourth: Bucket
    fifth: Path

    @property
    def asked(self) -> tuple[int, int]:
        """How often the second and the third were asked for anything."""
        return len(self.bucket.wire.asked), self.remote.wire.connections

    @property
    def puts(self) -> list[str]:
        return [request for request in self.bucket.wire.asked if request.startswith(("PUT", "POST"))]


@pytest.fixture
def five(weed: Weed, sshd: Sshd, use: Use, tmp_path: Path) -> Iterator[Five]:
    fifth = tmp_path / "fifth"
    fifth.mkdir()
    made = Five(Bucket(weed, "bucket"), Remote(sshd, "remote"), Bucket(weed, "fourth", bucket="ironclip-fourth"), fifth)
    told = tmp_path / "targets.toml"
    folder = f'[targets.fifth]\nkind = "file"\npath = "{fifth}"\n'
    told.write_text(made.bucket.toml + made.remote.toml + made.fourth.toml + folder)
    use(TARGETS_FILE=str(told))
    yield made
    for place in (made.bucket, made.remote, made.fourth):
        place.close()


def said(runner: Runner, job: UUID) -> dict[str, str]:
    """What each target has said to the clip."""
    (output,) = [o for o in runner.outputs(job).values() if o["kind"] == "video"]
    return {d["target"]: d["error_code"] or d["status"] for d in output["deliveries"]}


def lying(five: Five, runner: Runner) -> dict[str, int]:
    """How many clips lie at each target."""
    places = {
        "local": [str(path) for path in runner.objects()],
        "bucket": five.bucket.everything(),
        "remote": five.remote.everything(),
        "fourth": five.fourth.everything(),
        "fifth": [path.name for path in five.fifth.rglob("*")],
    }
    return {name: sum(each.endswith(".mp4") for each in files) for name, files in places.items()}


def test_the_fourth_of_five_targets_fails_for_a_while_and_the_others_are_not_touched_again(
    runner: Runner, silent: Path, five: Five
) -> None:
    job = runner.submit(silent, targets=ALL)
    runner.until(job, Stage.UPLOAD)
    five.fourth.wire.cut()

    runner.step(job)

    after = runner.job(job)
    assert (after.status, after.stage, after.attempt_count) == (Status.QUEUED, Stage.UPLOAD, 0)
    assert after.waiting_on == "target:fourth"
    assert said(runner, job) == dict.fromkeys(["local", "bucket", "remote", "fifth"], "delivered")
    before = {path: path.stat() for path in [*runner.objects(), *five.fifth.rglob("*.mp4")]}
    asked = five.asked

    make_due(job)
    runner.step(job)  # it is still away
    five.fourth.wire.mend()
    make_due(job)
    runner.step(job)

    assert runner.job(job).stage is Stage.FINALIZE
    assert said(runner, job) == dict.fromkeys(ALL, "delivered")
    assert five.asked == asked
    assert {path: path.stat() for path in before} == before  # not even read: the time of the last access is the same
    shown = runner.finish(job)
    assert (shown["outcome"], lying(five, runner)) == ("full", dict.fromkeys(ALL, 1))
    assert len([put for put in five.puts if ".mp4" in put]) == 1


def test_a_target_whose_breaker_is_open_is_asked_by_the_probe_alone_until_it_is_back(
    runner: Runner, silent: Path, five: Five
) -> None:
    job = runner.submit(silent, targets=["local", "fourth", "remote"])
    runner.until(job, Stage.UPLOAD)
    open_and_due("target:fourth")
    open_and_due("target:remote")

    runner.step(job)

    assert (five.fourth.wire.asked, five.remote.wire.connections) == ([], 0)
    assert sorted(upkeep.probe().up) == ["target:fourth", "target:remote"]
    assert five.fourth.everything() == five.remote.everything() == []
    assert runner.finish(job)["outcome"] == "full"


def test_targets_that_refuse_are_listed_beside_those_that_took_it_and_asked_again_alone(
    runner: Runner, silent: Path, five: Five
) -> None:
    job = runner.submit(silent, targets=ALL)
    runner.until(job, Stage.UPLOAD)
    with five.fourth.gone(), five.remote.forbidden(), five.bucket.full():
        runner.until(job, Stage.FINALIZE)
    shown = runner.finish(job)

    refused = {
        "bucket": "TARGET_DISK_FULL",
        "remote": "TARGET_PERMISSION_DENIED",
        "fourth": "TARGET_NOT_FOUND",
    }
    assert (shown["status"], shown["outcome"]) == ("completed", "partial")
    assert said(runner, job) == {"local": "delivered", "fifth": "delivered", **refused}
    manifest = json.loads(Path(unquote(urlsplit(shown["context"]["finalize"]["manifest"]["local"]).path)).read_text())
    (entry,) = manifest["outputs"]
    assert {file["target"] for file in entry["files"]} == {"local", "fifth"}
    assert {r["target"]: r["code"] for r in entry["refused"]} == refused
    assert breakers.shown(database()) == []
    before = {path: path.stat().st_mtime_ns for path in [*runner.objects(), *five.fifth.rglob("*.mp4")]}

    intake.requeue(job, by="test", failed_only=True)
    again = runner.finish(job)

    assert (again["outcome"], said(runner, job)) == ("full", dict.fromkeys(ALL, "delivered"))
    assert lying(five, runner) == dict.fromkeys(ALL, 1)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_target_that_breaks_off_every_attempt_costs_the_others_nothing(
    runner: Runner, silent: Path, five: Five
) -> None:
    job = runner.submit(silent, targets=["local", "remote"], max_attempts=2)
    runner.until(job, Stage.UPLOAD)
    five.remote.wire.reset_after(5000)

    runner.step(job)
    assert runner.job(job).status is Status.QUEUED
    assert runner.job(job).attempt_count == 1
    five.remote.wire.reset_after(5000)
    make_retry_due(job)
    runner.step(job)

    assert said(runner, job) == {"local": "delivered", "remote": "STORAGE_UPLOAD_FAILED"}
    five.remote.wire.mend()
    assert runner.finish(job)["outcome"] == "partial"


def test_what_is_gone_from_one_target_is_brought_there_again_and_to_no_other(
    runner: Runner, silent: Path, five: Five
) -> None:
    job = runner.submit(silent, targets=["local", "bucket", "fourth"])
    runner.until(job, Stage.FINALIZE)
    (key,) = five.fourth.everything()
    five.fourth.remove(key)

    assert runner.finish(job)["outcome"] == "full"

    assert five.fourth.read(key)
    assert len([put for put in five.puts if ".mp4" in put]) == 1


def test_a_playlist_comes_after_what_it_names_and_finds_it_at_the_target(
    runner: Runner, silent: Path, five: Five
) -> None:
    job = runner.submit(silent, targets=["bucket"], formats=["hls"], qualities=["240p"])

    assert runner.finish(job)["outcome"] == "full"

    lies = five.bucket.everything()
    playlists = [key for key in lies if key.endswith(".m3u8")]
    named = [
        normpath(f"{dirname(playlist)}/{line}")
        for playlist in playlists
        for line in (five.bucket.read(playlist) or b"").decode().splitlines()
        if line and not line.startswith("#")
    ]
    assert len(playlists) >= 2
    assert named
    assert set(named) <= set(lies)
    came = [put.partition(five.bucket.prefix)[2] for put in five.puts]
    for playlist in playlists:
        folder = [key for key in came if dirname(key) == dirname(playlist)]
        assert folder[-1] == playlist


def test_a_cancelled_job_stops_its_transfer_and_publishes_nothing(
    runner: Runner, silent: Path, five: Five, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = runner.submit(silent, targets=["bucket"])
    runner.until(job, Stage.UPLOAD)
    five.bucket.wire.stall_after(2000)
    monkeypatch.setattr(five.bucket.wire, "_answers", cancelling(job))

    answer = runner.step(job)

    assert answer.word == "lease_lost"
    assert runner.job(job).status is Status.CANCELLED
    assert five.bucket.everything() == []


def cancelling(job: UUID) -> Callable[[str], Any]:
    """Somebody cancels the job as soon as the bucket is asked for anything."""

    cancelled: list[object] = []

    def answer(_request: str) -> None:
        if not cancelled:
            cancelled.append(intake.cancel(job, by="test"))

    return answer


def make_retry_due(job: UUID) -> None:
    database().run(text("UPDATE jobs SET next_earliest_run_at = NULL WHERE id = :id"), id=job)


def test_whoever_has_no_lease_cannot_make_a_delivery_forgotten(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent)
    runner.until(job, Stage.FINALIZE)
    (output,) = outputs.of(database(), job, 1)

    assert not outputs.undelivered(database(), job, uuid4(), output.id, "local")

    assert said(runner, job) == {"local": "delivered"}


def test_a_playlist_is_published_last_however_its_output_lists_it() -> None:
    names = ["index.m3u8", "a.ts", "b.ts"]
    files = tuple(File(name=f"hls/{name}", sha256="0" * 64, size=1, path=name) for name in names)
    output = Output(id=1, name="clip-hls", kind="hls", clip="clip", files=files)
    ctx: Any = SimpleNamespace(job=SimpleNamespace(id=uuid4(), building=1))

    assert [file.path for _, file in published(ctx, output)] == ["a.ts", "b.ts", "index.m3u8"]
