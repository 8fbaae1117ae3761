"""Does the checker see each way in which a promise can be broken? A good history is spoiled in one place at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from pipeline.chaos.checker import PROMISES, check
from pipeline.chaos.history import (
    Attempt,
    Effect,
    Entry,
    EventRow,
    History,
    Incarnation,
    JobRow,
    OutputRow,
    Record,
    Struck,
)
from pipeline.chaos.plan import Strike
from pipeline.chaos.recovery import percentile, recoveries

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
PLAN = ("resolve", "clip", "finalize")
JOB, OUTPUT, KEY, MANIFEST = "job", 1, "jobs/job/g1/clip-aa.mp4", "jobs/job/g1/manifest-bb.json"


def at(seconds: float) -> datetime:
    return ZERO + timedelta(seconds=seconds)


class Story:
    """Writes a history, one second an execution."""

    def __init__(self) -> None:
        self.events = [EventRow(job=JOB, type="queued", stage="resolve", at=ZERO)]
        self.attempts: list[Attempt] = []
        self.effects: list[Effect] = []
        self._second = count(1)

    def ran(self, stage: str, ended_by: str, *, back_to: str | None = None, attempt: int = 1) -> Story:
        second, fence = next(self._second), f"fence{len(self.attempts)}"
        lease = Attempt(
            fence=fence,
            job=JOB,
            run=1,
            stage=stage,
            attempt=attempt,
            worker="w",
            started_at=at(second),
            ended_at=at(second + 0.5),
            ended_by=ended_by,
        )
        self.attempts.append(lease)
        self.events += [
            EventRow(job=JOB, type="claimed", stage=stage, at=at(second)),
            EventRow(job=JOB, type=ended_by, stage=stage, back_to=back_to, at=at(second + 0.5)),
        ]
        if ended_by == "stage_completed":
            self.effects.append(Effect(job=JOB, run=1, stage=stage, fence=fence))
        return self

    def told(self, **changes: Any) -> History:
        done = [*self.events, EventRow(job=JOB, type="completed", stage="finalize", at=at(50))]
        row = JobRow(
            job=JOB,
            status="completed",
            stage="finalize",
            plan=PLAN,
            outcome="full",
            generation=1,
            account="ann",
            attempt_count=0,
            max_attempts=3,
            manifests=(MANIFEST,),
        )
        output = OutputRow(
            job=JOB, output=OUTPUT, name="clip", status="completed", generation=1, price=2, files=((KEY, "aa"),)
        )
        paid = [("hold", -2), ("charge", 0)]
        whole: dict[str, Any] = {
            "submitted": (JOB,),
            "jobs": (row,),
            "events": tuple(done),
            "attempts": tuple(self.attempts),
            "effects": tuple(self.effects),
            "records": (Record(job=JOB, what="checkpoint", at=self.attempts[0].started_at, fence="fence0"),),
            "outputs": (output,),
            "entries": tuple(
                Entry(job=JOB, output=OUTPUT, account="ann", run=1, kind=kind, amount=amount) for kind, amount in paid
            ),
            "objects": {KEY: "aa", MANIFEST: "bb"},
            "granted": {"ann": 100},
            "balances": {"ann": 98},
        }
        return History(**whole | changes)


def plain() -> Story:
    story = Story()
    for stage in PLAN:
        story.ran(stage, "stage_completed")
    return story


def good() -> History:
    return plain().told()


def test_a_plain_life_keeps_every_promise() -> None:
    assert check(good()) == []


def test_so_does_a_life_with_every_kind_of_trouble() -> None:
    story = Story().ran("resolve", "worker_lost").ran("resolve", "requeued:stale", attempt=2)
    story.ran("resolve", "stage_completed", attempt=3).ran("clip", "deferred").ran("clip", "stage_completed")
    story.ran("finalize", "rewound", back_to="clip").ran("clip", "aborted:shutdown").ran("clip", "stage_completed")
    story.ran("finalize", "retry_scheduled").ran("finalize", "stage_completed", attempt=2)

    assert check(story.told()) == []


def row(history: History, **changes: Any) -> History:
    return replace(history, jobs=(replace(history.jobs[0], **changes),))


def lease(history: History, n: int, **changes: Any) -> History:
    attempts = list(history.attempts)
    attempts[n] = replace(attempts[n], **changes)
    return replace(history, attempts=tuple(attempts))


def output(history: History, **changes: Any) -> History:
    return replace(history, outputs=(replace(history.outputs[0], **changes),))


def a_record(history: History, **changes: Any) -> History:
    return replace(history, records=(replace(history.records[0], **changes),))


def event_at(history: History, place: int, kind: str, stage: str, back_to: str | None = None) -> History:
    events = list(history.events)
    events.insert(place, EventRow(job=JOB, type=kind, stage=stage, back_to=back_to, at=at(60)))
    return replace(history, events=tuple(events))


SPOILED: dict[str, list[Callable[[History], History]]] = {
    "nothing_is_lost": [lambda h: replace(h, submitted=(JOB, "other"))],
    "nothing_appears": [lambda h: replace(h, submitted=())],
    "nothing_is_stuck": [lambda h: row(h, status="queued"), lambda h: row(h, status="processing")],
    "everything_completes": [
        lambda h: row(h, status="failed", fail_code="TIMEOUT"),
        lambda h: row(h, outcome="partial"),
        lambda h: row(h, status="cancelled"),
    ],
    "stories_make_sense": [
        lambda h: event_at(h, 3, "stage_completed", "resolve"),  # twice
        lambda h: event_at(h, 3, "claimed", "resolve"),  # a stage that is behind it
        lambda h: event_at(h, 2, "claimed", "resolve"),  # while it is held
        lambda h: event_at(h, len(h.events), "claimed", "finalize"),  # after its end
        lambda h: replace(h, events=h.events[:-3]),  # the last stage never was
    ],
    "leases_never_overlap": [lambda h: lease(h, 0, ended_at=at(2.2)), lambda h: lease(h, 0, ended_at=None)],
    "every_attempt_ends": [lambda h: lease(h, 2, ended_at=None)],
    "attempts_stay_within_the_limit": [lambda h: lease(h, 1, attempt=4)],
    "effects_count_once": [
        lambda h: replace(h, effects=(*h.effects, h.effects[1])),
        lambda h: replace(h, effects=h.effects[1:]),
        lambda h: replace(h, effects=(*h.effects, replace(h.effects[0], fence="nobody's"))),
        lambda h: lease(h, 1, ended_by="requeued:stale"),
    ],
    "ghosts_write_nothing": [
        lambda h: a_record(h, at=at(1.7)),
        lambda h: a_record(h, at=at(2.2)),  # in the heir's lease, with the ghost's fence
        lambda h: a_record(h, at=at(1.7), fence=None),
        lambda h: a_record(h, fence="nobody's"),
    ],
    "outputs_are_published": [
        lambda h: replace(h, objects={MANIFEST: "bb"}),
        lambda h: replace(h, objects={KEY: "other", MANIFEST: "bb"}),
        lambda h: replace(h, objects={KEY: "aa"}),
        lambda h: row(h, manifests=()),
        lambda h: output(h, files=()),
        lambda h: output(h, status="in_progress"),
    ],
    "nothing_is_published_twice": [
        lambda h: replace(h, objects={**h.objects, "jobs/job/g1/clip-cc.mp4": "cc"}),
        lambda h: output(h, files=((KEY, "aa"), (KEY, "aa"))),
    ],
    "each_output_is_paid_once": [
        lambda h: replace(h, entries=(*h.entries, h.entries[1])),
        lambda h: replace(h, entries=h.entries[:1]),
        lambda h: replace(h, entries=()),
        lambda h: replace(h, entries=(h.entries[0], replace(h.entries[1], kind="refund", amount=2))),
    ],
    "balances_are_right": [lambda h: replace(h, balances={"ann": 96}), lambda h: replace(h, balances={})],
}


def test_every_promise_is_spoiled_below() -> None:
    assert set(SPOILED) == {promise.__name__ for promise in PROMISES}


@pytest.mark.parametrize(
    ("promise", "spoil"),
    [(promise, spoil) for promise, ways in SPOILED.items() for spoil in ways],
    ids=[f"{promise}-{n}" for promise, ways in SPOILED.items() for n, _ in enumerate(ways)],
)
def test_a_broken_promise_is_named(promise: str, spoil: Callable[[History], History]) -> None:
    found = check(spoil(good()))

    assert promise in {violation.promise for violation in found}


def test_a_ghost_that_came_to_its_end_and_could_not_say_so_took_no_effect() -> None:
    story = Story().ran("resolve", "requeued:stale")
    story.effects.append(Effect(job=JOB, run=1, stage="resolve", fence="fence0"))
    for stage in PLAN:
        story.ran(stage, "stage_completed")

    assert check(story.told()) == []


# -- recovery ----------------------------------------------------------------------------------------------------------


def struck(fault: str, second: float, **met: Any) -> Struck:
    strike = Strike(at_s=second, fault=fault, victim=1, lasts_s=0, pick=0)
    return Struck(strike=strike, began_at=at(second), ended_at=at(second), what="", **met)


def worker(number: int, second: float) -> Incarnation:
    return Incarnation(id=f"w{number}", name="worker1@h", pid=7, registered_at=at(second), stopped_at=None)


def test_recovery_is_the_time_from_the_fault_to_the_next_claim_of_the_job() -> None:
    story = Story().ran("resolve", "requeued:stale").ran("resolve", "stage_completed")
    history = story.told(workers=(replace(worker(0, 0), id="w"),))

    found = recoveries(history, [struck("worker", 1.2, pids=(7,))])

    assert found["worker"].jobs == 1
    assert found["worker"].max_s == pytest.approx(0.8)


def test_what_came_to_its_end_was_not_interrupted() -> None:
    history = plain().told(workers=(replace(worker(0, 0), id="w"),))

    assert recoveries(history, [struck("worker", 1.2, pids=(7,))]) == {}


def test_a_pid_that_was_given_out_again_means_its_holder_at_that_time() -> None:
    story = Story().ran("resolve", "requeued:stale").ran("resolve", "stage_completed")
    history = story.told(workers=(worker(1, 0), replace(worker(2, 0.5), id="w"), worker(3, 5)))

    assert recoveries(history, [struck("worker", 1.2, pids=(7,))])["worker"].jobs == 1


def test_a_child_that_died_interrupted_its_own_lease_only() -> None:
    story = Story().ran("resolve", "worker_lost").ran("resolve", "stage_completed")
    history = story.told(workers=(replace(worker(0, 0), id="w"),))

    assert recoveries(history, [struck("child", 1.2, fence="fence0")])["child"].jobs == 1
    assert recoveries(history, [struck("child", 1.2, fence="another")]) == {}
    assert recoveries(history, [struck("child", 1.2)]) == {}


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(n) for n in range(1, 101)]

    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1.0)) == (50.0, 99.0, 100.0)
    assert percentile([3.0], 0.5) == 3.0
