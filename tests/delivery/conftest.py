"""Targets, samples and real processes for the conformance suite."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline import delivery
from pipeline.settings import Settings
from tests.delivery.places import PLACES, Bucket, Loaded, Place, Putter, Remote, Sample, sample_of
from tests.delivery.servers import Sshd, Weed, sshd, weed

__all__ = ["sshd", "weed"]  # fixtures

PUTTER = Path(__file__).with_name("putter.py")
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = PLACES[request.param](request, tmp_path)
    yield made
    made.close()


@pytest.fixture
def targets_file(place: Place, tmp_path: Path) -> Path:
    path = tmp_path / "targets.toml"
    path.write_text(place.toml)
    return path


@pytest.fixture
def target(targets_file: Path, monkeypatch: pytest.MonkeyPatch) -> delivery.Target:
    monkeypatch.setenv("TARGETS_FILE", str(targets_file))
    return delivery.load(Settings())["there"]


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return sample_of(tmp_path / "made" / "clip-final.mp4", os.urandom(5 * 1024**2 + 17))


@pytest.fixture
def targets_of(tmp_path: Path) -> Iterator[Callable[[str], Putter]]:
    """Start real processes that put a sample at a target, stopping where they are told to (see putter.py)."""
    running: list[subprocess.Popen[str]] = []

    def of(toml: str) -> Putter:
        told = tmp_path / "putter.toml"
        told.write_text(toml)

        def start(sample: Sample, wait_at: str, then: str = "go on") -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, str(PUTTER), str(sample.path), sample.key, sample.sha256, wait_at, then],
                env=os.environ | {"TARGETS_FILE": str(told), "PYTHONPATH": os.pathsep.join([str(CHECKOUT), *sys.path])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            running.append(process)
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            return process

        return start

    yield of
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def putter(place: Place, targets_of: Callable[[str], Putter]) -> Putter:
    return targets_of(place.toml)


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    def load(toml: str) -> delivery.Target:
        told = tmp_path / "other.toml"
        told.write_text(toml)
        monkeypatch.setenv("TARGETS_FILE", str(told))
        return delivery.load(Settings())["there"]

    return load


@pytest.fixture
def bucket(weed: Weed) -> Iterator[Bucket]:
    place = Bucket(weed, part_mb=5)
    yield place
    place.close()


@pytest.fixture
def remote(sshd: Sshd) -> Iterator[Remote]:
    place = Remote(sshd)
    yield place
    place.close()
