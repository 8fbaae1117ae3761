"""Which uploads on this machine does nobody need any more?

Those that no unfinished job names, a while after the last job that did has ended, or after they came if none did. They
go in two steps: set aside under a name that no request finds, and removed when PRUNE_DELAY_SEC is over. A job that was
submitted in just that moment gets its upload back. What a broken upload has left goes after a day.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from pipeline import log
from pipeline.settings import Settings
from pipeline.store import uploads as rows
from pipeline.store.engine import Database
from pipeline.store.uploads import Uses

logger = log.get("uploads")

ASIDE, PART = ".aside-", ".part"
NAME = re.compile(r"(\.aside-|\.)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:\.\w{1,10})?(\.part)?")
ABANDONED = timedelta(days=1)  # nobody sends anything for so long


@dataclass(frozen=True)
class _File:
    path: Path
    id: UUID
    stamp: float  # Postgres's time when it came, or was set aside

    @property
    def is_aside(self) -> bool:
        return self.path.name.startswith(ASIDE)

    @property
    def is_part(self) -> bool:
        return self.path.name.endswith(PART)


def clear(db: Database, now: Settings) -> int:
    """Remove the uploads of nobody on this machine; how many those were."""
    if not now.retention_uploads_days:
        return 0
    files = list(_files(now.uploads))
    if not files:
        return 0
    said = rows.uses(db, {each.id for each in files})
    removed = 0
    for each in files:
        try:
            removed += _clear_one(each, said, now)
        except OSError as exc:  # gone since we looked, or not ours to remove: the next time tells
            logger.warning("upload not cleared", extra={"upload": str(each.id), "error": type(exc).__name__})
    return removed


def _clear_one(file: _File, said: Uses, now: Settings) -> bool:
    age = timedelta(seconds=said.now - file.stamp)
    if file.is_part:
        return _remove(file) if age >= ABANDONED else False
    is_over = _is_over(file, age, said, timedelta(days=now.retention_uploads_days))
    if file.is_aside:
        if not is_over:
            file.path.rename(file.path.with_name(file.path.name.removeprefix(ASIDE)))
        elif age >= timedelta(seconds=now.prune_delay_sec):
            return _remove(file)
    elif is_over:
        os.utime(file.path, (said.now, said.now))
        file.path.rename(file.path.with_name(ASIDE + file.path.name))
    return False


def _is_over(file: _File, age: timedelta, said: Uses, keep: timedelta) -> bool:
    """Whether nobody needs it. What was set aside and is named by no job was old enough before."""
    if file.id in said.needed:
        return False
    if file.id in said.over:
        return said.over[file.id] >= keep
    return file.is_aside or age >= keep


def _remove(file: _File) -> bool:
    file.path.unlink()
    return True


def _files(parent: Path) -> Iterator[_File]:
    """Every file that is named like an upload, in the folders of accounts. A link is not ours."""
    for folder in sorted(parent.iterdir()) if parent.is_dir() else ():
        if folder.is_symlink() or not folder.is_dir():
            continue
        for entry in os.scandir(folder):
            named = NAME.fullmatch(entry.name)
            if named and entry.is_file(follow_symlinks=False):
                yield _File(Path(entry.path), UUID(named.group(2)), entry.stat(follow_symlinks=False).st_mtime)
