"""`demo` and `up` do what they promise: a real job, end to end, on servers of their own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipeline import embedded, processes
from pipeline.media import captions, verify
from pipeline.media.sample import SPEECH_TEXT, make_sample

pytestmark = pytest.mark.cluster
Type = Callable[..., Any]
Start = Callable[..., "subprocess.Popen[str]"]


def test_demo_makes_the_clip_that_was_asked_for_with_the_right_words_twice_in_one_home(
    newcomer: Type, tmp_path: Path
) -> None:
    read = newcomer("demo", env={})
    again = newcomer("demo", "--json", env={})

    assert read.code == 0, read.err
    for said in ("Clip ", "Captions (srt)", "Captions (vtt)", "Captions (json)", "Manifest", "right to one frame"):
        assert said in read.out
    assert '"If a machine stops in the middle of the work' in read.out
    assert again.code == 0, again.err
    made = again.json["jobs"][0]
    assert made["outcome"] == "full"
    clip, manifest = Path(made["clip"]), json.loads(Path(made["manifest"]).read_text())
    assert clip.is_relative_to(tmp_path / "output")
    measured = verify.verify(clip, verify.Expected(duration_s=12.3, tolerance_s=1 / 30, has_audio=True))
    assert abs(measured.duration_s - 12.3) <= 1 / 30
    assert set(made["captions"]) == {"json", "srt", "vtt"}
    assert all(Path(path).stat().st_size for path in made["captions"].values())
    said = captions.from_json(Path(made["captions"]["json"]).read_text()).text
    assert " ".join(_words(said)) in " ".join(_words(SPEECH_TEXT.read_text()))
    assert len(_words(said)) > 30
    assert manifest["job"] == made["id"]
    assert not list((tmp_path / ".ironclip" / "scratch").glob("jobs/*"))
    assert embedded.running(tmp_path / ".ironclip") is None


def test_a_demo_whose_job_fails_says_why_and_shows_the_end_of_the_workers_log(newcomer: Type, tmp_path: Path) -> None:
    (tmp_path / ".ironclip").mkdir()
    make_sample(tmp_path / ".ironclip" / "sample.mp4", size="320x240")

    typed = newcomer("demo", env={"FFMPEG": "/bin/false"})

    assert typed.code == 1
    sentence, *evidence = typed.err.splitlines()
    assert re.fullmatch(r"FAILED: Job [0-9a-f-]{36} ended as failed \(FFMPEG_FAILED: .+\)\.", sentence)
    assert evidence[0].startswith("last error: FFMPEG_FAILED: ")
    assert any('"message": "stage ended"' in line for line in evidence)


def test_up_runs_jobs_for_the_folder_it_stands_in_until_it_is_told_to_stop(
    newcomer: Type, started: Start, tmp_path: Path
) -> None:
    make_sample(tmp_path / "film.mp4", seconds=6, size="320x240")
    up = started("up", "--json", env={})
    ready = _line(up, lambda told: told["event"] == "ready")

    done = newcomer("submit", "film.mp4", "--clip", "1-3", "--no-captions", "--wait", "--json", env={})
    shared = newcomer("list", "--json", env=ready["env"])
    key = {"Authorization": f"Bearer {ready['api']['key']}"}
    seen = httpx.get(f"{ready['api']['url']}/api/jobs", headers=key, timeout=30)
    guest = newcomer("demo", "--json", env={})
    refused = newcomer("up", env={})
    up.send_signal(signal.SIGTERM)
    rest, err = up.communicate(timeout=60)

    assert done.code == 0, done.err
    assert done.json["status"] == "completed"
    assert [job["id"] for job in shared.json["jobs"]] == [done.json["id"]]
    assert [job["id"] for job in seen.json()["jobs"]] == [done.json["id"]]
    assert (guest.code, guest.json["jobs"][0]["outcome"]) == (0, "full")
    assert refused.code == 4
    assert refused.err.startswith("HOME_IN_USE: ")
    assert up.returncode == 0, err
    stopped = [json.loads(line) for line in rest.splitlines()]
    assert {(each["child"], each["what"]) for each in stopped} >= {("worker", "stopped"), ("beat", "stopped")}
    assert newcomer("list", env={}).code == 2


def test_an_interrupted_demo_leaves_nothing_running_and_ends_with_130(started: Start, tmp_path: Path) -> None:
    demo = started("demo", env={"SHUTDOWN_GRACE_SEC": "1"})
    assert demo.stdout is not None
    said = iter(demo.stdout.readline, "")
    assert any("resolve: started" in line for line in said)
    below = processes.descendants(demo.pid)

    demo.send_signal(signal.SIGINT)
    _, err = demo.communicate(timeout=60)

    assert demo.returncode == 130
    assert "Traceback" not in err
    assert below
    assert not [known for known in below if known.is_running]
    assert embedded.running(tmp_path / ".ironclip") is None


def _words(text: str) -> list[str]:
    return re.sub(r"[^a-z ]", "", re.sub(r"[-\s]+", " ", text.lower())).split()


def _line(process: subprocess.Popen[str], is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        if is_it(told := json.loads(line)):
            return told
    raise AssertionError(process.communicate()[1])
