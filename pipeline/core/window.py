"""How much may be on its way to the workers?

The backlog stays in Postgres, where it can be ordered; a message that is sent has its place and keeps it. So of each
queue only a shallow window is published: a few jobs for every slot that serves it. A queue that nobody serves gets
next to nothing. Three rules:

- A queue is full when its published jobs, which nobody has claimed yet, fill its window.
- A stage is held back while what was published at the stages after it fills one of their windows: sources are not
  fetched for encoders that are far behind.
- A limited stage is full when its running and its published jobs together are as many as may run at once.

Beside that, a job for each slot of a GPU worker that has nothing to do may go to it. Transcriptions that belong to no
job have a window of their own, so that no backlog of jobs keeps them from running, and count where asr is limited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from pipeline.core.job import Stage
from pipeline.core.routing import GPU, MEDIA, ON_GPU, QUEUE_OF

UNSERVED = 2  # published to a queue without workers: the first of them need not wait for a sweep

Limits = Mapping[Stage, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large windows are, and how many of a stage may run at once: in one worker, in the whole fleet."""

    per_slot: int
    at_least: int
    per_worker: Limits = field(default_factory=dict)
    fleet: Limits = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Silence:
    """For how long a worker may be silent: until its slots do not count; until nothing is kept for its GPU."""

    offline: timedelta
    fresh: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What there is at one moment."""

    workers: Mapping[str, Mapping[int, int]] = field(default_factory=dict)  # queue: slots: how many workers
    published: Mapping[Stage, int] = field(default_factory=dict)  # and not claimed yet
    running: Mapping[Stage, int] = field(default_factory=dict)
    waiting: frozenset[Stage] = frozenset()  # has a backlog: due and not published
    broker_is_away: bool = False  # its breaker is not closed
    alone_published: int = 0  # transcriptions that belong to no job, and are not claimed yet
    alone_running: int = 0
    idle_gpu: int = 0  # slots of GPU workers with nothing to do and nothing on the way to them

    def slots(self, queue: str) -> int:
        return sum(slots * count for slots, count in self.workers.get(queue, {}).items())

    def unclaimed(self, queue: str, after: Stage | None = None) -> int:
        """The published jobs of a queue; only those that are further on than a stage."""
        return sum(
            self.published.get(stage, 0) for stage in QUEUE_OF if QUEUE_OF[stage] == queue and _is_after(stage, after)
        )

    def under_way(self, stage: Stage) -> int:
        """All that run a stage, or are on their way to it."""
        alone = self.alone_published + self.alone_running if stage is Stage.ASR else 0
        return self.running.get(stage, 0) + self.published.get(stage, 0) + alone


@dataclass(frozen=True, slots=True)
class Rooms:
    """How many more may be published, by queue and, within that, by stage."""

    queues: Mapping[str, int]
    stages: Mapping[Stage, int]


def window(queue: str, sight: Sight, shape: Shape) -> int:
    """How many jobs of this queue may be published and unclaimed."""
    slots = sight.slots(queue)
    return max(shape.at_least, shape.per_slot * slots) if slots else min(UNSERVED, shape.at_least)


def rooms(sight: Sight, shape: Shape) -> Rooms:
    """How many more may be published now."""
    windows = {queue: window(queue, sight, shape) for queue in set(QUEUE_OF.values())}
    queues = {queue: max(0, size - sight.unclaimed(queue)) for queue, size in windows.items()}
    stages = {}
    for stage, queue in QUEUE_OF.items():
        room = 0 if _is_held_back(stage, sight, windows) else queues[queue] + (sight.idle_gpu if stage in ON_GPU else 0)
        stages[stage] = _limited(stage, room, sight, shape)
    return Rooms(queues | {MEDIA: queues[MEDIA] + sight.idle_gpu}, stages)


def rooms_alone(sight: Sight, shape: Shape) -> Rooms:
    """How many more transcriptions that belong to no job may be published now."""
    room = max(0, window(MEDIA, sight, shape) - sight.alone_published)
    return Rooms({MEDIA: room}, {Stage.ASR: _limited(Stage.ASR, room, sight, shape)})


def goes_directly(stage: Stage, sight: Sight, shape: Shape) -> bool:
    """Whether a newcomer is published at once: there is room, nobody waits for it, and no fleet-wide limit to keep.

    While the broker is away nobody who hands a job in waits for it to answer: sweep goes on trying.

    What a limit of the fleet counts is published by sweep alone, one sweep at a time: so the count is never passed.
    """
    backlog = any(QUEUE_OF[other] == QUEUE_OF[stage] for other in sight.waiting)
    sweep_chooses = stage in shape.fleet or (stage in ON_GPU and sight.idle_gpu > 0)
    return not backlog and not sweep_chooses and not sight.broker_is_away and rooms(sight, shape).stages[stage] > 0


def capacity(stage: Stage, sight: Sight, shape: Shape) -> int | None:
    """How many of this stage may run at once; None: as many as there are slots.

    A worker with no more slots than its limit is limited by its slots already, and gets its window like any other.
    """
    fleet, each = shape.fleet.get(stage), shape.per_worker.get(stage)
    workers = Counter(sight.workers.get(QUEUE_OF[stage], {}))
    if stage in ON_GPU:
        workers.update(sight.workers.get(GPU, {}))
    if each is None or not workers or max(workers) <= each:
        return fleet
    together = sum(min(slots, each) * count for slots, count in workers.items())
    return together if fleet is None else min(fleet, together)


def limits(said: str) -> dict[Stage, int]:
    """'clip=5,asr=2' as a table; ValueError with a sentence if it is none."""
    found = {}
    for part in filter(None, (part.strip() for part in said.split(","))):
        name, mark, number = (word.strip() for word in part.partition("="))
        if name not in set(Stage) or not mark or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"must be like clip=5,asr=2, with stages of {', '.join(Stage)}")
        found[Stage(name)] = int(number)
    return found


def _limited(stage: Stage, room: int, sight: Sight, shape: Shape) -> int:
    may_run = capacity(stage, sight, shape)
    return room if may_run is None else min(room, max(0, may_run - sight.under_way(stage)))


def _is_held_back(stage: Stage, sight: Sight, windows: Mapping[str, int]) -> bool:
    return any(sight.unclaimed(queue, after=stage) >= size for queue, size in windows.items())


def _is_after(stage: Stage, other: Stage | None) -> bool:
    order = list(Stage)
    return other is None or order.index(stage) > order.index(other)
