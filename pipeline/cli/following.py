"""How does one see a job move? Look at its row and its events until it has ended; draw bars, or write lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import UUID

from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from pipeline.cli import say, words
from pipeline.core.job import Job, Status
from pipeline.store import jobs, reads
from pipeline.store.engine import Database

LOOK_EVERY_S = 0.2
PROGRESS_STEP = 25  # percent; lines say no more than that
BARS = 15  # more than that fit no screen: then only those that run are drawn


@dataclass(frozen=True)
class Sight:
    """A job as it was seen to change, and what had happened since the last time."""

    job: Job
    events: Sequence[dict[str, Any]]


def sights(db: Database, ids: Sequence[UUID], meanwhile: Callable[[], None] = lambda: None) -> Iterator[Sight]:
    """Each job whenever it has changed, until all have ended. `meanwhile` is called between two looks."""
    told = dict.fromkeys(ids, 0)
    seen: dict[UUID, tuple[int, float]] = {}
    while told:
        # The rows first: whatever moved one stands in the events that are read after it.
        for job in jobs.read_many(db, told):
            before, now = seen.get(job.id), (job.version, job.progress)
            if now != before:
                new = reads.events(db, job.id, after=told[job.id]) if before is None or job.version != before[0] else []
                seen[job.id] = now
                told[job.id] = new[-1]["id"] if new else told[job.id]
                yield Sight(job, new)
            if job.is_final:
                del told[job.id]
        if told:
            meanwhile()
            time.sleep(LOOK_EVERY_S)


class Screen(AbstractContextManager["Screen"], Protocol):
    """Where sights are shown."""

    def show(self, sight: Sight) -> None:
        """Show what has changed."""

    def note(self, text: str) -> None:
        """Say something beside it."""

    def end(self) -> None:
        """Nothing more will change; notes may still follow."""


def screen(jobs_watched: int) -> Screen:
    """Bars on a terminal, lines elsewhere."""
    return Bars(jobs_watched) if say.out.is_terminal else Lines(jobs_watched)


class Silence:
    """Shows nothing: what comes out in the end is for a program."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, sight: Sight) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def end(self) -> None:
        pass


class Stream(Silence):
    """Each change as a line of JSON."""

    def show(self, sight: Sight) -> None:
        job = sight.job
        say.document(
            {
                "id": job.id,
                "status": job.status,
                "stage": job.stage,
                "progress": round(words.share(job), 1),
                "outcome": job.outcome,
                "attempt": job.attempt_count,
                "last_error": job.last_error,
                "events": [{**event, "text": words.event(event)} for event in sight.events],
            }
        )


class Lines:
    """One line for each event, and for each quarter of a stage that takes long."""

    def __init__(self, jobs_watched: int) -> None:
        self._many = jobs_watched > 1
        self._began = time.monotonic()
        self._shown: dict[UUID, tuple[object, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def end(self) -> None:
        pass

    def note(self, text: str) -> None:
        say.line(f"{time.monotonic() - self._began:6.1f} s  {text}")

    def show(self, sight: Sight) -> None:
        job = sight.job
        who = f"{words.short(job.id)}  " if self._many else ""
        for event in sight.events:
            self.note(who + words.event(event))
        step = int(job.progress // PROGRESS_STEP)
        before = self._shown.get(job.id)
        self._shown[job.id] = (job.stage, step)
        if job.status is Status.PROCESSING and step and before != (job.stage, step):
            self.note(f"{who}{job.stage}: {job.progress:.0f} %")


class Bars:
    """A bar for each job, the events above them."""

    def __init__(self, jobs_watched: int) -> None:
        self._many = jobs_watched > 1
        self._crowded = jobs_watched > BARS
        self._total = jobs_watched
        self._ended = 0
        self._tasks: dict[UUID, TaskID] = {}
        self._began = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=40),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=say.out,
        )
        self._overall = self._progress.add_task("all", total=jobs_watched) if self._many else None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        at = f"{time.monotonic() - self._began:6.1f} s  "
        self._progress.console.print(Text.assemble((at, "dim"), text))

    def show(self, sight: Sight) -> None:
        job = sight.job
        for event in sight.events:
            if not self._many or event["type"] not in ("queued", "claimed", "stage_completed"):
                self.note(f"{words.short(job.id)}  {words.event(event)}" if self._many else words.event(event))
        task = self._tasks.get(job.id)
        if task is None:
            task = self._tasks[job.id] = self._progress.add_task("", total=100)
        self._progress.update(
            task,
            description=f"{words.short(job.id)}  {words.state(job):<28.28}",
            completed=words.share(job),
            visible=not self._crowded or job.status is Status.PROCESSING,
        )
        if job.is_final:
            self._progress.stop_task(task)
            self._ended += 1
            if self._overall is not None:
                self._progress.update(
                    self._overall, completed=self._ended, description=f"{self._ended} of {self._total} ended"
                )


def watch(
    db: Database, ids: Sequence[UUID], shown_on: Screen, meanwhile: Callable[[], None] = lambda: None
) -> dict[UUID, Job]:
    """Show the jobs until all have ended; each as it ended, in the order asked for."""
    last: dict[UUID, Job] = {}
    for sight in sights(db, ids, meanwhile):
        last[sight.job.id] = sight.job
        shown_on.show(sight)
    return {job_id: last[job_id] for job_id in ids}
