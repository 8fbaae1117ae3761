"""What does a person, a program, or a wall want to see of a run? A text, a document, a picture."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.chaos import timeline
from pipeline.chaos.history import document as struck_document
from pipeline.chaos.recovery import percentile, recoveries
from pipeline.chaos.run import Outcome

SHOWN = 20  # violations in the text; the document has them all
WIDTH = 110


def document(outcome: Outcome) -> dict[str, Any]:
    """Everything, for a program."""
    history = outcome.history
    finished = [event.at for event in history.events if event.type == "completed"]
    took_s = _s(outcome.began_at, max(finished, default=outcome.ended_at))
    return {
        "kept": not outcome.violations,
        "seed": outcome.options.seed,
        "options": asdict(outcome.options),
        "seconds": {
            "faults": _s(outcome.began_at, outcome.quiet_at),
            "drain": _s(outcome.quiet_at, outcome.ended_at),
            "all": _s(outcome.began_at, outcome.ended_at),
        },
        "jobs": {
            "asked_for": outcome.options.jobs,
            "submitted": len(history.submitted),
            "by_status": dict(Counter(row.status for row in history.jobs)),
            "per_second": round(len(finished) / max(took_s, 1), 2),
        },
        "attempts": _attempts(outcome),
        "faults": dict(sorted(Counter(strike.fault for strike in outcome.strikes).items())),
        "skipped": dict(outcome.skipped),
        "strikes": [struck_document(each, outcome.began_at) for each in outcome.struck],
        "recovery": {fault: asdict(each) for fault, each in recoveries(history, outcome.struck).items()},
        "violations": [asdict(each) for each in outcome.violations],
        "left_behind": dict(outcome.notes),
        "home": outcome.home,
    }


def text(told: dict[str, Any]) -> str:
    """The same for people."""
    page = Console(file=StringIO(), width=WIDTH, highlight=False, emoji=False, markup=False)
    _summary(page, told)
    _faults(page, told)
    for name, why in told["skipped"].items():
        page.print(f"not tried: {name}: {why}")
    for name, count in told["left_behind"].items():
        if count:
            page.print(f"left behind: {count} {name}")
    page.print()
    _violations(page, told)
    assert isinstance(page.file, StringIO)
    return page.file.getvalue()


def write(outcome: Outcome, folder: Path) -> dict[str, Any]:
    """Write report.json, report.txt and timeline.svg there; the document."""
    told = document(outcome)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(told, indent=2, default=str) + "\n", encoding="utf-8")
    (folder / "report.txt").write_text(text(told), encoding="utf-8")
    (folder / "timeline.svg").write_text(timeline.draw(outcome), encoding="utf-8")
    return told


def _attempts(outcome: Outcome) -> dict[str, Any]:
    numbers = [attempt.attempt for attempt in outcome.history.attempts] or [0]
    ended = Counter(attempt.ended_by or "open" for attempt in outcome.history.attempts)
    return {
        "executions": len(outcome.history.attempts),
        "most_of_one_stage": max(numbers),
        "allowed": max((row.max_attempts for row in outcome.history.jobs), default=0),
        "p99": percentile(numbers, 0.99),
        "ended_by": dict(ended.most_common()),
    }


def _summary(page: Console, told: dict[str, Any]) -> None:
    jobs, attempts, seconds = told["jobs"], told["attempts"], told["seconds"]
    statuses = ", ".join(f"{count} {status}" for status, count in jobs["by_status"].items())
    page.print(f"seed {told['seed']}, {sum(told['faults'].values())} faults in {seconds['faults']:.0f} s")
    page.print(f"jobs: {jobs['submitted']} submitted; {statuses}; {jobs['per_second']:g} a second")
    page.print(
        f"executions: {attempts['executions']}, at most {attempts['most_of_one_stage']} of one stage "
        f"({attempts['allowed']} allowed); all quiet {seconds['drain']:.1f} s after the last fault"
    )
    page.print("ended by: " + ", ".join(f"{kind} {count}" for kind, count in attempts["ended_by"].items()))
    page.print()


def _faults(page: Console, told: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("fault", "times", "jobs interrupted", "again after p50", "p99", "at most"):
        table.add_column(column, justify="left" if column == "fault" else "right")
    for fault, times in told["faults"].items():
        figures = told["recovery"].get(fault)
        spans = [f"{figures[name]:.2f} s" for name in ("p50_s", "p99_s", "max_s")] if figures else ["-"] * 3
        table.add_row(fault, str(times), str(figures["jobs"] if figures else "-"), *spans)
    page.print(table)
    page.print()


def _violations(page: Console, told: dict[str, Any]) -> None:
    found = told["violations"]
    if not found:
        page.print("Every promise was kept: nothing lost, doubled or stuck, the ledger balances, doctor is content.")
        return
    page.print(f"{len(found)} violations:")
    for promise, count in Counter(each["promise"] for each in found).most_common():
        page.print(f"  {promise}: {count}")
    for each in found[:SHOWN]:
        page.print(f"  {each['promise']}: {each['job']}: {each['detail']}")


def _s(since: datetime, until: datetime) -> float:
    return round((until - since).total_seconds(), 2)
