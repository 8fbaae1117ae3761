"""What does a worker do that is alive and hears nothing? It notices, stops in good order, and is started anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline import dispatch, enqueue
from tests.cluster.system import System, wait_for


def test_a_deaf_worker_notices_and_stops(make_system: Callable[..., System], sample: Path) -> None:
    system = make_system(CANARY_SEC="0.5")
    worker = system.worker()
    wait_for("it to hear itself", lambda: system.last_consumed(worker))
    queues = system.queues_of(worker)
    assert any(queue.startswith("canary.") for queue in queues)

    for queue in queues:
        dispatch.client.control.cancel_consumer(queue, destination=[system.hostname_of(worker)])

    wait_for("the worker to end", lambda: worker.container.status == "exited")
    assert worker.container.process.wait() == 0
    assert "CONSUMER_DEAF" in worker.logs()
    heir = system.worker()
    job = enqueue({"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False})
    assert system.finished(job.id)["outcome"] == "full"
    assert "CONSUMER_DEAF" not in heir.logs()


def test_a_busy_worker_is_not_taken_for_a_deaf_one(make_system: Callable[..., System], sample: Path) -> None:
    system = make_system(CANARY_SEC="0.2")
    worker = system.worker(slots=1)
    job = enqueue({"source": str(sample), "clips": [{"start": 0.5, "end": 18}], "captions": False})

    assert system.finished(job.id)["outcome"] == "full"
    assert system.claims(job.id) == ["resolve", "clip", "upload", "finalize"]
    assert worker.container.status == "running"
    assert "CONSUMER_DEAF" not in worker.logs()
