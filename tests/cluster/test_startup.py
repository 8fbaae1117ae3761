"""What do Celery's own commands say when something is missing? One sentence, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("program", ["worker", "beat", "flower"])
def test_a_command_without_its_settings_names_them_in_a_sentence(program: str) -> None:
    bare = {
        name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "BROKER_URL", "REDIS_URL")
    }

    ended = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "tasks", program],
        cwd=ROOT,
        env=bare,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ended.returncode != 0
    assert "DATABASE_URL and BROKER_URL are not set" in ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    assert len(ended.stderr.strip().splitlines()) == 1
