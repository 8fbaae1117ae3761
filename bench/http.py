"""`python -m bench.http`: mixed reads and submits, then 500 listeners, against one API process on this machine.

The callers run on the same cores as the API and Postgres, so the figures are a floor.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from rich.console import Console
from rich.table import Table
from sqlalchemy import text

from pipeline import embedded, settings
from pipeline.embedded.server import free_port
from pipeline.store import keys, migrate
from pipeline.store.engine import database

SUBMIT = json.dumps({"source": "https://media.example.org/a.mp4", "clips": [{"start": 0, "end": 1}]})
TELL = text("INSERT INTO job_events (job_id, type) SELECT gen_random_uuid(), 'told' FROM generate_series(1, :n)")


@contextmanager
def api(home: Path) -> Iterator[tuple[int, int]]:
    """An API process: its port and its pid."""
    port = free_port()
    argv = [sys.executable, "-m", "pipeline.cli", "api", "--port", str(port), "--json"]
    env = {**os.environ, "API_RATE_PER_SEC": "1000000", "API_BURST": "1000000"}
    with (home / "api.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, env=env)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(30)


class Load:
    """Callers who read four times as often as they submit, each on a connection of its own."""

    def __init__(self, port: int, key: str, seconds: float) -> None:
        self._port, self._headers = port, {"Authorization": f"Bearer {key}"}
        self._until = time.monotonic() + seconds
        self.took: dict[str, list[float]] = {"submit": [], "list": [], "show": []}
        self.errors: list[str] = []

    def run(self, callers: int) -> float:
        began = time.monotonic()
        threads = [threading.Thread(target=self._call, args=(n,)) for n in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - began

    def _call(self, seed: int) -> None:
        chosen, line = random.Random(seed), http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        mine: list[str] = []
        while time.monotonic() < self._until:
            what = "submit" if not mine or chosen.random() < 0.2 else chosen.choice(("list", "show"))
            began = time.monotonic()
            if what == "submit":
                headers = {**self._headers, "Content-Type": "application/json", "Idempotency-Key": str(uuid4())}
                line.request("POST", "/api/jobs", SUBMIT, headers)
            else:
                path = "/api/jobs?limit=50" if what == "list" else f"/api/jobs/{chosen.choice(mine)}"
                line.request("GET", path, headers=self._headers)
            answer = line.getresponse()
            body = answer.read()
            self.took[what].append(time.monotonic() - began)
            if answer.status >= 400:
                self.errors.append(f"{what}: {answer.status} {body[:200]!r}")
            elif what == "submit":
                mine.append(json.loads(body)["id"])


async def listen(port: int, pid: int, key: str, *, listeners: int, rounds: int, each: int) -> tuple[float, list[float]]:
    """Seconds until every listener heard every event of a round (the slowest round), and the API's memory in MiB."""
    heard = [0] * listeners
    head = f"GET /api/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n".encode()

    async def one(n: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        async for line in reader:
            heard[n] += line.startswith(b"event: job")

    tasks = [asyncio.create_task(one(n)) for n in range(listeners)]
    slowest, memory = 0.0, []
    await asyncio.sleep(5)
    for round_ in range(1, rounds + 1):
        began = time.monotonic()
        await asyncio.to_thread(database().run, TELL, n=each)
        while min(heard) < round_ * each:
            await asyncio.sleep(0.05)
            if time.monotonic() - began > 120:
                raise SystemExit(f"bench: a listener heard {min(heard)} of {round_ * each}")
        slowest = max(slowest, time.monotonic() - began)
        memory.append(resident_mib(pid))
    for task in tasks:
        task.cancel()
    return slowest, memory


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def p(values: list[float], part: float) -> str:
    return f"{sorted(values)[int(len(values) * part)] * 1000:.0f} ms" if values else "-"


def main() -> None:
    options = argparse.ArgumentParser(prog="bench.http", description=__doc__)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--callers", type=int, default=8)
    options.add_argument("--listeners", type=int, default=500)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ironclip-bench-") as folder, embedded.services(Path(folder)) as services:
        os.environ.update(services.env() | {"LOG_LEVEL": "WARNING"})
        settings.current.cache_clear()
        migrate.upgrade(services.database_url)
        key = keys.create(database(), "operator")[1]
        with api(Path(folder)) as (port, pid):
            load = Load(port, key, given.seconds)
            took_s = load.run(given.callers)
            slowest_s, memory = asyncio.run(listen(port, pid, key, listeners=given.listeners, rounds=10, each=500))
    told = Table(title=f"{given.callers} callers for {took_s:.0f} s: 20 % submits, 80 % lists of 50 and whole jobs")
    for heading in ("what", "requests/s", "p50", "p99"):
        told.add_column(heading, justify="left" if heading == "what" else "right")
    everything = [each for took in load.took.values() for each in took]
    for what, took in {**load.took, "all": everything}.items():
        told.add_row(what, f"{len(took) / took_s:.0f}", p(took, 0.5), p(took, 0.99))
    console = Console()
    console.print(told)
    console.print(f"errors: {len(load.errors)} {load.errors[:3]}")
    console.print(
        f"{given.listeners} listeners: 500 events to all of them in {slowest_s:.1f} s at most (10 rounds); "
        f"memory of the API {memory[0]:.0f} MiB after the first round, {memory[-1]:.0f} MiB after the last"
    )


if __name__ == "__main__":
    main()
