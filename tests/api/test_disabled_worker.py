"""Does a worker that an operator takes out of service stop taking work, and take it up again when it may?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from pipeline.store import glance, workers
from pipeline.store.engine import database


class Control:
    """Celery's remote control, as far as pausing uses it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def cancel_consumer(self, queue: str, **_options: Any) -> None:
        self.told.append(("cancel", queue))

    def add_consumer(self, queue: str, **_options: Any) -> None:
        self.told.append(("add", queue))


@pytest.mark.usefixtures("env")
def test_a_disabled_worker_stops_consuming_says_why_and_goes_on_when_it_is_enabled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tasks.pausing import DISABLED, Pausing  # a worker's code: it wants its settings when it is loaded

    monkeypatch.setattr("tasks.pausing.pressure.reason", lambda *_args, **_options: None)
    who, control = uuid4(), Control()
    known = {"name": "w", "hostname": "h", "queues": ["media"], "slots": 1, "boot_id": None, "pid": 1}
    workers.register(database(), who, **known, pid_started=None)
    queues = SimpleNamespace(consume_from={"media": None, "control": None})
    app = SimpleNamespace(control=control, amqp=SimpleNamespace(queues=queues))
    pausing = Pausing(SimpleNamespace(app=app, hostname="w"), who)

    pausing.look()
    before = list(control.told)
    glance.disable(database(), who, disabled=True)
    pausing.look()
    (paused,) = workers.newest(database())
    glance.disable(database(), who, disabled=False)
    pausing.look()

    assert before == []
    assert control.told == [("cancel", "media"), ("add", "media")]
    assert paused["paused"] == DISABLED
    assert workers.newest(database())[0]["paused"] is None
