"""Which commands are there? One table; each is a function with its own help, loaded when it is asked for."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from pipeline.cli.failing import Exit, report

# The module beside this one, and its function.
COMMANDS = {
    "demo": ("demo", "demo"),
    "up": ("up", "up"),
    "submit": ("submit", "submit"),
    "transcribe": ("transcribing", "transcribe"),
    "transcriptions": ("transcribing", "transcriptions"),
    "list": ("jobs", "list_jobs"),
    "show": ("jobs", "show"),
    "watch": ("watching", "watch_jobs"),
    "logs": ("watching", "logs"),
    "why": ("diagnosing", "why"),
    "cancel": ("jobs", "cancel"),
    "requeue": ("jobs", "requeue"),
    "rerender": ("jobs", "rerender"),
    "recover": ("system", "recover"),
    "workers": ("system", "workers"),
    "breakers": ("breakers", "breakers"),
    "webhooks": ("webhooks", "webhooks"),
    "credits": ("credits", "accounts"),
    "doctor": ("diagnosing", "doctor"),
    "chaos": ("chaos", "chaos"),
    "keys": ("keys", "keys"),
    "api": ("keys", "api"),
    "migrate": ("system", "migrate"),
    "config": ("system", "config"),
}


def app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands."""
    made = typer.Typer(name="ironclip", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    made.callback(invoke_without_command=True)(ironclip)
    for name in names:
        module, function = COMMANDS[name]
        made.command(name)(getattr(import_module(f"pipeline.cli.{module}"), function))
    return made


def ironclip(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Turns source videos into finished clips, and never loses, doubles or forgets one."""
    if version:
        typer.echo(_version())
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(int(Exit.BAD_USAGE))


def run(argv: Sequence[str]) -> int:
    """Run one command; its exit code. Whatever goes wrong ends in one sentence."""
    # What the libraries log is for workers; a command speaks for itself.
    logging.getLogger().addHandler(logging.NullHandler())
    as_json = "--json" in argv
    try:
        asked = app(argv[:1]) if argv and argv[0] in COMMANDS else app()
        return int(asked(args=list(argv), prog_name="ironclip", standalone_mode=False) or 0)
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has seen enough; Python must not complain when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as exc:
        return report(exc, as_json=as_json)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"ironclip {version('ironclip')}"
    except PackageNotFoundError:  # a checkout that was never installed
        return "ironclip (not installed)"
