"""What may a test with real workers count on? A system of its own, or one that is shared and already warm."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.media.sample import make_sample
from tests.cluster.flower import Watching
from tests.cluster.system import System, inside

_number = itertools.count(1)


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 s of 1280x720 at 30 pictures a second, with speech and a keyframe every 2 s."""
    return make_sample(tmp_path_factory.mktemp("sample") / "sample.mp4", seconds=20)


@pytest.fixture
def make_system(
    tmp_path_factory: pytest.TempPathFactory, make_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., System]]:
    """Call it for a system of one's own, with changed settings; nothing is started on it yet but its broker."""
    made: list[tuple[System, object]] = []

    def make(**changes: str) -> System:
        system = System(tmp_path_factory.mktemp("system") / "home", make_database(), **changes)
        door = inside(system, monkeypatch)
        made.append((system, door))
        return door.__enter__()

    yield make
    for system, door in made:
        door.__exit__(None, None, None)
        system.close()


@pytest.fixture
def system(make_system: Callable[..., System]) -> System:
    """A system of one's own without workers."""
    return make_system()


@pytest.fixture(scope="session")
def _warm(tmp_path_factory: pytest.TempPathFactory, make_database: Callable[..., str]) -> Iterator[System]:
    system = System(tmp_path_factory.mktemp("warm") / "home", make_database())
    try:
        system.worker(wait=False)
        system.beat()
        system.nodes[0].ready()
        yield system
    finally:
        system.close()


@pytest.fixture
def warm(_warm: System, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    """A system with a worker of two slots and beat. It is shared: look at your own jobs only, and break nothing."""
    with inside(_warm, monkeypatch) as system:
        yield system


@pytest.fixture
def flower(warm: System) -> Iterator[Watching]:
    """What Flower would show of the warm system from now on."""
    with Watching(warm.env["BROKER_URL"]) as watching:
        yield watching
