"""Which commands are there? One table; each is a function with its own help."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from pipeline.cli import (
    breakers,
    chaos,
    demo,
    diagnosing,
    jobs,
    keys,
    submit,
    system,
    transcribing,
    up,
    watching,
    webhooks,
)
from pipeline.cli import credits as ledger
from pipeline.cli.failing import Exit, report

COMMANDS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("demo", demo.demo),
    ("up", up.up),
    ("submit", submit.submit),
    ("transcribe", transcribing.transcribe),
    ("list", jobs.list_jobs),
    ("show", jobs.show),
    ("watch", watching.watch_jobs),
    ("logs", watching.logs),
    ("why", diagnosing.why),
    ("cancel", jobs.cancel),
    ("requeue", jobs.requeue),
    ("rerender", jobs.rerender),
    ("recover", system.recover),
    ("workers", system.workers),
    ("breakers", breakers.breakers),
    ("webhooks", webhooks.webhooks),
    ("credits", ledger.accounts),
    ("doctor", diagnosing.doctor),
    ("chaos", chaos.chaos),
    ("keys", keys.keys),
    ("api", keys.api),
    ("migrate", system.migrate),
    ("config", system.config),
)

app = typer.Typer(name="ironclip", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
for _name, _command in COMMANDS:
    app.command(_name)(_command)


@app.callback(invoke_without_command=True)
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
        return int(app(args=list(argv), prog_name="ironclip", standalone_mode=False) or 0)
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
