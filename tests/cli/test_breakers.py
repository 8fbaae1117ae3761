"""Operators see which services are given up, give one up, and take it back, from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from pipeline import intake
from pipeline.core.breaker import FIRST_OPEN, THRESHOLD
from pipeline.core.moves import Claim, Defer
from pipeline.store import breakers, jobs
from pipeline.store.engine import database

Type = Callable[..., Any]
NAS = "target:nas"


def break_down() -> None:
    for _ in range(THRESHOLD):
        breakers.fault(database(), NAS, uuid4(), "nas: put: Input/output error.")


def a_job_that_waits(source: Path) -> UUID:
    job = intake.enqueue({"source": str(source), "clips": [{"start": 0, "end": 1}]})
    fence = uuid4()
    jobs.apply(database(), job.id, Claim(stage=job.stage, holder="test", fence=fence, lease=FIRST_OPEN))
    jobs.apply(
        database(),
        job.id,
        Defer(fence=fence, code="TARGET_DOWN", reason="no", service=NAS, delay=FIRST_OPEN, max_wait=10 * FIRST_OPEN),
    )
    return job.id


def test_without_any_trouble_there_is_nothing_to_see(ironclip: Type) -> None:
    assert ironclip("breakers").out == "No service has ever failed.\n"
    assert ironclip("breakers", "--json").json == {"breakers": []}


def test_the_list_says_what_is_given_up_until_when_and_who_waits(
    ironclip: Type, env: dict[str, str], source: Path
) -> None:
    break_down()
    a_job_that_waits(source)

    read = ironclip("breakers")
    (seen,) = ironclip("breakers", "--json").json["breakers"]

    heading, line = read.out.splitlines()
    assert heading.split()[:6] == ["SERVICE", "STATE", "FAILURES", "OPEN", "UNTIL", "OPENINGS"]
    assert line.split()[:3] == [NAS, "open", "5"]
    assert line.split()[5:] == ["1", "1", "nas:", "put:", "Input/output", "error."]
    assert (seen["service"], seen["state"], seen["failures"], seen["openings"], seen["waiting"]) == (
        NAS,
        "open",
        5,
        1,
        1,
    )
    assert seen["opens_at"] is not None


def test_trip_gives_a_service_up_and_says_for_how_long(ironclip: Type, env: dict[str, str]) -> None:
    typed = ironclip("breakers", "trip", NAS)
    again = ironclip("breakers", "trip", NAS, "--json").json

    assert typed.code == 0
    assert typed.out.startswith(f"Nobody asks {NAS} until ")
    assert (again["service"], again["state"]) == (NAS, "open")
    seen = breakers.shown(database())[0]
    assert seen["state"] == "open"
    assert seen["last_failure"].startswith("tripped by cli")


def test_reset_takes_a_service_back_and_wakes_whoever_waits(ironclip: Type, env: dict[str, str], source: Path) -> None:
    break_down()
    job = a_job_that_waits(source)

    typed = ironclip("breakers", "reset", NAS)
    again = ironclip("breakers", "reset", NAS, "--json").json

    assert (typed.code, typed.out) == (0, f"{NAS} may be asked again; 1 waiting job is due.\n")
    assert again == {"service": NAS, "state": "closed", "woken": 0}
    assert breakers.load(database(), NAS).breaker.lets_through()
    assert jobs.read(database(), job)[0].waiting_on is None


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["trip", "nas"], "BAD_SERVICE"),
        (["trip", "target:"], "BAD_SERVICE"),
        (["trip", "brokers"], "BAD_SERVICE"),
        (["trip"], "SERVICE_REQUIRED"),
        (["reset"], "SERVICE_REQUIRED"),
        (["reset", NAS], "NO_SUCH_BREAKER"),
        (["mend", NAS], "BAD_USAGE"),
    ],
    ids=str,
)
def test_what_cannot_be_done_ends_in_one_sentence(
    ironclip: Type, env: dict[str, str], words: list[str], code: str
) -> None:
    typed = ironclip("breakers", *words)

    assert (typed.code, typed.out) == (2, "")
    assert typed.err.startswith(f"{code}: ")
    assert typed.err.count("\n") == 1
    assert ironclip("breakers", *words, "--json").json["error"]["code"] == code
    assert breakers.shown(database()) == []


def test_without_a_database_one_sentence_says_what_to_do(ironclip: Type) -> None:
    typed = ironclip("breakers", env={})

    assert (typed.code, typed.err.split(":")[0]) == (2, "SETTING_INVALID")
