"""How does one look at the services that jobs need, give one up, or say that it is back?"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pipeline import breakers as acts
from pipeline.cli import finding, say
from pipeline.core.errors import BadRequest
from pipeline.store import breakers as known
from pipeline.store.engine import Database


class Act(StrEnum):
    TRIP = "trip"
    RESET = "reset"


def breakers(
    act: Annotated[Act | None, typer.Argument(help="What to do; else all are shown.")] = None,
    service: Annotated[
        str | None, typer.Argument(metavar="SERVICE", help="source:HOST, target:NAME, asr:ENGINE or broker.")
    ] = None,
    as_json: say.Json = False,
) -> None:
    """Show which services are given up, and until when; trip gives one up for a while, reset takes it back and wakes
    the jobs that wait for it."""
    db = finding.connect()
    if act is None:
        _show(db, as_json=as_json)
        return
    if service is None:
        raise BadRequest("SERVICE_REQUIRED", f"Which service is to be {act}? `ironclip breakers` lists them.")
    if act is Act.TRIP:
        until = acts.trip(service, finding.me()).opens_at
        assert until is not None
        told: dict[str, object] = {"service": service, "state": "open", "until": until}
        line = f"Nobody asks {service} until {until.astimezone():%Y-%m-%d %H:%M:%S %Z}; then it is tried."
    else:
        woken = acts.reset(service, finding.me())
        told = {"service": service, "state": "closed", "woken": woken}
        line = f"{service} may be asked again; {woken} waiting {'job is' if woken == 1 else 'jobs are'} due."
    if as_json:
        say.document(told)
    else:
        say.line(line)


def _show(db: Database, *, as_json: bool) -> None:
    seen = known.shown(db)
    if as_json:
        say.document({"breakers": seen})
        return
    if not seen:
        say.line("No service has ever failed.")
        return
    say.table(
        ("SERVICE", "STATE", "FAILURES", "OPEN UNTIL", "OPENINGS", "JOBS WAITING", "LAST FAILURE"),
        [
            (
                b["service"],
                b["state"],
                b["failures"],
                b["opens_at"],
                b["openings"],
                b["waiting"],
                (b["last_failure"] or "").partition("\n")[0] or None,
            )
            for b in seen
        ],
    )
