"""How does one look at accounts, and give them credits?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pipeline import intake
from pipeline.cli import finding, say, words
from pipeline.store import credits as ledger
from pipeline.store.engine import Database

GRANT = "grant"


def accounts(
    act: Annotated[
        str | None, typer.Argument(metavar="ACCOUNT|grant", help="Whose entries to show, or what to do; else all.")
    ] = None,
    account: Annotated[str | None, typer.Argument(metavar="ACCOUNT", help="Who is granted credits.")] = None,
    amount: Annotated[str | None, typer.Argument(metavar="AMOUNT", help="How many; below zero after a --.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="Names a grant: said twice, it is granted once. An invoice, for example.")
    ] = None,
    note: Annotated[str | None, typer.Option(help="Why, for whoever reads the entries.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many entries.")] = 20,
    before: Annotated[int | None, typer.Option(metavar="ENTRY", help="Entries just before this one.")] = None,
    as_json: say.Json = False,
) -> None:
    """Show what accounts have and what moved them; grant gives an account credits, and opens it if it is new."""
    db = finding.connect()
    if act is None:
        _balances(db, as_json=as_json)
    elif act == GRANT:
        _grant(db, account, amount, reference, note, as_json=as_json)
    else:
        _entries(db, act, before, limit, as_json=as_json)


def _balances(db: Database, *, as_json: bool) -> None:
    accounts = ledger.balances(db)
    if as_json:
        say.document({"accounts": accounts})
    elif not accounts:
        say.line("There are no accounts; `ironclip credits grant` opens one.")
    else:
        say.table(
            ("ACCOUNT", "BALANCE", "HELD", "SINCE"),
            [(a["account"], a["balance"], a["held"], a["created_at"]) for a in accounts],
        )


def _entries(db: Database, account: str, before: int | None, limit: int, *, as_json: bool) -> None:
    page = ledger.entries(db, account, before=before, limit=limit)
    now = ledger.balance(db, account)
    older = page[-1]["id"] if len(page) == limit else None
    if as_json:
        say.document({**now, "entries": page, "before": older})
        return
    say.line(f"{account} has {now['balance']}, and {now['held']} held for jobs that are not finished.")
    say.table(
        ("ENTRY", "AT", "KIND", "AMOUNT", "JOB", "OUTPUT", "RUN", "REFERENCE", "NOTE"), [_entry(each) for each in page]
    )
    if older is not None:
        say.line(f"Older ones: --before {older}", "dim")


def _entry(entry: dict[str, Any]) -> tuple[object, ...]:
    job = entry["job_id"] and words.short(entry["job_id"])
    rest = (job, entry["output"], entry["run"], entry["reference"], entry["note"])
    return (entry["id"], entry["at"], entry["kind"], f"{entry['amount']:+d}", *rest)


def _grant(
    db: Database, account: str | None, amount: str | None, reference: str | None, note: str | None, *, as_json: bool
) -> None:
    told = _whole(amount)
    is_new = intake.grant(account or "", told, reference=reference or "", note=note)
    assert account is not None
    now = ledger.balance(db, account)
    if as_json:
        say.document({**now, "granted": is_new})
    else:
        done = f"{account} was granted {told}" if is_new else f"{reference} was granted before"
        say.line(f"{done}; {account} has {now['balance']}.")


def _whole(told: str | None) -> int:
    """The number, or 0 for what is none: then the grant is refused."""
    try:
        return int(told or "")
    except ValueError:
        return 0
