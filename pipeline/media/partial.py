"""What has come of a download already, and may it be gone on with?

Beside the bytes lies a small file that says whose they are: the place they came from, the mark that its server gave to
just this content, and how many there are in all. Only with such a mark is a download continued, and the server is asked
to compare it: what has changed meanwhile begins anew. Bytes that a dead lease left behind are copied, never continued
in place: whoever wrote them may only be asleep. They are trusted as long as the machine has not restarted since.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from pipeline import processes
from pipeline.files import Check, chunks, write_all

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True)
class Origin:
    """Whose bytes these are."""

    place: str
    mark: str
    total: int


class Partial:
    """The beginning of a file, and its origin if it has one that can be gone on with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.origin: Origin | None = None
        self._note = path.with_name(path.name + ".json")

    @property
    def size(self) -> int:
        """How many bytes there are."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def start(self) -> int:
        """Where to go on. At least one byte is asked for once more, so that the server says whether it is the same."""
        return 0 if self.origin is None else max(0, min(self.size, self.origin.total - 1))

    def inherit(self, folders: Iterable[Path], check: Check) -> None:
        """Begin with a copy of the longest beginning that earlier leases left in their folders, if there is one."""
        found = [left for folder in folders if (left := _left_in(folder / self.path.name)) is not None]
        if self.size or not found:
            return
        longest = max(found, key=lambda left: left.size)
        with suppress(FileNotFoundError):  # its folder is cleared away just now
            self._copy(longest.path, check)
            assert longest.origin is not None
            self._tell(longest.origin)

    def forget(self) -> None:
        """Nothing of it is of use."""
        self.origin = None
        self._note.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def begun(self, origin: Origin | None) -> BinaryIO:
        """The file, empty, to be written from its beginning. What is written is there at once, for whoever inherits."""
        self._note.unlink(missing_ok=True)  # first: the note must never speak about other bytes
        file = self.path.open("wb", buffering=0)
        self.origin = origin
        if origin is not None:
            self._tell(origin)
        return file

    def continued(self) -> BinaryIO:
        """The file, to be written from `start` on."""
        at = self.start
        file = self.path.open("r+b", buffering=0)
        file.truncate(at)
        file.seek(at)
        return file

    def finished(self, into: Path) -> Path:
        """All of it is here: give it its name."""
        self._note.unlink(missing_ok=True)
        return self.path.rename(into)

    def _copy(self, other: Path, check: Check) -> None:
        fd = os.open(other, READ)
        try:
            with self.path.open("wb", buffering=0) as file:
                for chunk in chunks(fd):
                    check()
                    write_all(file.fileno(), chunk)
        finally:
            os.close(fd)

    def _tell(self, origin: Origin) -> None:
        self.origin = origin
        new = self._note.with_name(self._note.name + ".new")
        new.write_text(json.dumps({**asdict(origin), "machine": processes.machine()}))
        new.rename(self._note)


def _left_in(path: Path) -> Partial | None:
    """What lies there, if it can be gone on with."""
    left = Partial(path)
    try:
        told = json.loads(left._note.read_text())
        here = told.pop("machine")
        left.origin = Origin(**told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    # After a restart of the machine, bytes may be missing that were never brought to the disk.
    is_trusted = here is not None and here == processes.machine()
    return (
        left if is_trusted and path.is_file() and not path.is_symlink() and 0 < left.size <= left.origin.total else None
    )
