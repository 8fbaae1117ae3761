"""`python -m bench.media`: a real clip through the pipeline, beside the same ffmpeg command alone.

60 s of 720p are encoded by the clip stage, with everything that it does besides (plan, fence, progress, verification,
hash, sync); by the very command that it ran; and by a whole job on a real worker, from the moment it is handed in until
its row says that it is completed. Each is timed as often as asked for, in turns; the best counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from bench.__main__ import until, worker
from pipeline import embedded, intake
from pipeline.core.job import Stage
from pipeline.core.routing import QUEUES
from pipeline.media import ffmpeg, process
from pipeline.runner import Delivery, run_stage
from pipeline.store import jobs, migrate, reads
from pipeline.store.engine import database

SOURCE = "testsrc2=size=1280x720:rate=30,noise=alls=12:allf=t"


def make_source(path: Path, seconds: int) -> None:
    """A noisy moving picture with a tone: encoding it is work."""
    argv = [ffmpeg.locate(), "-v", "error", "-y", "-f", "lavfi", "-i", SOURCE, "-f", "lavfi", "-i", "sine"]
    argv += ["-t", str(seconds + 2), "-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac", str(path)]
    subprocess.run(argv, check=True)


@contextmanager
def noted(commands: list[list[str]]) -> Iterator[None]:
    """Write down what is run."""
    run = process.run

    def run_and_note(argv: list[str], **more: Any) -> Any:
        commands.append(list(argv))
        return run(argv, **more)

    process.run = run_and_note  # type: ignore[assignment]
    try:
        yield
    finally:
        process.run = run


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def wanted(source: Path, seconds: int) -> dict[str, Any]:
    clip = {"start": 1, "end": 1 + seconds}
    return {"source": str(source), "clips": [clip], "qualities": ["720p"], "captions": False}


def through_the_pipeline(source: Path, seconds: int) -> float:
    """How long the whole job takes, by Postgres's clock."""
    job = intake.enqueue(wanted(source, seconds)).id
    until(lambda: jobs.read(database(), job)[0].is_final, 600)
    shown = reads.one(database(), job)
    assert shown["outcome"] == "full", shown["last_error"]
    return float((shown["finished_at"] - shown["created_at"]).total_seconds())


def through_the_stage(source: Path, seconds: int) -> float:
    """How long the clip stage takes, from the message to the settled row."""
    job = intake.enqueue(wanted(source, seconds)).id
    run_stage(Stage.RESOLVE, job, Delivery("bench", str(uuid4())))
    took_s = timed(lambda: run_stage(Stage.CLIP, job, Delivery("bench", str(uuid4()))))
    intake.cancel(job, "bench")  # a worker that comes later leaves it alone
    return took_s


def run_alone(argv: list[str]) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    options = argparse.ArgumentParser(prog="bench.media", description=__doc__)
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("--times", type=int, default=3)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ironclip-bench-") as folder, embedded.services(Path(folder)) as services:
        home = Path(folder)
        os.environ.update(services.env() | {"SCRATCH_DIR": str(home / "scratch"), "LOG_LEVEL": "WARNING"})
        migrate.upgrade(services.database_url)
        source = home / "source.mp4"
        make_source(source, given.seconds)
        commands: list[list[str]] = []
        with noted(commands):
            stage = [through_the_stage(source, given.seconds)]
        by_itself = partial(run_alone, [*commands[0][:-1], str(home / "alone.mp4")])
        whole, alone = [], [timed(by_itself)]
        for _ in range(given.times - 1):
            stage.append(through_the_stage(source, given.seconds))
            alone.append(timed(by_itself))
        with worker("tasks", ",".join(QUEUES), 2, home / "worker.log"):
            through_the_pipeline(source, 1)  # until the worker is there
            for _ in range(given.times):
                whole.append(through_the_pipeline(source, given.seconds))
                alone.append(timed(by_itself))
    table = Table(title=f"{given.seconds} s of 720p, the best of {given.times}")
    for heading in ("what", "seconds", "ratio"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    table.add_row("ffmpeg alone", f"{min(alone):.2f}", "1.000")
    table.add_row("a whole job", f"{min(whole):.2f}", f"{min(whole) / min(alone):.3f}")
    table.add_row("through the clip stage", f"{min(stage):.2f}", f"{min(stage) / min(alone):.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
