"""Can any order of events break the lease protocol? No; and whoever takes one of its guards away is told how it breaks.

See docs/decisions/lease-model.md for what is modelled and what is not.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from pipeline.core.job import FINAL
from tests.core.lease_model import Guards, World
from tests.core.lease_walk import walk

WORLDS = {
    "two stages": World(),
    "three workers": World(workers=3, stages=1),
    "three attempts": World(stages=1, max_attempts=3),
    "errors and shutdowns": World(stages=1, errors=True, releases=1),
}
SMALL = World(stages=1, cancels=False)

# What is found first when the guard is gone. The fence in the compare-and-set is not here: see below.
FOUND = {
    "version": "a job has ended without being settled, or was settled and goes on",
    "side_fence": "a ghost (fence 1) changed what is its heir's",
    "side_lock": "a ghost (fence 1) changed what is its heir's",
    "fresh_fence": "two executions hold a fence that opens the row",
    "reaper_clears": "a row has a fence without being processed",
    "reaper_guard": "a job has ended without being settled, or was settled and goes on",
    "content_keys": "the object that it was completed with is not there",
    "reaps": "nothing that must happen leads to an end from here",
    "sends_again": "nothing that must happen leads to an end from here",
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
def test_whatever_happens_no_promise_is_broken_and_every_job_can_end(world: World) -> None:
    walked = walk(world)

    print(f"{walked.states} states, {walked.steps} steps, {walked.seconds:.1f} s")
    assert walked.broken is None, f"\n{walked.broken}"
    assert walked.ends == FINAL
    assert walked.states > 1_000  # nobody has tied its hands


@pytest.mark.parametrize(("guard", "promise"), FOUND.items(), ids=FOUND.keys())
def test_a_guard_that_is_taken_away_is_missed(guard: str, promise: str) -> None:
    walked = walk(replace(SMALL, guards=replace(Guards(), **{guard: False})))

    assert walked.broken is not None
    print(f"\nwithout {guard}: {walked.broken}")
    assert promise in walked.broken.promise
    assert walked.broken.story


def test_the_fence_in_the_compare_and_set_is_a_second_lock_on_the_same_door() -> None:
    """Every change of the fence raises the version, so the version alone would do. Without both, all is lost."""
    without = walk(replace(SMALL, guards=Guards(fence=False)))
    without_both = walk(replace(SMALL, guards=Guards(fence=False, version=False)))

    assert without.broken is None
    assert without_both.broken is not None


def test_every_guard_is_tried() -> None:
    assert {guard.name for guard in fields(Guards)} == {*FOUND, "fence"}
