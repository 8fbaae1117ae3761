"""How does a command end, and what does it say when it cannot do what was asked?

One sentence on stderr after a stable code, an exit code that a script can act on, and never a traceback: what nobody
foresaw is written to a log, and the sentence says where that is.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

import typer

from pipeline import embedded
from pipeline.core import errors
from pipeline.core.errors import BadRequest, IronclipError
from pipeline.core.job import Status
from pipeline.embedded.server import ServiceFailed


class Exit(IntEnum):
    """What the exit codes mean."""

    OK = 0
    FAILED = 1
    BAD_USAGE = 2  # nobody can do that: usage, request, name or setting
    CANCELLED = 3
    NOT_NOW = 4  # the state of things forbids it
    UNAVAILABLE = 5  # database or broker
    INTERRUPTED = 130


CODES: dict[type[IronclipError], Exit] = {
    BadRequest: Exit.BAD_USAGE,
    errors.NoSuchJob: Exit.BAD_USAGE,
    errors.SettingInvalid: Exit.BAD_USAGE,
    errors.ToolMissing: Exit.BAD_USAGE,
    errors.NotAllowedNow: Exit.NOT_NOW,
    errors.IdempotencyConflict: Exit.NOT_NOW,
    errors.InsufficientCredits: Exit.NOT_NOW,
    embedded.HomeInUse: Exit.NOT_NOW,
    errors.DatabaseUnavailable: Exit.UNAVAILABLE,
    errors.BrokerUnavailable: Exit.UNAVAILABLE,
    ServiceFailed: Exit.UNAVAILABLE,
}
OF_STATUS = {Status.COMPLETED: Exit.OK, Status.FAILED: Exit.FAILED, Status.CANCELLED: Exit.CANCELLED}

# What Postgres says to a program that expects other tables: no such table, no such column, no such function.
OTHER_TABLES = ("42P01", "42703", "42883")


class CommandFailed(IronclipError):
    """A command did its part, and what it waited for went wrong."""

    code = "FAILED"


def end(code: Exit) -> NoReturn:
    """End the command with this exit code."""
    raise typer.Exit(int(code))


def report(exc: BaseException, *, as_json: bool) -> Exit:
    """Say what went wrong; the exit code that goes with it."""
    told, code = _told(exc)
    if as_json:
        # The one document that stdout gets: a program that reads it need not look elsewhere.
        sys.stdout.write(json.dumps({"error": told}) + "\n")
    else:
        known = told["field"] is None or told["field"] in told["message"]
        where = "" if known else f" ({told['field']})"
        sys.stderr.write(f"{told['code']}: {told['message']}{where}\n")
        if isinstance(exc, IronclipError) and exc.evidence:
            sys.stderr.write(exc.evidence.rstrip() + "\n")
    return code


def _told(exc: BaseException) -> tuple[dict[str, Any], Exit]:
    if isinstance(exc, BadRequest):
        return _error(exc.reason, exc.message, exc.field), Exit.BAD_USAGE
    if isinstance(exc, IronclipError):
        return _error(exc.code, exc.message), next((c for k, c in CODES.items() if isinstance(exc, k)), Exit.FAILED)
    if callable(say := getattr(exc, "format_message", None)):  # the command line itself, wherever typer keeps click
        name = getattr(getattr(exc, "param", None), "name", None) or None
        return _error("BAD_USAGE", " ".join(str(say()).split()), name), Exit.BAD_USAGE
    if getattr(getattr(exc, "orig", None), "pgcode", None) in OTHER_TABLES:
        return _error("NOT_MIGRATED", "The database has other tables than we expect: run `ironclip migrate`."), (
            Exit.UNAVAILABLE
        )
    if isinstance(exc, OSError) and exc.filename is not None:
        return _error("SYSTEM_ERROR", f"{exc.filename}: {exc.strerror}."), Exit.FAILED
    kept = _keep(exc)
    return _error(
        "INTERNAL", f"Something went wrong that nobody foresaw ({type(exc).__name__}); see {kept}."
    ), Exit.FAILED


def _error(code: str, message: str, field: str | None = None) -> dict[str, Any]:
    return {"code": code, "message": message, "field": field}


def _keep(exc: BaseException) -> Path:
    """Write the traceback where a person can find it."""
    folder = embedded.default_home() / "log"
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        folder = Path(tempfile.gettempdir())
    path = folder / f"ironclip-cli-{os.getuid()}.log"
    with path.open("a", encoding="utf-8") as log:
        log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {sys.argv[1:]}\n")
        log.write("".join(traceback.format_exception(exc)))
    return path
