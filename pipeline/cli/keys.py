"""Who may come in over HTTP, and how is that served?"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pipeline.cli import finding, say
from pipeline.core.errors import BadRequest
from pipeline.core.request import account as check_account
from pipeline.store import keys as store
from pipeline.store.keys import Role


class Act(StrEnum):
    CREATE = "create"
    LIST = "list"
    REVOKE = "revoke"


def keys(
    act: Annotated[Act, typer.Argument(help="What to do.")] = Act.LIST,
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="revoke: its id or first 8 characters.")] = None,
    role: Annotated[Role, typer.Option(help="create: what it may do.")] = Role.CLIENT,
    account: Annotated[str | None, typer.Option(help="create: whose jobs a client sees.")] = None,
    name: Annotated[str, typer.Option(help="create: what it is for.")] = "",
    as_json: say.Json = False,
) -> None:
    """Make keys for the HTTP API, list them, revoke them. A key is shown once, when it is made."""
    db = finding.connect()
    match act:
        case Act.CREATE:
            if account is not None:
                check_account(account)
            made, shown = store.create(db, role, account=account, name=name, by=finding.me())
            if as_json:
                say.document({"id": made.id, "prefix": made.prefix, "role": role, "account": account, "key": shown})
                return
            say.line(shown)
            say.line("It is not shown again: only its hash is kept.", "dim")
        case Act.LIST:
            _show(store.listed(db), as_json=as_json)
        case Act.REVOKE:
            if key is None:
                raise BadRequest("KEY_REQUIRED", "Which key? `ironclip keys list` shows them.", field="key")
            revoked = store.revoke(db, key)
            if as_json:
                say.document({"id": revoked, "revoked": True})
            else:
                say.line(f"Key {revoked} opens nothing any more.")


def _show(rows: list[dict[str, object]], *, as_json: bool) -> None:
    if as_json:
        say.document({"keys": rows})
    elif not rows:
        say.line("There are no keys.")
    else:
        columns = ("prefix", "role", "account_id", "name", "created_at", "last_used_at", "revoked_at")
        headings = ("KEY", "ROLE", "ACCOUNT", "NAME", "CREATED", "LAST USED", "REVOKED")
        say.table(headings, [[row[column] for column in columns] for row in rows])


def api(
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: one that is free.")] = 8000,
    as_json: say.Json = False,
) -> None:
    """Serve the HTTP API and the dashboard until Ctrl-C."""
    # Only here: FastAPI takes longer to load than most commands take to run.
    from pipeline.api.serve import serve

    finding.connect(broker=True)

    def tell(address: str) -> None:
        if as_json:
            say.document({"event": "ready", "address": address})
        else:
            say.line(f"Listening on {address}")

    serve(host, port, tell)
