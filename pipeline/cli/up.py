"""How does one have everything on one machine? Worker, beat, API and Flower on embedded servers, until Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline import processes, settings
from pipeline.cli import say, stack
from pipeline.cli.failing import CommandFailed
from pipeline.cli.stack import Stack
from pipeline.supervisor import Event, until_told_to_stop

READY_PATIENCE_S = 60.0


def up(as_json: say.Json = False) -> None:
    """Run Postgres, Redis, a worker, beat, the API and Flower until Ctrl-C, then let the worker finish or give back."""
    try:
        with (
            stack.stopped_by_signals(),
            stack.servers(share=False) as running,
            stack.everything(running, _teller(as_json)) as it,
        ):
            _wait_for(it, "worker", it.worker_is_ready)
            _wait_for(it, "api", it.api_is_ready)
            describe(it, as_json=as_json)
            until_told_to_stop()
            if not as_json:
                grace_s = settings.current().shutdown_grace_sec
                say.line(f"Stopping: what runs may finish for {grace_s:g} s, then it is given back.")
    except KeyboardInterrupt:
        return  # told to stop before everything ran: what had started is drained all the same


def describe(it: Stack, *, as_json: bool) -> None:
    """Say where everything is."""
    told: dict[str, Any] = {"event": "ready", "env": dict(it.env), "logs": str(it.logs)}
    told["flower"] = {"url": it.flower_url, "login": it.flower_login} if it.flower_url else None
    told["api"] = {"url": it.api_url, "key": it.api_key} if it.api_url else None
    if as_json:
        say.document(told)
        return
    say.line()
    say.line("Everything is running. In another shell:", "bold")
    say.line()
    for line in it.exports():
        say.line(f"  {line}")
    say.line()
    user, _, password = (it.flower_login or "").partition(":")
    say.facts(
        [
            ("Dashboard", it.api_url or "left out: pip install 'ironclip[api]'"),
            ("  key", it.api_key),
            ("Flower", it.flower_url or "left out: pip install 'ironclip[flower]'"),
            ("  user", user),
            ("  password", password),
            ("Logs", str(it.logs)),
        ]
    )
    say.line()
    say.line("From this folder, `ironclip submit FILE --clip 2-12 --wait` needs no settings. Ctrl-C stops everything.")


def _wait_for(it: Stack, child: str, is_ready: Callable[[], bool]) -> None:
    def is_decided() -> bool:
        return is_ready() or it.keeps_dying(child)

    if not processes.wait_until(is_decided, READY_PATIENCE_S) or it.keeps_dying(child):
        raise CommandFailed(
            f"The {child} did not start; its log is {it.logs / f'{child}.log'}.", evidence=it.log_tail(child)
        )


def _teller(as_json: bool) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        if as_json:
            say.document(
                {
                    "event": "child",
                    "child": event.child,
                    "what": event.what,
                    "pid": event.pid,
                    "exit_code": event.exit_code,
                    "again_in_s": event.again_in_s,
                }
            )
        else:
            say.line(str(event), "dim")

    return tell
