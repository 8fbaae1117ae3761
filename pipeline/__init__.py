"""Ironclip turns source videos into finished clips, and never loses, doubles or forgets one.

A web app needs three names: `submit` (a Celery task), `enqueue` (inside its own transaction) and `AsyncResult`.
They are looked up at first use, so that importing a part of the package stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery.result import AsyncResult

    from pipeline.client import enqueue, submit

__all__ = ["AsyncResult", "enqueue", "submit"]


def __getattr__(name: str) -> Any:
    if name == "AsyncResult":
        from pipeline.client import submit

        return submit.AsyncResult
    if name in ("enqueue", "submit"):
        from pipeline import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
