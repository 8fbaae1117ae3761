"""Does `ironclip transcribe` say what is said, and where it lies?"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from uuid import uuid4

import pytest
from sqlalchemy import text

from pipeline.core.job import Stage
from pipeline.media.sample import SPEECH
from pipeline.runner import Delivery, run_stage
from pipeline.store.engine import database
from pipeline.store.jobs import Table
from tests.cli.conftest import Typed

DUE = text("SELECT id FROM asr_jobs WHERE status = 'queued' AND published_at IS NOT NULL")


@contextmanager
def somebody_working() -> Iterator[None]:
    """A worker that runs what has a message, in this process."""
    stop = Event()

    def work() -> None:
        while not stop.wait(0.1):
            for row in database().run(DUE):
                run_stage(Stage.ASR, row.id, Delivery("here", str(uuid4())), Table.ASR_JOBS)

    thread = Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join()


def test_it_shows_the_text_and_where_the_files_lie(ironclip: Callable[..., Typed], env: dict[str, str]) -> None:
    with somebody_working():
        told = ironclip("transcribe", str(SPEECH), "--language", "en")

    assert (told.code, told.err) == (0, "")
    assert "This program takes a long video" in told.out
    assert "asr: started" in told.out
    urls = [line for line in told.out.splitlines() if line.startswith("file://")]
    assert sorted(Path(url).suffix for url in urls) == [".json", ".srt", ".vtt"]


def test_a_program_gets_one_document(ironclip: Callable[..., Typed], env: dict[str, str]) -> None:
    with somebody_working():
        told = ironclip("transcribe", str(SPEECH), "--json")

    assert told.code == 0
    assert (told.json["status"], told.json["language"], told.json["engine"]) == ("completed", "en", "whisper:tiny.en")
    assert told.json["text"].startswith("Welcome")
    assert 0.5 < told.json["confidence"] <= 1
    (spoken,) = [f for f in told.json["files"]["local"] if f["key"].endswith(".json")]
    words = json.loads((Path(env["OUTPUT_DIR"]) / spoken["key"]).read_text())["words"]
    assert len(words) == told.json["words"]


def test_a_file_name_means_the_file_in_this_folder(ironclip: Callable[..., Typed], tmp_path: Path) -> None:
    (tmp_path / "my talk.ogg").write_bytes(SPEECH.read_bytes())

    told = ironclip("transcribe", "my talk.ogg", "--no-wait", "--json")

    assert told.code == 0
    assert told.json["status"] == "queued"
    (row,) = database().run(text("SELECT request FROM asr_jobs"))
    assert row.request["source"] == str(tmp_path / "my talk.ogg")
    assert row.request["clips"][0]["name"] == "my-talk"


@pytest.mark.usefixtures("env")
def test_what_fails_is_said_in_one_sentence(ironclip: Callable[..., Typed], source: Path) -> None:
    with somebody_working():
        told = ironclip("transcribe", str(source))
        again = ironclip("transcribe", str(source), "--json")

    assert told.code == again.code == 1
    assert told.err.startswith("FAILED: SOURCE_UNREADABLE: ")
    assert again.json["fail_code"] == "SOURCE_UNREADABLE"


@pytest.mark.parametrize(
    ("more", "code"),
    [(("--language", "de"), "ASR_LANGUAGE_UNSUPPORTED"), (("--target", "nowhere"), "UNKNOWN_TARGET")],
)
def test_what_cannot_be_done_is_refused_at_once(
    ironclip: Callable[..., Typed], source: Path, more: tuple[str, ...], code: str
) -> None:
    told = ironclip("transcribe", str(source), *more)

    assert told.code == 2
    assert told.err.startswith(f"{code}: ")


def test_it_goes_on_when_nobody_watches_any_more(
    started: Callable[..., subprocess.Popen[str]], env: dict[str, str]
) -> None:
    from pipeline.processes import wait_until

    watching = started("transcribe", str(SPEECH), env=env)
    assert wait_until(lambda: bool(database().run(DUE)), 60)
    watching.kill()

    with somebody_working():
        ended = text("SELECT 1 FROM asr_jobs WHERE status = 'completed'")
        assert wait_until(lambda: bool(database().run(ended)), 60)
