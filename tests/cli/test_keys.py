"""Keys for the HTTP API from the command line, and the command that serves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pipeline.embedded.server import free_port
from pipeline.store import keys
from pipeline.store.engine import database

Type = Callable[..., Any]


def test_a_key_is_shown_once_listed_without_itself_and_revoked(ironclip: Type) -> None:
    made = ironclip("keys", "create", "--role", "client", "--account", "shop", "--name", "web", "--json").json
    listed = ironclip("keys", "list", "--json")
    shown = ironclip("keys")
    before = keys.find(database(), made["key"])
    revoked = ironclip("keys", "revoke", made["prefix"])
    after = keys.find(database(), made["key"])

    assert before is not None
    assert (before.role, before.account) == ("client", "shop")
    assert after is None
    assert revoked.code == 0
    assert [(key["prefix"], key["name"]) for key in listed.json["keys"]] == [(made["prefix"], "web")]
    assert made["key"] not in listed.out + shown.out


def test_what_cannot_be_a_key_is_refused_by_name(ironclip: Type) -> None:
    told = {
        ("keys", "create"): "ACCOUNT_REQUIRED",
        ("keys", "create", "--account", "no/slash"): "BAD_ACCOUNT",
        ("keys", "create", "--role", "admin", "--account", "shop"): "ACCOUNT_NOT_ALLOWED",
        ("keys", "revoke"): "KEY_REQUIRED",
        ("keys", "revoke", "nobody"): "NO_SUCH_KEY",
    }

    for argv, code in told.items():
        assert ironclip(*argv, "--json").json["error"]["code"] == code


def test_an_address_that_is_taken_is_told_in_one_sentence(ironclip: Type, started: Type, env: dict[str, str]) -> None:
    port = str(free_port())
    first = started("api", "--port", port, "--json", env=env)
    assert first.stdout is not None
    ready = json.loads(first.stdout.readline())

    second = ironclip("api", "--port", port)

    assert ready == {"event": "ready", "address": f"http://127.0.0.1:{port}"}
    assert second.code == 2
    assert "SETTING_INVALID: Nobody can listen on 127.0.0.1" in second.err
