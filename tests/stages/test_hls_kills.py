"""A 3-rung HLS job that is killed again and again: what comes out equals an undisturbed run, byte for byte.

Six times in the suite; `IRONCLIP_KILLS=30` asks for as many as that. A job that is quicker than its killer is followed
by another one.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from pipeline import runner as runners
from pipeline.media import probe
from pipeline.runner import Delivery
from tests.stages import mortal
from tests.stages.conftest import ENCODED, Runner, _made
from tests.stages.playing import master_of, play, streams_of

KILLS = int(os.environ.get("IRONCLIP_KILLS", "6"))
SEED = 4
PATIENCE_S = 120
QUICK = {"HLS_SEGMENT_SEC": "0.2", "HLS_GROUP_SEGMENTS": "2", "LOG_LEVEL": "ERROR"}


@pytest.fixture(scope="session")
def source(media: Path) -> Path:
    """4 s of 480x480 with a tone."""
    tone = ("-f", "lavfi", "-i", "sine")
    return _made(media / "square.mp4", "-f", "lavfi", "-i", "testsrc2=size=480x480:rate=25", *tone, *ENCODED)


def tree(output: Path, job: UUID) -> dict[str, str]:
    """Every published file by name and hash; the manifest names the job, and so is another one for each."""
    root = output / "jobs" / str(job)
    files = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith("manifest")]
    return {str(path.relative_to(root)): probe.sha256(path) for path in files}


@pytest.mark.timeout(60 + 20 * KILLS)
def test_a_job_that_is_killed_at_random_points_ends_as_if_nothing_had_happened(
    runner: Runner, env: dict[str, str], use: Callable[..., None], source: Path, tmp_path: Path
) -> None:
    use(**QUICK)
    clips = [{"name": f"c{n}", "start": 0.1, "end": 3.9 if KILLS > 12 else 1.9} for n in range(1 + KILLS // 20)]
    request = {"formats": ["hls"], "qualities": ["source", "360p", "240p"], "clips": clips, "max_attempts": 100}
    whole = runner.submit(source, **request)
    assert runner.finish(whole)["outcome"] == "full"
    chance, kills = random.Random(SEED), 0

    while kills < KILLS:
        hurt = runner.submit(source, **request)
        lives = killed_on_the_way({**env, **QUICK}, hurt, KILLS - kills, chance, tmp_path)
        kills += len(lives) - 1

        assert runner.show(hurt)["outcome"] == "full"
        assert tree(runner.output, hurt) == tree(runner.output, whole)
        assert max(len(redone) for redone in redone_in(lives)) <= 1
        for clip in clips:
            assert pictures(runner, hurt, clip["name"]) == pictures(runner, whole, clip["name"])


def pictures(runner: Runner, job: UUID, clip: Any) -> dict[str, int]:
    """How many pictures of each rendition can be decoded, one after the other in time."""
    return {uri: play(path).pictures for uri, path in streams_of(master_of(runner.output, job, clip)).pictures.items()}


def killed_on_the_way(
    env: dict[str, str], job: UUID, kills: int, chance: random.Random, tmp_path: Path
) -> list[list[str]]:
    """Kill process after process that works on the job, then let one finish it; what each began to make."""
    lives: list[list[str]] = []
    while True:
        began = tmp_path / f"{job}-{len(lives)}"
        began.touch()
        delivery = Delivery(worker="mortal", request_id=str(uuid4()))
        process = mortal.live(env, job, delivery, began)
        if len(lives) < kills:
            if chance.random() < 0.7:
                wait_until_it_makes_something(began, process)
            process.join(chance.uniform(0, 0.5))
            process.kill()
        process.join(PATIENCE_S)
        lives.append(began.read_text().splitlines())
        if process.exitcode == 0:
            return lives
        runners.crashed(job, delivery, "killed by a test")


def redone_in(lives: list[list[str]]) -> list[list[str]]:
    """For each life: the units that one before it had begun already."""
    seen: set[str] = set()
    redone = []
    for life in lives:
        redone.append([unit for unit in life if unit in seen])
        seen |= set(life)
    return redone


def wait_until_it_makes_something(began: Path, process: BaseProcess) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not began.stat().st_size and process.is_alive():
        assert time.monotonic() < give_up_at
        time.sleep(0.005)
