"""A worker app that also knows the targets of `tests/stages/flaky.py`. Our own code has no such kind."""

from __future__ import annotations

from tasks import app
from tests.stages import flaky

__all__ = ["app"]

flaky.register()
