"""Does the API do what its OpenAPI document says, whatever is thrown at it? No 500, no answer outside of its schema."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.api.conftest import Api

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
EXAMPLES = int(os.environ.get("IRONCLIP_SCHEMA_EXAMPLES", "4"))  # per route and kind of input; more by hand


def test_nothing_that_is_sent_gets_a_500_or_an_answer_outside_of_the_schema(
    make_api: Callable[..., Api], tmp_path: Path
) -> None:
    api = make_api(API_TIMEOUT_SEC="20")  # slow is not wrong here
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{api.url}/api/openapi.json"),
        *("--header", f"Authorization: Bearer {api.key('admin')}"),
        *("--checks", ",".join(CHECKS)),
        *("--phases", "examples,coverage,fuzzing"),
        *("--max-examples", str(EXAMPLES), "--workers", "1"),  # 3.11: two threads that parse break each other
        *("--exclude-path-regex", "events$"),  # these answers never end
        *("--generation-database", "none", "--seed", "1", "--no-color", "--request-timeout", "30"),
    ]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170)

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "request failed" not in api.log
