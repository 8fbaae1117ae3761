"""`make bench`: jobs per second of five no-op stages, beside a bare Celery chain in the same layout."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from rich.console import Console
from rich.table import Table
from sqlalchemy import text

from pipeline import embedded
from pipeline.store import migrate
from pipeline.store.engine import database

SPAN = text("""
    SELECT count(*) AS n, extract(epoch FROM max(finished_at) - min(first))::float AS seconds
      FROM jobs JOIN (SELECT job_id, min(started_at) AS first FROM job_attempts GROUP BY job_id) a ON a.job_id = jobs.id
     WHERE status = 'completed'""")


@contextmanager
def worker(app: str, queues: str, slots: int, log: Path) -> Iterator[None]:
    argv = [sys.executable, "-m", "celery", "-A", app, "worker", "-c", str(slots), "-Q", queues]
    argv += ["--without-gossip", "--without-mingle", "-n", f"{app.replace('.', '-')}@%h", "-l", "WARNING"]
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def until(done: Callable[[], bool], patience_s: float) -> None:
    give_up_at = time.monotonic() + patience_s
    while not done():
        if time.monotonic() > give_up_at:
            raise SystemExit("bench: not finished in time")
        time.sleep(0.1)


def ours(jobs: int, slots: int, home: Path) -> float:
    """Jobs per second of our pipeline, from the first claim to the last end."""
    from pipeline import enqueue

    source = home / "source.mp4"
    source.write_bytes(b"never looked at")
    for _ in range(jobs):
        enqueue({"source": str(source), "clips": [{"start": 0, "end": 1}]})
    with worker("bench.noop", "control,io,media", slots, home / "noop.log"):
        until(lambda: database().run(SPAN)[0].n == jobs, 300)
    return float(jobs / database().run(SPAN)[0].seconds)


def bare(jobs: int, slots: int, home: Path) -> float:
    """Jobs per second of the bare chain, from the first task of the first to the last task of the last."""
    from bench.bare import marks, publish

    for _ in range(jobs):
        publish()
    with worker("bench.bare", "bare", slots, home / "bare.log"):
        until(lambda: marks.llen("bare:4") == jobs, 300)
    first = min(float(t) for t in marks.lrange("bare:0", 0, -1))
    last = max(float(t) for t in marks.lrange("bare:4", 0, -1))
    return jobs / (last - first)


def main() -> None:
    options = argparse.ArgumentParser(prog="bench", description=__doc__)
    options.add_argument("--jobs", type=int, default=500)
    options.add_argument("--slots", type=int, default=2)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ironclip-bench-") as folder, embedded.services(Path(folder)) as services:
        os.environ.update(services.env() | {"LOG_LEVEL": "WARNING"})
        migrate.upgrade(services.database_url)
        redis.Redis.from_url(services.broker_url).flushdb()
        figures = {"bare Celery chain": bare(given.jobs, given.slots, Path(folder))}
        figures["Ironclip, no affinity"] = ours(given.jobs, given.slots, Path(folder))
    table = Table(title=f"{given.jobs} jobs of five no-op stages, one worker with {given.slots} processes")
    for heading in ("what", "jobs/s", "ratio"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for name, figure in figures.items():
        table.add_row(name, f"{figure:.1f}", f"{figure / figures['bare Celery chain']:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
