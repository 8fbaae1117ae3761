"""Operators say who is to be told, see what was sent, and send it again, from the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from pipeline import webhooks
from pipeline.store import endpoints
from pipeline.store.engine import Database, database
from tests.webhooks.world import SECRET, Place, rows, standing

Type = Callable[..., Any]


@pytest.fixture
def place() -> Iterator[Place]:
    with standing() as made:
        yield made


@pytest.fixture
def told(env: dict[str, str]) -> dict[str, str]:
    return {**env, "WEBHOOK_ALLOW_HOSTS": "127.0.0.1", "WEBHOOK_SECRET": SECRET}


def given_up(db: Database, endpoint: str) -> str:
    """A delivery that was given up."""
    delivery = str(uuid4())
    db.run(
        endpoints.text(
            "INSERT INTO webhook_deliveries (id, endpoint_id, type, payload, url, status, attempt_count, last_error)"
            " VALUES (:id, :endpoint, 'job_stalled', '{}', 'https://example.org/hidden', 'failed', 8, 'HTTP 500')"
        ),
        id=delivery,
        endpoint=endpoint,
    )
    return delivery


def test_an_endpoint_is_added_tried_listed_and_removed(ironclip: Type, told: dict[str, str], place: Place) -> None:
    added = ironclip("webhooks", "add", place.url, "--type", "job_stalled", "--json", env=told).json
    tried = ironclip("webhooks", "test", added["endpoint"], env=told)
    listed = ironclip("webhooks", "--json", env=told)
    removed = ironclip("webhooks", "remove", added["endpoint"], env=told)

    (got,) = place.got
    assert tried.out == "It was taken.\n"
    assert got.json["type"] == "test"
    at = float(got.headers[webhooks.SIGNATURE].split(",")[0].removeprefix("t="))
    assert webhooks.verify(added["secret"], got.headers[webhooks.SIGNATURE], got.body, at)
    assert [(e["id"], e["types"]) for e in listed.json["endpoints"]] == [(added["endpoint"], ["job_stalled"])]
    assert added["secret"] not in listed.out  # it was shown once
    assert removed.code == 0
    assert ironclip("webhooks", env=told).out == "No endpoint is registered.\n"


def test_an_endpoint_that_takes_nothing_is_said_so_and_not_tried_again(
    ironclip: Type, told: dict[str, str], place: Place
) -> None:
    place.answer = 500
    added = ironclip("webhooks", "add", place.url, "--json", env=told).json

    tried = ironclip("webhooks", "test", added["endpoint"], env=told)

    assert (tried.code, tried.out) == (1, "It was not taken: HTTP 500\n")
    assert rows(database(), "SELECT status FROM webhook_deliveries") == [{"status": "failed"}]


def test_what_was_given_up_is_seen_without_its_address_and_sent_again(ironclip: Type, told: dict[str, str]) -> None:
    added = ironclip("webhooks", "add", "https://example.org/hidden", "--json", env=told).json
    one, other = given_up(database(), added["endpoint"]), given_up(database(), added["endpoint"])

    history = ironclip("webhooks", "history", "--failed", env=told)
    replayed = ironclip("webhooks", "replay", one, "--json", env=told).json
    rest = ironclip("webhooks", "replay", "--failed", env=told)

    assert "hidden" not in history.out
    assert one in history.out
    assert "HTTP 500" in history.out
    assert replayed == {"replayed": [one]}
    assert rest.out == "1 to be sent again.\n"
    assert {str(d["id"]): d["status"] for d in endpoints.history(database())} == {one: "pending", other: "pending"}


def test_removing_an_endpoint_gives_up_what_was_still_to_be_sent(ironclip: Type, told: dict[str, str]) -> None:
    added = ironclip("webhooks", "add", "https://example.org/x", "--json", env=told).json
    delivery = given_up(database(), added["endpoint"])
    ironclip("webhooks", "replay", delivery, env=told)

    ironclip("webhooks", "remove", added["endpoint"], env=told)

    (left,) = endpoints.history(database())
    assert (left["status"], left["last_error"]) == ("failed", "the endpoint was removed")


def test_the_secret_of_an_account_is_its_own(ironclip: Type, told: dict[str, str]) -> None:
    anns = ironclip("webhooks", "secret", "--account", "ann", env=told).out.strip()

    assert anns == webhooks.secret_of(SECRET, "ann")
    assert anns != ironclip("webhooks", "secret", env=told).out.strip()
    assert SECRET not in ironclip("config", env=told).out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["add"], "BAD_WEBHOOK_URL"),
        (["add", "ftp://example.org/x"], "BAD_WEBHOOK_URL"),
        (["add", "https://me:secret@example.org/x"], "BAD_WEBHOOK_URL"),
        (["add", "https://example.org", "--type", "everything"], "UNKNOWN_WEBHOOK_TYPE"),
        (["add", "https://example.org", "--type", "worker_startup", "--account", "ann"], "UNKNOWN_WEBHOOK_TYPE"),
        (["remove"], "ENDPOINT_REQUIRED"),
        (["remove", "5d1f4c9a-7f2a-4b65-8a3e-52a4f1f2a0de"], "NO_SUCH_ENDPOINT"),
        (["test", "nonsense"], "NO_SUCH_ENDPOINT"),
        (["replay"], "NO_SUCH_DELIVERY"),
        (["replay", "nonsense"], "NO_SUCH_DELIVERY"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    ironclip: Type, told: dict[str, str], words: list[str], code: str
) -> None:
    answer = ironclip("webhooks", *words, env=told)

    assert answer.code == 2
    assert answer.err.startswith(code)
