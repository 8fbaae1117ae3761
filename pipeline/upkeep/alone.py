"""How does an upkeep run? Unless somebody else is just running it, and leaving a note of when and what it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from pipeline.store import upkeep as runs
from pipeline.store.engine import Database, database

Done = TypeVar("Done", bound=Any)  # a dataclass that says what was done; without arguments: nothing


def alone(name: str, run: Callable[[Database], Done], nothing: Done) -> Done:
    """What it did; nothing if it is just being run elsewhere."""
    db = database()
    with runs.alone(db, name) as mine:
        if not mine:
            return nothing
        runs.began(db, name)
        done = run(db)
        runs.ended(db, name, asdict(done))
        return done
