"""Does the lease protocol keep its promises, whatever happens in whatever order?

`walk` visits every state that a small world can reach, breadth first. In each it asks what must hold; at the end it
asks whether every state leads to an end by steps that must happen. What it finds is the shortest story of how it went
wrong. A guard that is switched off in `Guards` must give such a story: that shows that one would be found.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline.core.job import FINAL, Status
from tests.core.lease_model import IDLE, NOBODY, TWICE, Model, State, Step, Worker, World

Came = dict[State, tuple[State, str] | None]  # how each state was first reached


class Broken(NamedTuple):
    """A promise that does not hold, and the shortest way there."""

    promise: str
    story: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.promise, *(f"{n:3}. {said}" for n, said in enumerate(self.story, 1))])


@dataclass(frozen=True)
class Walked:
    """What the explorer saw."""

    states: int
    steps: int
    ends: frozenset[Status]
    seconds: float
    broken: Broken | None


# -- what must hold --------------------------------------------------------------------------------------------------


def broken_in(state: State, world: World) -> str | None:
    """The promise that this state breaks."""
    row = state.row
    holders = [w for w in state.workers if w.fence != NOBODY and w.fence == row.fence and w.at != "widow"]
    if len(holders) > 1:
        return "two executions hold a fence that opens the row"
    if (row.fence != NOBODY) != (row.status is Status.PROCESSING):
        return "a row has a fence without being processed, or the other way round"
    if row.attempts > world.max_attempts or state.starts > world.max_attempts:
        return f"a stage was started {state.starts} times, and {row.attempts} were counted, of {world.max_attempts}"
    if state.settled > 1:
        return "the ledger was settled twice"
    if (row.status in FINAL) != (state.settled == 1):
        return "a job has ended without being settled, or was settled and goes on"
    for n, kept in enumerate(state.done):
        if kept == TWICE:
            return f"stage {n} was completed twice"
        if kept is not None and (kept == NOBODY or kept not in state.objects[n]):
            return f"stage {n} was completed, and the object that it was completed with is not there"
        if kept is not None and kept != state.records[n]:
            return f"stage {n} was completed with one record and shows another"
    if row.status is Status.COMPLETED and None in state.done:
        return "a job was completed with a stage left out"
    return None


def broken_by(before: State, step: Step) -> str | None:
    """The promise that this step breaks."""
    if step.fence == NOBODY or step.fence == before.row.fence:
        return None
    after = step.after
    if (before.row, before.records, before.done) != (after.row, after.records, after.done):
        return f"a ghost (fence {step.fence}) changed what is its heir's"
    return None


# -- the walk --------------------------------------------------------------------------------------------------------


def walk(world: World) -> Walked:
    """Visit every state that can be reached, breadth first; stop at the first promise that is broken.

    States that differ only in the names of workers and fences, or in what nobody can ever ask for, count as one.
    """
    began = time.perf_counter()
    model = Model(world)
    start = model.start()
    keys: dict[State, State] = {}  # most states are met more than once

    def key_of(state: State) -> State:
        if state not in keys:
            keys[state] = _key(state, world)
        return keys[state]

    came: Came = {key_of(start): None}
    shown = {key_of(start): start}
    back: dict[State, list[State]] = {}
    ends: set[State] = set()
    steps = 0
    todo = deque(came)
    while todo:
        key = todo.popleft()
        state = shown[key]
        if state.row.status in FINAL:
            ends.add(key)
        for step in model.steps(state):
            steps += 1
            after = key_of(step.after)
            if after not in came:
                came[after] = (key, step.said)
                shown[after] = step.after
                todo.append(after)
            said = broken_by(state, step) or broken_in(step.after, world)
            if said:
                story = (*_story(key, came), step.said)
                return _walked(came, steps, ends, began, Broken(said, story))
            if step.kind == "work":
                back.setdefault(after, []).append(key)
    stuck = set(came) - _leading_to(ends, back)
    broken = None
    if stuck:
        first = next(key for key in came if key in stuck)
        broken = Broken("nothing that must happen leads to an end from here", _story(first, came))
    return _walked(came, steps, ends, began, broken)


def _walked(came: Came, steps: int, ends: set[State], began: float, broken: Broken | None) -> Walked:
    statuses = frozenset(key.row.status for key in ends)
    return Walked(len(came), steps, statuses, time.perf_counter() - began, broken)


def _story(key: State, came: Came) -> tuple[str, ...]:
    told: list[str] = []
    while (origin := came[key]) is not None:
        key, said = origin
        told.append(said)
    return tuple(reversed(told))


def _leading_to(ends: set[State], back: dict[State, list[State]]) -> set[State]:
    """Every state from which steps that must happen at last lead to one of these."""
    found, todo = set(ends), list(ends)
    while todo:
        for before in back.get(todo.pop(), ()):
            if before not in found:
                found.add(before)
                todo.append(before)
    return found


def _key(state: State, world: World) -> State:
    """The one state that stands for all that differ in names only."""
    workers, messages, sweep = state.workers, state.messages, state.sweep
    if world.guards.version:
        # A snapshot of an old version can never be written, and one of this version is the row itself.
        workers = tuple(w._replace(seen=None) for w in workers)
        if state.row.status in FINAL:  # whoever comes now is refused, and leaves nothing behind
            workers = tuple(IDLE if w.at in ("read", "tell") else w for w in workers)
            messages, sweep = (False,) * len(messages), None
    names: dict[int, int] = {NOBODY: NOBODY, TWICE: TWICE}

    def name(fence: int) -> int:
        return names.setdefault(fence, len(names))

    row = state.row._replace(fence=name(state.row.fence))
    records = tuple(name(f) for f in state.records)
    done = tuple(None if f is None else name(f) for f in state.done)

    def order(w: Worker) -> tuple[Any, ...]:
        known = names.get(w.fence, 99)
        marks = tuple(w.fence in there for there in state.objects)
        return (w.at, w.stage, known, marks, w.is_fresh, w.seen is None, w.seen or ())

    named = []
    for w in sorted(workers, key=order):
        seen = None if w.seen is None else w.seen._replace(fence=names.get(w.seen.fence, 99))
        named.append(w._replace(fence=name(w.fence), seen=seen))
    objects = tuple(frozenset(names[f] for f in there if f in names) for there in state.objects)
    reaper = None if state.reaper is None else state.reaper._replace(fence=names.get(state.reaper.fence, 99))
    return State(row, records, objects, done, messages, tuple(named), reaper, sweep, *state[8:])
