"""Does it hold? Everything is broken on purpose here, on servers of its own, and then somebody counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.chaos import plan
from pipeline.cli import say, stack
from pipeline.cli.failing import Exit, end
from pipeline.core.errors import BadRequest

if TYPE_CHECKING:
    from pipeline.chaos.run import Options


def chaos(
    jobs: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many jobs.")] = 500,
    real: Annotated[int, typer.Option(min=0, help="How many of them are real films; the rest takes moments.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="How long things break; then all must end by itself.")] = 60,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds from fault to fault, on average.")] = 3,
    lasts: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds of a fault that lasts; else by its kind.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides what breaks when.")] = 1,
    faults: Annotated[str, typer.Option(help="Which ones, ',' between them; else all.")] = "",
    workers: Annotated[int, typer.Option(min=1, max=50, help="How many workers, of two processes each.")] = 3,
    report: Annotated[Path | None, typer.Option(help="Folder for report.txt, report.json and timeline.svg.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder of the run with its logs.")] = False,
    as_json: say.Json = False,
) -> None:
    """Break everything on purpose and check that nothing is lost, doubled or stuck: exit code 0 if so, 1 if not."""
    # Only here: it brings the tools of a worker along.
    from pipeline.chaos import report as reports
    from pipeline.chaos.run import Options, run

    options = Options(
        jobs=jobs,
        real=min(real, jobs),
        seconds=seconds,
        every_s=every,
        lasts_s=lasts,
        seed=seed,
        faults=_named(faults),
        workers=workers,
        keep=keep,
    )
    with stack.stopped_by_signals():
        outcome = run(options, (lambda _line: None) if as_json else (lambda line: say.line(line, "dim")))
    told = reports.document(outcome) if report is None else reports.write(outcome, report)
    if as_json:
        say.document(told)
    else:
        say.line()
        say.line(reports.text(told).rstrip())
        _where(options, outcome.home, report)
    end(Exit.FAILED if outcome.violations else Exit.OK)


def _named(given: str) -> tuple[str, ...]:
    names = tuple(filter(None, (name.strip() for name in given.split(",")))) or tuple(plan.BY_NAME)
    for name in names:
        if name not in plan.BY_NAME:
            known = ", ".join(plan.BY_NAME)
            raise BadRequest("UNKNOWN_FAULT", f"There is no fault {name!r}; there are {known}.", field="faults")
    return tuple(dict.fromkeys(names))


def _where(options: Options, home: str | None, report: Path | None) -> None:
    if home:
        say.line(f"kept: {home}")
    if report:
        say.line(f"report: {report / 'report.txt'}, report.json, timeline.svg")
    say.line(f"the same faults again: --seed {options.seed}")
