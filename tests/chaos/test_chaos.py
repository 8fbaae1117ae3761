"""Does a real run, with everything breaking at once, keep every promise, and leave nothing behind?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pipeline import processes
from pipeline.chaos import plan

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "pipeline.cli", "chaos"]
SHORT = ["--jobs", "120", "--real", "1", "--seconds", "20", "--every", "1.1", "--workers", "2", "--seed", "5"]

pytestmark = [pytest.mark.chaos, pytest.mark.cluster]


def environment(folder: Path) -> dict[str, str]:
    """Its own folder for whatever is temporary; nothing of a system that somebody else runs."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_URL", "_DIR", "_HOME"))}
    return {**kept, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}


def still_running(folder: Path) -> list[str]:
    """Every process that was started for a run in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            seen = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in seen and int(process.name) != os.getpid():
            found.append(seen[-200:].decode(errors="replace"))
    return found


def test_a_short_run_with_every_fault_keeps_every_promise(tmp_path: Path) -> None:
    report = tmp_path / "report"

    done = subprocess.run(
        [*COMMAND, *SHORT, "--report", str(report), "--json"],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
    )

    told = json.loads(done.stdout)
    assert told["violations"] == [], (report / "report.txt").read_text()
    assert done.returncode == 0
    assert told["jobs"]["by_status"] == {"completed": 120}
    assert told["attempts"]["executions"] > 5 * 120
    assert set(told["faults"]) | set(told["skipped"]) == set(plan.BY_NAME)
    assert len(told["strikes"]) == sum(told["faults"].values())
    assert json.loads((report / "report.json").read_text())["seed"] == 5
    assert "Every promise was kept" in (report / "report.txt").read_text()
    assert ET.parse(report / "timeline.svg").getroot().tag.endswith("svg")
    assert list(tmp_path.iterdir()) == [report]
    assert still_running(tmp_path) == []


def test_ctrl_c_in_the_middle_leaves_nothing_running(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    with seen.open("w") as out:
        running = subprocess.Popen(
            [*COMMAND, "--jobs", "5000", "--seconds", "600", "--real", "0", "--faults", "ghost", "--every", "0.5"],
            env=environment(tmp_path) | {"PYTHONUNBUFFERED": "1"},
            cwd=tmp_path,
            stdout=out,
            stderr=out,
        )
    try:
        assert processes.wait_until(lambda: "ghost" in seen.read_text() or running.poll() is not None, 90)
        assert running.poll() is None, seen.read_text()

        running.send_signal(signal.SIGINT)

        assert running.wait(60) == 130
    finally:
        running.kill()
    assert processes.wait_until(lambda: not still_running(tmp_path), 10)
    assert list(tmp_path.iterdir()) == [seen]


def test_a_fault_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--faults", "child,locusts"], env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 2
    assert "UNKNOWN_FAULT" in done.stderr
