"""How many of a stage may run at once in one worker? As many as there are places, and a dead holder keeps none."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from pipeline import limits
from pipeline.core.job import Stage


@pytest.fixture
def holders() -> Iterator[list[int]]:
    made: list[int] = []
    yield made
    for pid in made:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def in_a_child(stage: Stage, most: int | None) -> tuple[int, bool]:
    """A pool process that asks for a place and stays; its pid, and whether it got one."""
    ear, mouth = os.pipe()
    pid = os.fork()
    if pid == 0:
        with limits.place(stage, most) as ours:
            os.write(mouth, b"y" if ours else b"n")
            signal.pause()
    os.close(mouth)
    answer = os.read(ear, 1)
    os.close(ear)
    return pid, answer == b"y"


def ask(holders: list[int], stage: Stage, most: int | None) -> bool:
    pid, ours = in_a_child(stage, most)
    holders.append(pid)
    return ours


def test_there_are_as_many_places_as_the_limit_says(holders: list[int]) -> None:
    assert [ask(holders, Stage.CLIP, 2) for _ in range(3)] == [True, True, False]


def test_each_stage_has_places_of_its_own(holders: list[int]) -> None:
    assert [ask(holders, stage, 1) for stage in Stage] == [True] * len(Stage)


def test_without_a_limit_everybody_has_a_place(holders: list[int]) -> None:
    assert [ask(holders, Stage.CLIP, None) for _ in range(3)] == [True] * 3


def test_a_place_is_free_again_when_its_holder_was_killed(holders: list[int]) -> None:
    pid, first = in_a_child(Stage.CLIP, 1)
    refused = ask(holders, Stage.CLIP, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

    heir = ask(holders, Stage.CLIP, 1)

    assert (first, refused, heir) == (True, False, True)


def test_a_place_is_free_again_when_the_stage_has_ended(holders: list[int]) -> None:
    with limits.place(Stage.CLIP, 1) as ours:
        during = ask(holders, Stage.CLIP, 1)
    after = ask(holders, Stage.CLIP, 1)

    assert (ours, during, after) == (True, False, True)
