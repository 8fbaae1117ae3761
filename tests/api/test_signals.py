"""Is whoever listens on Redis told what moved, and does nobody wait for a Redis that is away?"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from pipeline import intake, runner, signals
from pipeline.core.job import Stage
from pipeline.embedded import Services
from pipeline.stages import STAGES
from pipeline.stages.done import Done
from tests.cluster.system import wait_for


@pytest.fixture
def heard(env: dict[str, str]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What was told on the channels since the test began."""
    told: list[tuple[str, dict[str, Any]]] = []
    with redis.Redis.from_url(env["BROKER_URL"]) as client, client.pubsub(ignore_subscribe_messages=True) as channels:
        channels.psubscribe(*signals.PATTERNS)
        while client.pubsub_numpat() < len(signals.PATTERNS):
            channels.get_message(timeout=0.1)

        def take(message: dict[str, Any]) -> None:
            told.append((message["channel"].decode(), json.loads(message["data"])))

        channels.psubscribe(**dict.fromkeys(signals.PATTERNS, take))
        listening = channels.run_in_thread(sleep_time=0.01, daemon=True)
        yield told
        listening.stop()
        listening.join()


def test_a_job_that_is_submitted_run_and_cancelled_is_told_each_time(
    heard: list[tuple[str, dict[str, Any]]], request_body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STAGES, Stage.RESOLVE, replace(STAGES[Stage.RESOLVE], run=lambda _ctx: Done()))

    job = intake.enqueue(request_body)
    runner.run_stage(Stage.RESOLVE, job.id, runner.Delivery("worker", "request"))
    intake.cancel(job.id, "somebody")

    wait_for("three signals", lambda: len(heard) >= 3)
    assert [(channel, told["stage"]) for channel, told in heard] == [
        (f"transcode_progress:{job.id}", "resolve"),
        (f"transcode_progress:{job.id}", "clip"),
        (f"transcode_complete:{job.id}", "clip"),
    ]
    assert heard[-1][1]["status"] == "cancelled"


def test_a_redis_that_is_away_is_left_alone_for_a_while(services: Services) -> None:
    services.redis.stop()
    try:
        sender = signals.Sender(services.broker_url)
        first = sender.tell("worker_status", {})
        began = time.monotonic()
        others = [sender.tell("worker_status", {}) for _ in range(1000)]
        took_s = time.monotonic() - began
    finally:
        services.redis.start()

    again = wait_for("it to be tried again", lambda: sender.tell("worker_status", {}))

    assert not first
    assert not any(others)
    assert took_s < 1
    assert again


def test_a_broker_of_another_kind_has_no_channels() -> None:
    assert signals.Sender("amqp://guest@localhost").tell("worker_status", {}) is False
    assert signals.is_reachable("amqp://guest@localhost") is None
