"""Does one listener hear each event once, whatever comes between its joining and its catching up?"""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

from pipeline.api import hub as hubs
from pipeline.api.events import Stream
from pipeline.api.hub import Hub, Listener, Shown

JOB = uuid4()


def told(*numbers: int, job: UUID = JOB) -> list[Shown]:
    return [Shown(n, job, None, f"id: {n}\n\n".encode()) for n in numbers]


def numbers(text: bytes) -> list[int]:
    return [int(line.removeprefix(b"id: ")) for line in text.splitlines() if line.startswith(b"id: ")]


def test_what_comes_while_a_listener_catches_up_is_heard_once() -> None:
    async def play() -> list[int]:
        hub = Hub()
        hub._begin(0)
        hub._offer(told(1, 2))
        listener = Listener(uuid4())
        hub.join(listener)
        hub._offer(told(3, 4))  # it hears these by itself, and finds them when it catches up
        texts, heard = Stream(hub, listener, 0)._texts(), []
        while 4 not in heard:
            heard += numbers(await anext(texts))
        hub._offer(told(5))
        while 5 not in heard:
            heard += numbers(await anext(texts))
        return heard

    assert asyncio.run(play()) == [0, 1, 2, 3, 4, 5]


def test_who_is_too_far_behind_is_cut_and_costs_nothing_more() -> None:
    async def play() -> tuple[bool, bool, int]:
        hub = Hub()
        hub._begin(0)
        lazy, busy = Listener(uuid4()), Listener(uuid4())
        hub.join(lazy)
        hub.join(busy)
        for n in range(1, hubs.QUEUE + 3):
            hub._offer(told(n))
            await busy.heard(1)
        return lazy.is_cut, busy.is_cut, len(lazy._waiting)

    assert asyncio.run(play()) == (True, False, 0)


def test_only_so_many_events_are_remembered() -> None:
    async def play() -> tuple[int, int]:
        hub = Hub()
        hub._begin(0)
        hub._offer(told(*range(1, hubs.RECENT + 11)))
        return len(hub.recent), hub.position

    assert asyncio.run(play()) == (hubs.RECENT, hubs.RECENT + 10)
