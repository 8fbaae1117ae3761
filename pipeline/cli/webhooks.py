"""How does one say who is to be told, and see what was?"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import typer

from pipeline import endpoints as registry
from pipeline import settings
from pipeline import webhooks as wire
from pipeline.cli import finding, say
from pipeline.core.errors import BadRequest
from pipeline.store import endpoints
from pipeline.store.engine import Database


class Act(StrEnum):
    ADD = "add"
    REMOVE = "remove"
    HISTORY = "history"
    REPLAY = "replay"
    TEST = "test"
    SECRET = "secret"  # noqa: S105 - a word


def webhooks(
    act: Annotated[Act | None, typer.Argument(help="What to do; else all endpoints are shown.")] = None,
    what: Annotated[
        str | None, typer.Argument(metavar="URL|ID", help="An address to add; an endpoint, or a delivery to replay.")
    ] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", help="What it hears of; else every alert. Repeatable.")
    ] = None,
    account: Annotated[str | None, typer.Option(help="Only this account's jobs.")] = None,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="History of this job only.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what was given up.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How much history.")] = 20,
    as_json: say.Json = False,
) -> None:
    """Show who is told of what; add and remove endpoints, look at what was sent, send it again, or try one out."""
    db = finding.connect()
    match act:
        case None:
            _list(db, as_json)
        case Act.ADD:
            _add(db, what, types or [], account, as_json)
        case Act.REMOVE:
            _remove(db, _id(what, act), as_json)
        case Act.HISTORY:
            of = None if what is None else _id(what, act)
            about = finding.job_id(db, job) if job else None
            status = "failed" if failed else None
            _history(endpoints.history(db, endpoint=of, job=about, status=status, limit=limit), as_json)
        case Act.REPLAY:
            _replay(db, what, failed=failed, as_json=as_json)
        case Act.TEST:
            _test(db, _id(what, act), as_json)
        case Act.SECRET:
            settings.current().need("webhook_secret")
            secret = wire.secret_of(settings.current().webhook_secret, account)
            _say(as_json, {"account": account, "secret": secret}, lambda: say.line(secret))


def _say(as_json: bool, told: dict[str, Any], speak: Callable[[], None]) -> None:
    if as_json:
        say.document(told)
    else:
        speak()


def _id(given: str | None, act: Act) -> UUID:
    if given is None:
        raise BadRequest("ENDPOINT_REQUIRED", f"Which endpoint does {act} mean? `ironclip webhooks` lists them.")
    try:
        return UUID(given)
    except ValueError:
        raise _no_such(given) from None


def _no_such(given: object) -> BadRequest:
    return BadRequest("NO_SUCH_ENDPOINT", f"There is no endpoint {str(given)[:80]!r}.")


def _list(db: Database, as_json: bool) -> None:
    seen = registry.shown(db)
    if not seen and not as_json:
        say.line("No endpoint is registered.")
        return
    columns = ("ENDPOINT", "URL", "HEARS OF", "ACCOUNT", "PENDING", "SINCE")
    lines = [
        (e["id"], e["url"], e["types"] or "every alert", e["account_id"], e["pending"], e["created_at"]) for e in seen
    ]
    _say(as_json, {"endpoints": seen}, lambda: say.table(columns, lines))


def _add(db: Database, url: str | None, types: list[str], account: str | None, as_json: bool) -> None:
    made, secret = registry.add(db, url, types, account)

    def speak() -> None:
        say.facts([("endpoint", str(made)), ("secret", secret)])
        say.line("The secret is shown this once; the endpoint needs it to know that a webhook is ours.")

    _say(as_json, {"endpoint": made, "secret": secret}, speak)


def _remove(db: Database, endpoint: UUID, as_json: bool) -> None:
    if not endpoints.remove(db, endpoint):
        raise _no_such(endpoint)
    _say(as_json, {"endpoint": endpoint, "removed": True}, lambda: say.line(f"{endpoint} hears nothing more."))


def _history(seen: list[dict[str, Any]], as_json: bool) -> None:
    columns = ("DELIVERY", "TYPE", "TO", "JOB", "STATUS", "TRIES", "CREATED", "LAST ERROR")
    names = ("id", "type", "origin", "job_id", "status", "attempt_count", "created_at", "last_error")
    _say(as_json, {"deliveries": seen}, lambda: say.table(columns, [[d[name] for name in names] for d in seen]))


def _replay(db: Database, what: str | None, *, failed: bool, as_json: bool) -> None:
    if what is None and not failed:
        raise BadRequest(
            "NO_SUCH_DELIVERY", "Say which delivery to send again, or --failed for all that were given up."
        )
    try:
        given = None if what is None else UUID(what)
    except ValueError:
        given = UUID(int=0)
    again = endpoints.replay(db, delivery=None if failed else given, endpoint=given if failed else None)
    if given is not None and not again:
        raise BadRequest("NO_SUCH_DELIVERY", f"Nothing is to be sent again for {str(what)[:80]!r}.")
    _say(as_json, {"replayed": again}, lambda: say.line(f"{len(again)} to be sent again."))


def _test(db: Database, endpoint: UUID, as_json: bool) -> None:
    """Send a greeting here and now, whatever the backlog."""
    # Only here: sending belongs to upkeep, and that takes long to load.
    from pipeline.upkeep.webhooks import say_hello

    told = say_hello(db, endpoint)
    if told is None:
        raise _no_such(endpoint)
    good = told["status"] == "delivered"
    line = "It was taken." if good else f"It was not taken: {told['last_error']}"
    _say(as_json, told, lambda: say.line(line))
    if not good:
        raise typer.Exit(1)
