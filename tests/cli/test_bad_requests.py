"""What cannot be a job is refused under the right code, with one sentence, and leaves no row and no file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.app import run
from pipeline.store import reads
from pipeline.store.engine import database

CLIP = {"start": 1, "end": 2}
NOT_NUMBERS = [float("nan"), float("inf")]

# What is wrong, and the code and the field that say so. SOURCE stands for a file that exists.
REQUESTS: list[tuple[Any, str, str | None]] = [
    ([], "NOT_AN_OBJECT", None),
    ("text", "NOT_AN_OBJECT", None),
    ({"clips": [CLIP]}, "SOURCE_REQUIRED", "source"),
    ({"source": "  ", "clips": [CLIP]}, "SOURCE_REQUIRED", "source"),
    ({"source": 7, "clips": [CLIP]}, "SOURCE_REQUIRED", "source"),
    ({"source": "/a\x07b.mp4", "clips": [CLIP]}, "SOURCE_UNUSABLE", "source"),
    ({"source": "/no/such/film.mp4", "clips": [CLIP]}, "SOURCE_MISSING", "source"),
    ({"source": "film.mp4", "clips": [CLIP]}, "SOURCE_NOT_ABSOLUTE", "source"),
    ({"source": "/etc", "clips": [CLIP]}, "SOURCE_NOT_A_FILE", "source"),
    ({"source": "ftp://example.org/film.mp4", "clips": [CLIP]}, "SOURCE_SCHEME", "source"),
    ({"source": "http://127.0.0.1/film.mp4", "clips": [CLIP]}, "SOURCE_FORBIDDEN", "source"),
    ({"source": "http://", "clips": [CLIP]}, "SOURCE_URL", "source"),
    ({"source": "SOURCE"}, "NO_CLIPS", "clips"),
    ({"source": "SOURCE", "clips": []}, "NO_CLIPS", "clips"),
    ({"source": "SOURCE", "clips": "1-2"}, "CLIPS_NOT_A_LIST", "clips"),
    ({"source": "SOURCE", "clips": [[1, 2]]}, "CLIP_NOT_AN_OBJECT", "clips[0]"),
    ({"source": "SOURCE", "clips": [CLIP] * 201}, "TOO_MANY_CLIPS", "clips"),
    (
        {"source": "SOURCE", "clips": [{"name": str(n)} for n in range(200)], "qualities": ["source", "720p", "360p"]},
        "TOO_MANY_OUTPUTS",
        "clips",
    ),
    ({"source": "SOURCE", "clips": [{"start": 5, "end": 5}]}, "CLIP_END_BEFORE_START", "clips[0].end"),
    ({"source": "SOURCE", "clips": [CLIP, {"start": 9, "end": 3}]}, "CLIP_END_BEFORE_START", "clips[1].end"),
    ({"source": "SOURCE", "clips": [{"start": "soon"}]}, "BAD_TIME", "clips[0].start"),
    ({"source": "SOURCE", "clips": [{"start": "00:61:00"}]}, "BAD_TIME", "clips[0].start"),
    ({"source": "SOURCE", "clips": [{"end": True}]}, "BAD_TIME", "clips[0].end"),
    *(({"source": "SOURCE", "clips": [{"end": number}]}, "BAD_TIME", "clips[0].end") for number in NOT_NUMBERS),
    ({"source": "SOURCE", "clips": [{"start": -1}]}, "NEGATIVE_TIME", "clips[0].start"),
    ({"source": "SOURCE", "clips": [{"start": 90_000}]}, "TIME_TOO_LARGE", "clips[0].start"),
    ({"source": "SOURCE", "clips": [{**CLIP, "name": "../up"}]}, "CLIP_NAME_BAD", "clips[0].name"),
    ({"source": "SOURCE", "clips": [{**CLIP, "name": "a"}, {**CLIP, "name": "A"}]}, "CLIP_NAME_TWICE", "clips[1].name"),
    ({"source": "SOURCE", "clips": [{**CLIP, "speed": 2}]}, "UNKNOWN_FIELD", "clips[0].speed"),
    ({"source": "SOURCE", "clips": [CLIP], "qualty": ["720p"]}, "UNKNOWN_FIELD", "qualty"),
    ({"source": "SOURCE", "clips": [CLIP], "qualities": ["721p"]}, "UNKNOWN_QUALITY", "qualities[0]"),
    ({"source": "SOURCE", "clips": [CLIP], "qualities": ["720p", "720p"]}, "QUALITY_TWICE", "qualities[1]"),
    ({"source": "SOURCE", "clips": [CLIP], "qualities": []}, "QUALITY_LIST_BAD", "qualities"),
    ({"source": "SOURCE", "clips": [CLIP], "targets": ["local", "moon"]}, "UNKNOWN_TARGET", "targets[1]"),
    ({"source": "SOURCE", "clips": [CLIP], "targets": "local"}, "TARGET_LIST_BAD", "targets"),
    ({"source": "SOURCE", "clips": [CLIP], "captions": "yes"}, "NOT_A_FLAG", "captions"),
    ({"source": "SOURCE", "clips": [CLIP], "language": "English"}, "BAD_LANGUAGE", "language"),
    ({"source": "SOURCE", "clips": [CLIP], "priority": "urgent"}, "BAD_PRIORITY", "priority"),
    ({"source": "SOURCE", "clips": [CLIP], "account": "nobody"}, "UNKNOWN_ACCOUNT", "account"),
    ({"source": "SOURCE", "clips": [CLIP], "account": "a b"}, "BAD_ACCOUNT", "account"),
    ({"source": "SOURCE", "clips": [CLIP], "max_attempts": 0}, "BAD_MAX_ATTEMPTS", "max_attempts"),
    ({"source": "SOURCE", "clips": [CLIP], "deadline_s": 0}, "BAD_DEADLINE", "deadline_s"),
]

# The same on the command line: options, code, and what the sentence must name.
OPTIONS: list[tuple[list[str], str, str]] = [
    (["SOURCE", "--clip", "5"], "BAD_CLIP", "START-END"),
    (["SOURCE", "--clip", "9-3"], "CLIP_END_BEFORE_START", "clips[0]"),
    (["SOURCE", "--clip", "5--3"], "NEGATIVE_TIME", "clips[0].end"),
    (["SOURCE", "--clip", "1-2", "--clip", "nan-2"], "BAD_TIME", "clips[1].start"),
    (["SOURCE", "--clip", "1-2=a/b"], "CLIP_NAME_BAD", "clips[0]"),
    (["SOURCE"], "NO_CLIPS", "at least one clip"),
    (["--clip", "1-2"], "SOURCE_REQUIRED", "source"),
    (["nothing-here.mp4", "--clip", "1-2"], "SOURCE_MISSING", "nothing-here.mp4"),
    (["SOURCE", "--clip", "1-2", "--target", "moon"], "UNKNOWN_TARGET", "moon"),
    (["SOURCE", "--clip", "1-2", "--idempotency-key", ""], "BAD_IDEMPOTENCY_KEY", "printable"),
    (["SOURCE", "--clip", "1-2", "--max-attempts", "many"], "BAD_USAGE", "--max-attempts"),
    (["SOURCE", "--clip", "1-2", "--colour", "red"], "BAD_USAGE", "--colour"),
    (["--from-json", "no-such-file.json"], "UNREADABLE_FILE", "no-such-file.json"),
]


@pytest.mark.parametrize(("request_", "code", "field"), REQUESTS, ids=lambda value: str(value)[:60])
def test_a_bad_request_is_refused_with_its_code_and_field_and_leaves_nothing(
    request_: Any, code: str, field: str | None, env: dict[str, str], source: Path, tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(request_).replace('"SOURCE"', json.dumps(str(source))))
    before = _files(tmp_path)

    exit_code = run(["submit", "--from-json", str(path), "--json"])

    error = json.loads(capsys.readouterr().out)["error"]
    assert (exit_code, error["code"], error["field"]) == (2, code, field)
    assert error["message"].endswith(".")
    assert "\n" not in error["message"]
    assert reads.counts(database()) == []
    assert _files(tmp_path) == before


@pytest.mark.parametrize(("options", "code", "named"), OPTIONS, ids=lambda value: str(value)[:60])
def test_bad_options_end_with_one_sentence_on_stderr(
    options: list[str], code: str, named: str, env: dict[str, str], source: Path, tmp_path: Path, capsys: Any
) -> None:
    before = _files(tmp_path)

    exit_code = run(["submit", *(str(source) if option == "SOURCE" else option for option in options)])

    told = capsys.readouterr()
    assert exit_code == 2
    assert told.out == ""
    assert told.err.startswith(f"{code}: ")
    assert named in told.err
    assert told.err.count("\n") == 1
    assert reads.counts(database()) == []
    assert _files(tmp_path) == before


def test_json_that_is_none_is_refused_wherever_it_comes_from(ironclip: Callable[..., Any]) -> None:
    typed = ironclip("submit", "--from-json", "-", stdin="{'source': 1}")

    assert typed.code == 2
    assert typed.err.startswith("BAD_JSON: ")
    assert typed.out == ""


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))
