"""Does the seed alone decide what breaks when?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.chaos import faults, plan
from pipeline.chaos.plan import Strike, schedule

ALL = tuple(plan.BY_NAME)
seeds = st.integers(min_value=0, max_value=2**63)


def strikes(seed: int, seconds: float = 120.0, every_s: float = 2.0, workers: int = 3) -> tuple[Strike, ...]:
    return schedule(seed, seconds=seconds, every_s=every_s, workers=workers, faults=ALL)


@given(seeds)
def test_the_same_seed_breaks_the_same_things_at_the_same_times(seed: int) -> None:
    assert strikes(seed) == strikes(seed)


def test_the_order_in_which_faults_are_named_changes_nothing() -> None:
    there = schedule(7, seconds=60, every_s=1, workers=2, faults=("worker", "child", "beat"))
    back = schedule(7, seconds=60, every_s=1, workers=2, faults=("beat", "child", "worker"))

    assert there == back


def test_another_seed_breaks_other_things() -> None:
    assert len({strikes(seed) for seed in range(50)}) == 50


@given(seeds)
def test_every_kind_strikes_before_any_strikes_a_third_time(seed: int) -> None:
    named = [strike.fault for strike in strikes(seed, seconds=1000)]

    assert set(named[: len(ALL)]) == set(ALL)
    assert set(named[len(ALL) : 2 * len(ALL)]) == set(ALL)


@given(seeds, st.floats(min_value=1, max_value=300), st.floats(min_value=0.2, max_value=10))
def test_strikes_come_in_order_and_are_over_when_the_time_is(seed: int, seconds: float, every_s: float) -> None:
    found = strikes(seed, seconds, every_s)

    assert [strike.at_s for strike in found] == sorted(strike.at_s for strike in found)
    assert all(strike.at_s > 0 and strike.at_s + strike.lasts_s <= seconds for strike in found)


@given(seeds, st.integers(min_value=1, max_value=9))
def test_victims_are_workers_that_there_are(seed: int, workers: int) -> None:
    assert {strike.victim for strike in strikes(seed, workers=workers)} <= set(range(1, workers + 1))


def test_without_faults_nothing_happens() -> None:
    assert schedule(1, seconds=60, every_s=1, workers=2, faults=()) == ()


@pytest.mark.parametrize("name", ALL)
def test_whatever_is_planned_can_be_done(name: str) -> None:
    assert name in faults.BY_NAME
