"""Does a line say what happened to whom, in one form for everybody, and without a secret?"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline import log


@pytest.fixture
def lines() -> Iterator[Any]:
    """Call it for what was written since, parsed."""
    root = logging.getLogger()
    handlers, level, stream = root.handlers[:], root.level, io.StringIO()
    log.set_up("INFO", stream, worker="w1")
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    log._everywhere.clear()
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_carries_what_was_bound_around_it(lines: Any) -> None:
    with log.bind(job_id="j", stage="clip", attempt=2):
        log.get("x").info("stage started", extra={"unit": "a"})
    log.get("x").info("after")

    first, second = lines()
    told = {
        name: first[name] for name in ("level", "logger", "message", "job_id", "stage", "attempt", "worker", "unit")
    }
    assert told == {
        "level": "info",
        "logger": "ironclip.x",
        "message": "stage started",
        "job_id": "j",
        "stage": "clip",
        "attempt": 2,
        "worker": "w1",
        "unit": "a",
    }
    assert second["worker"] == "w1"
    assert "job_id" not in second


def test_what_celery_and_libraries_say_has_the_same_form(lines: Any) -> None:
    logging.getLogger("celery.worker.strategy").info("Task %s[%s] received", "pipeline.clip", "id")
    logging.getLogger("celery.redirected").warning("to redis://:hidden@127.0.0.1/0")

    received, other = lines()
    assert (received["message"], received["worker"]) == ("Task pipeline.clip[id] received", "w1")
    assert other["message"] == "to redis://***@127.0.0.1/0"


SECRETS = {
    "postgresql://ironclip:hidden@db/x": "postgresql://***@db/x",
    "https://b/k?X-Amz-Date=1&X-Amz-Credential=hidden&X-Amz-Signature=hidden": (
        "https://b/k?X-Amz-Date=1&X-Amz-Credential=***&X-Amz-Signature=***"
    ),
    "https://h/p?token=hidden&b=2": "https://h/p?token=***&b=2",
    "https://h/f?expires=1&signature=hidden#x": "https://h/f?expires=1&signature=***#x",
    "Authorization: Bearer hidden-hidden": "Authorization: ***",
    "sent Bearer hidden.hidden.hidden": "sent Bearer ***",
    "Cookie: session=hidden": "Cookie: ***",
    "X-Admin-Secret: hidden": "X-Admin-Secret: ***",
    "password=hidden user=bob": "password=*** user=bob",
    "aws_secret_access_key = hidden": "aws_secret_access_key = ***",
    '{"api_key": "hidden", "n": 1}': '{"api_key": "***", "n": 1}',
    "-----BEGIN PRIVATE KEY-----\nhidden\n-----END PRIVATE KEY-----": "***",
}


@pytest.mark.parametrize("said", SECRETS)
def test_no_line_shows_a_secret(lines: Any, said: str) -> None:
    log.get("x").info("said %s", said, extra={"field": said, "deep": {"list": [said]}})

    (line,) = lines()
    assert "hidden" not in json.dumps(line)
    assert line["message"] == f"said {SECRETS[said]}"
    assert line["deep"]["list"] == [SECRETS[said]]


def test_a_field_whose_name_says_secret_is_not_shown_whatever_it_holds(lines: Any) -> None:
    named = ("secret", "webhook_secret", "token", "api_key", "Authorization", "password", "aws_secret_access_key")
    log.get("x").info("x", extra={"headers": dict.fromkeys(named, "hidden")} | {"token": "hidden"})

    (line,) = lines()
    assert set(line["headers"].values()) == {"***"}
    assert line["token"] == "***"


def test_a_traceback_shows_no_secret(lines: Any) -> None:
    try:
        raise ValueError("no route to redis://:hidden@h/0")
    except ValueError:
        log.get("x").exception("failed")

    (line,) = lines()
    assert "ValueError" in line["traceback"]
    assert "hidden" not in line["traceback"]


@pytest.mark.parametrize(
    "said",
    [
        "stage ended",
        "ann@example.org wrote",
        "the token bucket is full",
        "monkey=3",
        "a & b?",
        "Basic sanity",
        "key: c4",
    ],
)
def test_what_is_no_secret_stays(lines: Any, said: str) -> None:
    log.get("x").info(said)

    assert lines()[0]["message"] == said


def test_as_text_a_line_is_for_people_and_as_safe(lines: Any) -> None:
    stream = io.StringIO()
    log.set_up("INFO", stream, form="text", worker="w1")
    with log.bind(job_id="j", stage="clip"):
        log.get("x").warning("asked redis://:hidden@h", extra={"reason": "password=hidden", "n": 1})

    written = stream.getvalue()
    assert written.endswith(" WARNING asked redis://***@h job_id=j stage=clip worker=w1 reason=password=*** n=1\n")
