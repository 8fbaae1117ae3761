"""What do operators see of a real worker: at its port for Prometheus, in its log, in Flower, at their webhook?"""

from __future__ import annotations

import base64
import json
import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipeline import submit, supervisor
from pipeline.supervisor import Supervisor
from tests.cluster.system import System, wait_for
from tests.webhooks.world import Place, standing

LOGIN = "ironclip:guess-me"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def get(url: str, login: str = "") -> bytes:
    headers = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()} if login else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
        return bytes(answer.read())


def series(page: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(page.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


@pytest.fixture
def place() -> Iterator[Place]:
    with standing() as made:
        yield made


@pytest.fixture
def flower(make_system: Callable[..., System]) -> Iterator[Callable[[System], int]]:
    """Call it for the port of a real Flower."""
    started: list[Supervisor] = []

    def start(system: System) -> int:
        port = free_port()
        children = supervisor.commands(system.env, home=system.home, flower_port=port, flower_login=LOGIN)
        started.append(Supervisor([c for c in children if c.name == "flower"], home=system.home / "flower"))
        (system.home / "flower").mkdir()
        started[-1].start()
        return port

    yield start
    for each in started:
        each.drain()


def answers(url: str, login: str = "") -> bool:
    try:
        return bool(get(url, login))
    except OSError:
        return False


def test_one_job_is_seen_by_prometheus_in_the_log_in_flower_and_at_its_callback(
    make_system: Callable[..., System], flower: Callable[[System], int], place: Place, sample: Path
) -> None:
    port = free_port()
    told = {"WEBHOOK_SECRET": "s", "WEBHOOK_ALLOW_HOSTS": "127.0.0.1", "WEBHOOK_INTERVAL_SEC": "1"}
    system = make_system(METRICS_PORT=str(port), ALERT_WEBHOOK_URL=place.url, **told)
    flowers = flower(system)
    worker = system.worker(wait=False)
    system.beat(wait=False)
    wait_for("Flower", lambda: answers(f"http://127.0.0.1:{flowers}/api/workers", LOGIN))

    request = {"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False}
    job = submit.apply_async(kwargs={**request, "callback_url": place.url})
    job.get(timeout=90)

    wait_for("the callback", lambda: "job_completed" in place.types())
    wait_for("the alert", lambda: "worker_startup" in place.types())
    beats = ("worker_heartbeats_total", frozenset[tuple[str, str]]())
    wait_for("a heartbeat", lambda: series(get(f"http://127.0.0.1:{port}/metrics"))[beats] > 0)
    own = series(get(f"http://127.0.0.1:{port}/metrics"))
    for stage in ("resolve", "clip", "upload", "finalize"):
        assert own["stage_duration_seconds_count", frozenset({("stage", stage), ("by", "complete")})] == 1
    assert own["jobs_finished_total", frozenset({("status", "completed")})] == 1
    assert own["job_completion_seconds_count", frozenset()] == 1
    assert own["worker_acquire_conflicts_total", frozenset()] == 0
    assert own["worker_concurrent_jobs", frozenset()] >= 0

    fleet = series(get(f"http://127.0.0.1:{port}/metrics/fleet"))
    assert fleet["database_up", frozenset()] == 1
    assert fleet["jobs_current", frozenset({("status", "processing"), ("stage", "clip")})] == 0
    assert fleet["reaper_seconds_since_last_run", frozenset()] < 60
    broken = {dict(labels)["severity"]: n for (name, labels), n in fleet.items() if name == "doctor_violations" and n}
    assert "error" not in broken
    assert sum(name == "doctor_violations" for name, _ in fleet) > 10

    written = logged(worker.logs())
    started = [line for line in written if line["message"] == "stage started" and line.get("job_id") == job.id]
    assert [line["stage"] for line in started] == ["resolve", "clip", "upload", "finalize"]
    assert {line["worker"] for line in written} == {started[0]["worker"]}
    assert any(line["logger"].startswith("celery.") for line in written)
    assert "secret" not in "".join(json.dumps(line) for line in written)

    tasks = json.loads(get(f"http://127.0.0.1:{flowers}/api/tasks?limit=1000", LOGIN)).values()
    mine = [task for task in tasks if job.id in str(task["args"])]
    assert {task["name"] for task in mine} == {f"pipeline.{s}" for s in ("resolve", "clip", "upload", "finalize")}
    assert all(job.id in task["result"] and "completed" in task["result"] for task in mine if "final" in task["name"])


def logged(text: str) -> list[dict[str, Any]]:
    """The lines of a worker's log; the banner that Celery prints before is none."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
