"""A target that is down while a file says so: `<root>.down` beside its folder makes every call meet an I/O error.

If the file names calls, only those fail. Registered as a kind of its own, in tests only; the rest of it is a real
folder.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline import delivery
from pipeline.delivery.file import FileTarget
from pipeline.delivery.target import Stored, translated

KIND = "flaky"
CALLS: list[str] = []  # of this process: what was asked of any of them


class FlakyTarget(FileTarget):
    def head(self, key: str, **told: Any) -> Stored | None:
        self._answer("head")
        return super().head(key, **told)

    def put(self, path: Path, key: str, sha256: str, **told: Any) -> Stored:
        self._answer("put")
        return super().put(path, key, sha256, **told)

    def delete(self, key: str) -> None:
        self._answer("delete")
        super().delete(key)

    def _answer(self, call: str) -> None:
        CALLS.append(call)
        down = switch(self.root)
        if down.exists() and call in (down.read_text() or call):
            raise translated(self.name, call, OSError(errno.EIO, "Input/output error"))


def switch(root: Path) -> Path:
    """The file that takes the target down."""
    return root.with_name(root.name + ".down")


def register() -> None:
    """Make the kind known in this process."""
    delivery.KINDS[KIND] = _from_options


def _from_options(name: str, options: Mapping[str, Any]) -> FlakyTarget:
    return FlakyTarget(name, Path(options["path"]), create_root=True)


def targets_file(path: Path, **roots: Path) -> Path:
    """A TARGETS_FILE with such targets, by name."""
    path.write_text("".join(f'[targets.{name}]\nkind = "{KIND}"\npath = "{root}"\n' for name, root in roots.items()))
    return path
