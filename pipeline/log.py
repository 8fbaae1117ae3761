"""How do we say what happened? As one JSON object a line: a stable message in the past tense, and fields.

`bind` names the job, stage and attempt once; every line written below it carries them.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

_bound: ContextVar[dict[str, Any] | None] = ContextVar("bound", default=None)
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One object a line: when, how bad, who speaks, what happened, and every field that came along."""

    def format(self, record: logging.LogRecord) -> str:
        extra = {k: v for k, v in vars(record).items() if k not in _USUAL and not k.startswith("_")}
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **(_bound.get() or {}),
            **extra,
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)[-4000:]
        return json.dumps(line, default=str)


@contextmanager
def bind(**fields: Any) -> Iterator[None]:
    """Every line logged inside carries these fields."""
    token = _bound.set({**(_bound.get() or {}), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def set_up(level: str, stream: TextIO = sys.stderr) -> None:
    """Log as JSON to a stream, in place of whatever was set up before."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def get(name: str) -> logging.Logger:
    """A logger below `ironclip`."""
    return logging.getLogger(f"ironclip.{name}")
