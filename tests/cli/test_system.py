"""The system itself answers from the command line: which database, which tables, which settings, who works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pipeline.store import migrate, workers
from pipeline.store.engine import database

Type = Callable[..., Any]


@pytest.mark.parametrize("command", [["list"], ["submit", "/etc/passwd", "--clip", "1-2"], ["workers"], ["migrate"]])
def test_without_a_database_one_sentence_says_what_to_do(ironclip: Type, tmp_path: Path, command: list[str]) -> None:
    typed = ironclip(*command, env={})
    as_json = ironclip(*command, "--json", env={})

    assert (typed.code, typed.out) == (2, "")
    assert typed.err.startswith("SETTING_INVALID: Neither DATABASE_URL and BROKER_URL are set")
    assert typed.err.count("\n") == 1
    assert as_json.json["error"]["code"] == "SETTING_INVALID"
    assert as_json.err == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["nonsense", "mysql://u:geheim@localhost/x"])
def test_an_address_of_another_kind_is_refused_by_name(ironclip: Type, url: str) -> None:
    typed = ironclip("list", env={"DATABASE_URL": url})

    assert typed.code == 2
    assert typed.err.startswith("SETTING_INVALID: DATABASE_URL cannot be used: ")
    assert "geheim" not in typed.err


def test_a_database_that_does_not_answer_ends_with_5(ironclip: Type) -> None:
    away = {"DATABASE_URL": "postgresql://u:p@127.0.0.1:1/x", "BROKER_URL": "redis://127.0.0.1:1/0"}

    assert ironclip("list", env=away).code == 5
    assert ironclip("migrate", "--json", env=away).json["error"]["code"] == "DATABASE_UNAVAILABLE"


def test_any_way_to_write_the_address_of_a_postgres_works(ironclip: Type, env: dict[str, str]) -> None:
    rest = env["DATABASE_URL"].partition("://")[2]

    for scheme in ("postgres", "postgresql", "postgresql+psycopg2"):
        assert ironclip("list", "--json", env=env | {"DATABASE_URL": f"{scheme}://{rest}"}).json["jobs"] == []


def test_tables_come_and_go_and_come_again(ironclip: Type, make_database: Callable[..., str]) -> None:
    empty = {"DATABASE_URL": make_database(migrated=False)}

    before = ironclip("list", env=empty)
    up = ironclip("migrate", "--json", env=empty)
    twice = ironclip("migrate", env=empty)
    down = ironclip("migrate", "--down", "--revision", "base", "--json", env=empty)
    again = ironclip("migrate", "--json", env=empty)

    assert (before.code, before.err.split(":")[0]) == (5, "NOT_MIGRATED")
    assert up.json == {"revision": migrate.head(), "head": migrate.head()}
    assert twice.out == f"The database is at revision {migrate.head()} (the newest).\n"
    assert down.json["revision"] == "base"
    assert again.json["revision"] == migrate.head()


def test_a_revision_that_does_not_exist_is_refused(ironclip: Type) -> None:
    unknown = ironclip("migrate", "--revision", "nope")
    unsaid = ironclip("migrate", "--down")

    assert (unknown.code, unknown.err.split(":")[0]) == (2, "UNKNOWN_REVISION")
    assert (unsaid.code, unsaid.err.split(":")[0]) == (2, "REVISION_REQUIRED")


def test_config_names_every_setting_and_its_origin_and_hides_secrets(ironclip: Type, env: dict[str, str]) -> None:
    typed = ironclip("config", "--json", env=env | {"LEASE_TIMEOUT_SEC": "77"})
    read = ironclip("config")
    by_name = {each["name"]: each for each in typed.json["settings"]}

    password = env["DATABASE_URL"].split(":")[2].partition("@")[0]
    assert by_name["DEFAULT_LEASE_SEC"]["value"] == "77.0"
    assert by_name["DEFAULT_LEASE_SEC"]["origin"] == "environment (LEASE_TIMEOUT_SEC)"
    assert by_name["HEARTBEAT_SEC"]["origin"] == "default"
    assert all(each["why"] for each in by_name.values())
    assert password not in typed.out + read.out
    assert "***" in by_name["DATABASE_URL"]["value"]


def test_config_needs_no_database_and_names_a_bad_value(ironclip: Type) -> None:
    bad = ironclip("config", env={"HEARTBEAT_SEC": "-1"})

    assert ironclip("config", env={}).code == 0
    assert bad.code == 2
    assert bad.err.startswith("SETTING_INVALID: HEARTBEAT_SEC cannot be used: ")


def test_workers_are_listed_with_how_long_they_have_been_silent(ironclip: Type, env: dict[str, str]) -> None:
    nobody = ironclip("workers")
    worker = uuid4()
    workers.register(
        database(), worker, name="one@here", hostname="here", queues=["io", "media"], slots=2, boot_id=None, pid=1,
        pid_started=None,
    )  # fmt: skip
    typed = ironclip("workers", "--json")

    assert nobody.out == "No worker has ever been here.\n"
    assert [(w["id"], w["status"], w["queues"]) for w in typed.json["workers"]] == [
        (str(worker), "idle", ["io", "media"])
    ]
    assert typed.json["workers"][0]["silent_s"] >= 0


def test_every_command_explains_itself_and_bare_words_are_bad_usage(ironclip: Type) -> None:
    help_ = ironclip("--help", env={})

    for command in ("demo", "up", "submit", "list", "show", "watch", "logs", "cancel", "requeue", "workers", "migrate",
                    "config"):  # fmt: skip
        assert command in help_.out
    assert ironclip("--version", env={}).code == 0
    assert ironclip(env={}).code == 2
    assert ironclip("dance", env={}).code == 2
    assert ironclip("dance", "--json", env={}).json["error"]["code"] == "BAD_USAGE"


def test_recover_says_what_it_did(ironclip: Type) -> None:
    assert ironclip("recover").out == "0 recovered, 0 failed.\n"
    assert ironclip("recover", "--json").json == {"recovered": [], "failed": []}
