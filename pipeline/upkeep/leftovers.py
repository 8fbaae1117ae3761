"""Which scratch on this machine belongs to nobody?

That of jobs that have ended a while ago, and that of jobs that nobody knows and nobody touched for a day. The folders
are listed before the database is asked, and only those are removed: whoever claims the job after that works in a
folder with a new name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from pipeline import scratch
from pipeline.settings import Settings
from pipeline.store import doctor as rows
from pipeline.store.engine import Database

SETTLING = timedelta(minutes=10)  # whoever has just ended a job may still be tidying up
ABANDONED = timedelta(days=1)  # untouched for so long, the folder of a job that we do not know is nobody's


@dataclass(frozen=True)
class Leftover:
    """A job's scratch that nobody needs: the leases that worked there, and why it is nobody's."""

    job: UUID
    leases: tuple[str, ...]
    why: str


def leftovers(db: Database, now: Settings) -> Iterator[Leftover]:
    """The scratch of nobody on this machine."""
    folders = {each.job: each for each in _folders(now.scratch_dir / "jobs")}
    ended = rows.ended_for_s(db, folders)
    for job, folder in folders.items():
        if job not in ended:
            if folder.untouched >= ABANDONED:
                hours = folder.untouched.total_seconds() / 3600
                yield Leftover(job, folder.leases, f"no such job, untouched for {hours:.0f} h")
        elif (over_s := ended[job]) is not None and over_s >= SETTLING.total_seconds():
            yield Leftover(job, folder.leases, f"the job ended {over_s:.0f} s ago")


def clear(db: Database, now: Settings) -> int:
    """Remove the scratch of nobody on this machine; of how many jobs it was."""
    found = list(leftovers(db, now))
    for each in found:
        scratch.remove_leases(now.scratch_dir, each.job, each.leases)
    return len(found)


@dataclass(frozen=True)
class _Folder:
    job: UUID
    leases: tuple[str, ...]
    untouched: timedelta


def _folders(parent: Path) -> Iterator[_Folder]:
    """Every folder that is named like a job, and for how long nothing in it was touched. A link is not ours."""
    for folder in parent.iterdir() if parent.is_dir() else ():
        with suppress(ValueError, OSError):  # not a job's, or gone since we looked
            job = UUID(folder.name)
            if str(job) == folder.name and folder.is_dir() and not folder.is_symlink():
                leases = tuple(sorted(path.name for path in folder.iterdir()))
                touched = max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
                yield _Folder(job, leases, timedelta(seconds=max(time.time() - touched, 0)))
