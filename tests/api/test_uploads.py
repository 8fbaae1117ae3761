"""What becomes of the sources that people send? They stay while a job needs them, and go some days later."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from pipeline import intake, settings, upkeep
from pipeline.api import sources
from pipeline.core.moves import Cancel, Complete, Rerender
from pipeline.store import engine, jobs
from pipeline.store.engine import Database, dumps
from pipeline.store.jobs import Table
from tests.api.conftest import Api
from tests.store.world import claim, enqueue_asr, let_pass, now_of, play

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
LATER = timedelta(days=8)


@pytest.fixture
def db(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The database of the API, with this process set up as a worker beside it."""
    for name, value in api.env.items():
        monkeypatch.setenv(name, value)
    settings.current.cache_clear()
    engine._of_process.cache_clear()
    yield engine.database()
    engine.database().dispose()
    settings.current.cache_clear()
    engine._of_process.cache_clear()


@pytest.fixture
def ann(api: Api) -> Iterator[httpx.Client]:
    with api.client("client") as http:
        yield http


def send(http: httpx.Client) -> tuple[str, Path]:
    """An upload's name, and the file that it is."""
    name = http.post("/api/sources", params={"name": "film.mp4"}, content=b"film").json()["source"]
    (path,) = settings.current().uploads.rglob(f"{name.removeprefix('upload:')}*")
    return name, path


def ask(http: httpx.Client, source: str) -> Any:
    body = {"source": source, "clips": [{"start": 0, "end": 1}], "captions": False}
    return http.post("/api/jobs", json=body)


def named(db: Database, http: httpx.Client, source: str) -> Any:
    return jobs.read(db, ask(http, source).json()["id"])[0]


def finish(db: Database, job: Any) -> Any:
    for _ in job.plan:
        held = claim(db, job)
        job = play(db, held, Complete(fence=held.fence))
    return job


def grow_old(path: Path, by: timedelta) -> None:
    at = path.stat().st_mtime - by.total_seconds()
    os.utime(path, (at, at))


def aside(path: Path) -> Path:
    return path.with_name(f".aside-{path.name}")


def test_what_no_job_named_is_set_aside_and_then_removed(db: Database, ann: httpx.Client) -> None:
    (old, path), (_, young) = send(ann), send(ann)
    other = path.with_name("notes.txt")
    other.write_text("not an upload")
    grow_old(path, LATER)
    grow_old(other, LATER)

    first = upkeep.prune().uploads
    found = ask(ann, old)
    waits = (path.exists(), aside(path).exists(), upkeep.prune().uploads)
    grow_old(aside(path), 2 * HOUR)
    second = upkeep.prune().uploads

    assert (first, waits, second) == (0, (False, True, 0), 1)
    assert (found.status_code, found.json()["code"]) == (422, "SOURCE_MISSING")
    assert not path.exists()
    assert not aside(path).exists()
    assert young.exists()
    assert other.exists()


def test_what_a_job_needs_stays_however_old_and_goes_days_after_its_last_job_has_ended(
    db: Database, ann: httpx.Client
) -> None:
    name, path = send(ann)
    done, waiting = finish(db, named(db, ann, name)), named(db, ann, name)
    for job in (done, waiting):
        let_pass(db, job, 2 * LATER)
    grow_old(path, 3 * LATER)

    def is_kept() -> bool:
        upkeep.prune()
        return path.exists()

    queued = is_kept()
    held = claim(db, waiting)
    processing = is_kept()
    ended = play(db, held, Cancel(by="ann"))
    just_ended = is_kept()
    let_pass(db, ended, 6 * DAY)
    within = is_kept()
    again = play(db, now_of(db, done), Rerender(by="ann"))  # made from this very file
    rerendered = is_kept()
    play(db, again, Cancel(by="ann"))
    let_pass(db, ended, 2 * DAY)
    let_pass(db, done, LATER)
    over = is_kept()

    assert (queued, processing, just_ended, within, rerendered, over) == (True, True, True, True, True, False)


def test_a_job_submitted_in_the_moment_in_which_its_source_is_set_aside_gets_it_back(
    db: Database, ann: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = send(ann)
    grow_old(path, LATER)
    body = {"source": str(path), "clips": [{"start": 0, "end": 1}], "captions": False}
    submitted = threading.Event()
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        if self == path and not submitted.is_set():  # Postgres has been asked; the file is still there
            intake.enqueue(body)
            submitted.set()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)

    upkeep.prune()
    missing = not path.exists()
    grow_old(aside(path), 2 * HOUR)
    upkeep.prune()

    assert submitted.is_set()
    assert missing
    assert path.read_bytes() == b"film"


def test_a_transcription_that_stands_alone_keeps_its_source_too(db: Database, ann: httpx.Client) -> None:
    _, path = send(ann)
    grow_old(path, LATER)
    alone = enqueue_asr(db)
    asked = {"id": alone.id, "request": dumps({"source": str(path)})}
    db.run(text("UPDATE asr_jobs SET request = CAST(:request AS jsonb) WHERE id = :id"), **asked)

    upkeep.prune()
    needed = path.exists()
    play(db, alone, Cancel(by="ann"), table=Table.ASR_JOBS)
    upkeep.prune()

    assert needed
    assert not path.exists()


def test_the_age_of_an_upload_is_counted_by_the_clock_of_postgres(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, place = tmp_path / ".film.part", tmp_path / "film"
    monkeypatch.setattr(sources.uploads, "now", lambda _: 1000.0)

    with part.open("xb") as file:
        sources._finish(file, part, place)

    assert place.stat().st_mtime == 1000.0


def test_what_broke_off_goes_after_a_day(db: Database, ann: httpx.Client) -> None:
    _, path = send(ann)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(b"half")

    upkeep.prune()
    young = part.exists()
    grow_old(part, DAY)
    upkeep.prune()

    assert young
    assert not part.exists()
    assert path.exists()


def test_nothing_goes_where_uploads_are_kept_for_ever(
    db: Database, ann: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETENTION_UPLOADS_DAYS", "0")
    settings.current.cache_clear()
    _, path = send(ann)
    grow_old(path, 100 * DAY)

    upkeep.prune()

    assert path.exists()
