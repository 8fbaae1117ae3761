"""How long did it take until somebody went on with what a fault had interrupted? Pure, from the history alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.chaos.history import Attempt, History, Struck


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one kind of fault, in seconds from the fault to the next claim of a job that it interrupted."""

    jobs: int
    p50_s: float
    p99_s: float
    max_s: float


def recoveries(history: History, struck: Iterable[Struck]) -> dict[str, Figures]:
    """The figures of each kind of fault that interrupted anything."""
    found: dict[str, list[float]] = defaultdict(list)
    for each in struck:
        found[each.strike.fault] += _spans(history, each)
    return {fault: figures(spans) for fault, spans in sorted(found.items()) if spans}


def figures(spans: Sequence[float]) -> Figures:
    return Figures(len(spans), *(round(percentile(spans, share), 3) for share in (0.5, 0.99, 1.0)))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below this share of all."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _spans(history: History, struck: Struck) -> Iterator[float]:
    for attempt in _interrupted(history, struck):
        heir = next((a for a in history.attempts_of[attempt.job] if a.started_at > attempt.started_at), None)
        if heir is not None:
            yield max(0.0, (heir.started_at - struck.began_at).total_seconds())


def _interrupted(history: History, struck: Struck) -> list[Attempt]:
    """The executions that the fault met and that did not come to their end."""
    met = _met(history, struck)
    return [
        attempt
        for attempt in history.attempts
        if not attempt.completed
        and attempt.is_open_at(struck.began_at)
        and (attempt.fence == struck.fence if struck.fence else attempt.worker in met)
    ]


def _met(history: History, struck: Struck) -> set[str]:
    """The starts of workers that had those processes at that time: a pid is given out again."""
    found = set()
    for pid in struck.pids:
        before = [w for w in history.workers if w.pid == pid and w.registered_at <= struck.began_at]
        found |= {max(before, key=lambda w: w.registered_at).id} if before else set()
    return found
