"""How does one look after the system itself: workers, tables and settings?"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

import typer

from pipeline import settings
from pipeline.cli import finding, say
from pipeline.core.errors import BadRequest
from pipeline.store import workers as registry


def workers(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20, as_json: say.Json = False
) -> None:
    """Show who works here, the one heard from last first."""
    seen = registry.newest(finding.connect(), limit)
    if as_json:
        say.document({"workers": seen})
        return
    if not seen:
        say.line("No worker has ever been here.")
        return
    say.table(
        ("WORKER", "NAME", "STATUS", "SLOTS", "QUEUES", "HEARD FROM", "SINCE"),
        [
            (
                str(w["id"])[:8],
                w["name"],
                f"paused: {w['paused']}" if w["paused"] else w["status"],
                w["slots"],
                w["queues"],
                None if w["silent_s"] is None else f"{w['silent_s']:.0f} s ago",
                w["registered_at"],
            )
            for w in seen
        ],
    )


def recover(as_json: say.Json = False) -> None:
    """Find what is stuck and send it on its way again. Workers do it by themselves; twice does no harm."""
    from pipeline import upkeep

    finding.connect()
    done = upkeep.recover()
    if as_json:
        say.document(asdict(done))
        return
    for word, ids in (("Recovered", done.recovered), ("Failed", done.failed)):
        for each in ids:
            say.line(f"{word}  {each}")
    say.line(f"{len(done.recovered)} recovered, {len(done.failed)} failed.")


def migrate(
    revision: Annotated[str | None, typer.Option(help="Where to; else the newest.")] = None,
    down: Annotated[bool, typer.Option("--down", help="Back to --revision ('base': no tables at all).")] = False,
    as_json: say.Json = False,
) -> None:
    """Give the database its tables."""
    # Only here: loading Alembic takes longer than most commands.
    from pipeline.store import migrate as tables

    finding.connect()
    url = settings.current().database_url
    if down and revision is None:
        raise BadRequest(
            "REVISION_REQUIRED", "Going down needs a --revision; 'base' drops every table.", field="revision"
        )
    now = tables.downgrade(url, revision or "") if down else tables.upgrade(url, revision or "head")
    if as_json:
        say.document({"revision": now, "head": tables.head()})
    else:
        say.line(f"The database is at revision {now}{' (the newest)' if now == tables.head() else ''}.")


def config(as_json: say.Json = False) -> None:
    """Show every setting, its value and where that came from; secrets are hidden."""
    found = finding.environment()
    shown = [
        replace(each, origin=f"running home ({found['IRONCLIP_HOME']})")
        if each.name in found and "IRONCLIP_HOME" in found
        else each
        for each in settings.describe()
    ]
    if as_json:
        say.document({"settings": [asdict(each) for each in shown]})
    else:
        say.table(("SETTING", "VALUE", "FROM", "WHAT IT IS"), [(s.name, s.value, s.origin, s.why) for s in shown])
