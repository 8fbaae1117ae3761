"""How does one find out what is wrong? `why` asks about one job, `doctor` about everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline import why as reasons
from pipeline.cli import finding, say
from pipeline.cli.failing import Exit, end
from pipeline.cli.jobs import JobArgument

if TYPE_CHECKING:
    from pipeline.doctor import Broken

STYLES = {"error": "red", "warning": "yellow"}


def why(job: JobArgument, as_json: say.Json = False) -> None:
    """Say in one sentence why a job is not running now, or how it is doing."""
    db = finding.connect()
    found = finding.job_id(db, job)
    reason = reasons.why(db, found)
    if as_json:
        say.document({"id": found, "code": reason.code, "sentence": reason.sentence, "facts": reason.facts})
    else:
        say.line(reason.sentence)


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Put right what can be put right safely.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also look for every delivered file at its target.")] = False,
    as_json: say.Json = False,
) -> None:
    """Check that everything is as it must be: exit code 0 if it is, 1 if not. Changes nothing without --repair."""
    # Only here: it knows every upkeep, and with them the tools of a worker.
    from pipeline import doctor as care

    db = finding.connect(broker=repair)
    broken = care.repair(db, deep=deep) if repair else care.examine(db, deep=deep)
    checked = sum(1 for each in care.INVARIANTS if deep or not each.deep)
    left = [each for each in broken if not each.repaired]
    if as_json:
        say.document({"clean": not left, "checked": checked, "broken": [_document(each) for each in broken]})
    else:
        for each in broken:
            _tell(each)
        say.line(_summary(checked, broken))
    end(Exit.FAILED if left else Exit.OK)


def _document(broken: Broken) -> dict[str, Any]:
    it = broken.invariant
    return {
        "name": it.name,
        "means": it.means,
        "severity": it.severity,
        "repair": it.repair,
        "repairable": it.mend is not None,
        "repaired": broken.repaired,
        "found": [{"id": each.id, "detail": each.detail} for each in broken.found],
        "more": broken.more,
    }


def _tell(broken: Broken) -> None:
    it = broken.invariant
    if broken.repaired:
        say.line(f"repaired {it.name}", "green")
    else:
        say.line(f"{it.severity} {it.name}", STYLES[it.severity])
    say.line(f"  must be: {it.means}")
    for each in broken.found:
        say.line(f"  {each.id}  {each.detail}")
    if broken.more:
        say.line("  ... and more")
    if not broken.repaired:
        say.line(f"  to do: {it.repair}")
    say.line()


def _summary(checked: int, broken: list[Broken]) -> str:
    left = sum(1 for each in broken if not each.repaired)
    healed = f", {len(broken) - left} of them after a repair" if len(broken) > left else ""
    return f"{checked - left} of {checked} invariants hold{healed}."
