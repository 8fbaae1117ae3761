"""What does Flower see? The same events, kept in the same `State` that Flower's own is made of."""

from __future__ import annotations

import threading
from typing import Any, Self

from celery import Celery
from celery.events.state import State, Task

from tests.cluster.system import wait_for


class Watching:
    """Listens to task events from its start to its end."""

    def __init__(self, broker_url: str) -> None:
        self._app = Celery("watching", broker=broker_url, set_as_current=False)
        self._state = State()
        self._listening = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _listen(self) -> None:
        with self._app.connection_for_read() as connection:
            receiver = self._app.events.Receiver(connection, handlers={"*": self._state.event})
            with receiver.consumer_context() as (own, _channel, _consumers):
                self._listening.set()
                while not self._stop.is_set():
                    try:
                        own.drain_events(timeout=0.2)
                    except TimeoutError:
                        continue

    def of_job(self, job_id: Any) -> list[Task]:
        """The tasks that carry this job's id, in the order in which they were received."""
        tasks = [task for task in self._state.tasks.values() if str(job_id) in str(task.args)]
        return sorted(tasks, key=lambda task: task.received or float("inf"))  # what was only sent comes last

    def task(self, task_id: str) -> Task:
        return self._state.tasks.get(task_id)

    def ended(self, task_id: str) -> Task:
        """The task when it has ended, one way or another."""
        wait_for(f"task {task_id} to end", lambda: (t := self.task(task_id)) and t.state in ("SUCCESS", "FAILURE"))
        return self.task(task_id)
