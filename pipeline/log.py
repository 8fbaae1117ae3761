"""How do we say what happened? As one JSON object a line: a stable message in the past tense, and fields.

`bind` names the job, stage and attempt once; every line written below it carries them. `set_up` makes all of a process
speak like that, Celery included, under the worker's name. No line shows a secret: what looks like one is replaced.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

_bound: ContextVar[dict[str, Any] | None] = ContextVar("bound", default=None)
_everywhere: dict[str, Any] = {}  # fields of every line of this process
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OUR_ORDER = ("job_id", "stage", "attempt", "worker")
TRACEBACK = 4000


# -- secrets ---------------------------------------------------------------------------------------------------------

GONE = "***"
_NAMED = (
    r"password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|authorization|cookie"
    r"|signature|sig|credential|session[_-]?id|x-admin-secret"
)
_SECRET_NAME = re.compile(rf"(?i)(?:^|[_.\-])(?:{_NAMED})$|^(?:{_NAMED})(?:$|[_\-])")
_SECRETS = (
    # scheme://user:password@host
    (re.compile(r"(?<=://)[^/@\s\"'<>]*@"), f"{GONE}@"),
    # ?X-Amz-Signature=...&token=...
    (re.compile(rf"(?i)([?&](?:[\w.\-]*[_.\-])?(?:{_NAMED}|key|policy|key-pair-id)=)[^&#\s\"'<>]+"), rf"\1{GONE}"),
    # Authorization: Bearer ...   Cookie: ...
    (
        re.compile(
            r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-admin-secret)(['\"]?\s*[:=]\s*)[^\r\n,}]+"
        ),
        rf"\1\2{GONE}",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {GONE}"),
    # password=...   "secret": "..."
    (re.compile(rf"(?i)\b((?:[\w]*_)?(?:{_NAMED}))(['\"]?\s*[:=]\s*['\"]?)(?!\*\*\*)[^\s'\",&;)}}]+"), rf"\1\2{GONE}"),
    # keys that are known by their looks
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), GONE),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL), GONE),
)
_SUSPICIOUS = re.compile(rf"(?i)@|[?&]|{_NAMED}|bearer|basic|AKIA|ASIA|PRIVATE KEY")


def redacted(value: Any) -> Any:
    """The value without what must not be shown: passwords in addresses, signatures in queries, keys, authorizations."""
    if isinstance(value, str):
        if not _SUSPICIOUS.search(value):
            return value
        for pattern, instead in _SECRETS:
            value = pattern.sub(instead, value)
        return value
    if isinstance(value, dict):
        return {name: GONE if _is_secret(name, each) else redacted(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(each) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return redacted(str(value))


def _is_secret(name: Any, value: Any) -> bool:
    return isinstance(value, str | bytes) and bool(value) and bool(_SECRET_NAME.search(str(name)))


# -- lines -----------------------------------------------------------------------------------------------------------


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    extra = {k: v for k, v in vars(record).items() if k not in _USUAL and not k.startswith("_")}
    return {**_everywhere, **(_bound.get() or {}), **extra}


def _at(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


class JsonFormatter(logging.Formatter):
    """One object a line: when, how bad, who speaks, what happened, and every field that came along."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)[-TRACEBACK:]
        written = json.dumps(line, default=str)
        return json.dumps(redacted(line), default=str) if _SUSPICIOUS.search(written) else written


class TextFormatter(logging.Formatter):
    """The same for people: when, how bad, what happened, who it was about."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        first = {name: fields.pop(name) for name in _OUR_ORDER if name in fields}
        told = "".join(f" {name}={value}" for name, value in redacted({**first, **fields}).items())
        line = f"{_at(record)} {record.levelname:<7} {redacted(record.getMessage())}{told}"
        if record.exc_info:
            line += "\n" + str(redacted(self.formatException(record.exc_info)[-TRACEBACK:]))
        return line


FORMATS = {"json": JsonFormatter, "text": TextFormatter}


@contextmanager
def bind(**fields: Any) -> Iterator[None]:
    """Every line logged inside carries these fields."""
    token = _bound.set({**(_bound.get() or {}), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def set_up(level: str, stream: TextIO = sys.stderr, form: str = "json", **fields: Any) -> None:
    """Log to a stream in that form, in place of whatever was set up before; every line carries the fields."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(FORMATS[form]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    _everywhere.clear()
    _everywhere.update(fields)


def get(name: str) -> logging.Logger:
    """A logger below `ironclip`."""
    return logging.getLogger(f"ironclip.{name}")
