"""What happens while Redis is away? People are still served, workers wait, and nothing is forgotten."""

from __future__ import annotations

import signal
from pathlib import Path

from celery import states

from pipeline import submit
from pipeline.core.job import Stage
from tests.cluster.system import System, wait_for


def test_a_job_handed_in_without_a_broker_gets_its_id_and_runs_when_the_broker_is_back(
    system: System, sample: Path
) -> None:
    system.beat(wait=False)
    system.worker()
    system.broker.container.server.stop()

    asked = submit.apply_async(kwargs={"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False})

    assert asked.state == states.PENDING
    # Whoever sweeps meanwhile marks it, finds no broker, and takes the mark back.
    wait_for("it to be unpublished", lambda: system.job(asked.id).published_at is None)
    system.broker.container.server.start()
    assert asked.get(timeout=60)["outcome"] == "full"


def test_a_worker_goes_on_when_redis_is_restarted_with_a_task_in_flight(system: System, sample: Path) -> None:
    system.beat(wait=False)
    worker = system.worker()
    pid = worker.container.process.pid
    clips = [{"start": 0.5 + n / 10, "end": 18 + n / 10} for n in range(3)]
    asked = submit.apply_async(kwargs={"source": str(sample), "clips": clips, "captions": False})
    system.encoding(asked.id)

    system.broker.restart()

    assert system.finished(asked.id)["outcome"] == "full"
    assert system.claims(asked.id).count("clip") == 1
    again = submit.apply_async(kwargs={"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False})
    assert system.finished(again.id)["outcome"] == "full"
    assert worker.container.status == "running"
    assert worker.container.process.pid == pid
    assert "Unrecoverable error" not in worker.logs()


def test_a_frozen_redis_delays_jobs_and_no_more(system: System, sample: Path) -> None:
    system.beat(wait=False)
    worker = system.worker()
    clips = [{"start": 0.5 + n / 10, "end": 18 + n / 10} for n in range(3)]
    running = submit.apply_async(kwargs={"source": str(sample), "clips": clips, "captions": False})
    system.encoding(running.id)
    redis = system.broker.container.server.identity
    assert redis is not None

    redis.send(signal.SIGSTOP)
    wait_for("the stage to end without the broker", lambda: system.job(running.id).stage is Stage.UPLOAD)
    asked = submit.apply_async(kwargs={"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False})
    waiting = system.job(asked.id)
    redis.send(signal.SIGCONT)

    assert waiting.published_at is None
    for each in (running, asked):
        assert system.finished(each.id)["outcome"] == "full"
        assert system.claims(each.id) == ["resolve", "clip", "upload", "finalize"]
    assert worker.container.status == "running"
