"""How does a file get into a folder so that nobody ever sees half of it?

It is written under a random hidden name beside its place, synced, read back, and renamed. Every folder on the way is
opened by name inside the one before it and never through a link, so no key can lead out of the root.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from pipeline import crashpoints
from pipeline.core.errors import ScratchLost, SettingInvalid, TargetError, TargetNotFound, TargetRefused, UploadFailed
from pipeline.crashpoints import At
from pipeline.delivery.target import (
    Progress,
    Stored,
    Tidied,
    key_parts,
    opened_source,
    parts_for,
    translated,
    unreadable_source,
    unseen,
)
from pipeline.files import Check, chunks, go_on, sync_folder, write_all

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe with that name must not hang us
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class FileTarget:
    """A folder on this machine or a mount. Without `create_root`, a missing root is a missing mount: refused."""

    def __init__(self, name: str, root: Path, *, create_root: bool = False) -> None:
        self.name = name
        self.root = root.absolute()
        self.create_root = create_root

    def head(self, key: str, *, check: Check = go_on, on_progress: Progress = unseen) -> Stored | None:
        """The true size and hash of what lies under the key; None when nothing does."""
        *folders, leaf = key_parts(key)
        try:
            with self._folder(folders) as folder, self._opened(leaf, READ, folder) as fd:
                total = os.fstat(fd).st_size
                return self._measured(fd, check, lambda done: on_progress(done, total))
        except _NothingThere:
            return None

    def put(self, path: Path, key: str, sha256: str, *, check: Check = go_on, on_progress: Progress = unseen) -> Stored:
        """Put the file under the key: whole, durable and verified, or not at all.

        A source that is gone or has changed is ScratchLost: the target is not to blame.
        """
        *folders, leaf = parts_for(key, sha256)
        part = f".part-{secrets.token_hex(8)}"
        with opened_source(path) as source, self._folder(folders, create=True) as folder:
            size = os.fstat(source).st_size
            try:
                sent = self._write(source, part, folder, check, lambda done: on_progress(done, 2 * size))
                if sent != sha256:
                    raise ScratchLost(f"{path.name} is no longer the file that was made.")
                with self._opened(part, READ, folder) as fd:
                    stored = self._measured(fd, check, lambda done: on_progress(size + done, 2 * size))
                if stored.sha256 != sha256:
                    raise UploadFailed(f"{self.name}: {key}: what was stored is not what was sent.")
                check()
                crashpoints.reached(At.PUT_HIDDEN)
                with self._errors():
                    # Over an older object too: its bytes are these or damaged, since the key carries their hash.
                    os.rename(part, leaf, src_dir_fd=folder, dst_dir_fd=folder)
                    sync_folder(folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(part, dir_fd=folder)
                raise
        return stored

    def url(self, key: str) -> str:
        """Where a person finds the file."""
        return self.root.joinpath(*key_parts(key)).as_uri()

    def delete(self, key: str) -> None:
        """Remove what lies under the key, if anything does."""
        *folders, leaf = key_parts(key)
        with suppress(_NothingThere), self._folder(folders) as folder, self._errors():
            os.unlink(leaf, dir_fd=folder)
            sync_folder(folder)

    def tidy(self, folder: str, keep: Collection[str], older_than: timedelta) -> Tidied:
        """Remove whatever below the folder is none of the keys in `keep` and was not touched for this long."""
        *parents, last = key_parts(folder)
        try:
            with self._folder(parents) as parent, self._errors():
                return _tidied(parent, last, folder, frozenset(keep), time.time() - older_than.total_seconds())
        except _NothingThere:
            return Tidied()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Kept to our own calls of the system: what `check` raises must never look like the target's fault."""
        try:
            yield
        except FileNotFoundError as exc:
            raise _NothingThere(f"{self.name}: a folder vanished while we used it.") from exc
        except OSError as exc:
            raise translated(self.name, str(exc.filename or self.root), exc) from exc

    @contextmanager
    def _folder(self, parts: list[str], *, create: bool = False) -> Iterator[int]:
        fd = self._opened_root()
        try:
            for part in parts:
                with self._errors():
                    if create:
                        with suppress(FileExistsError):
                            os.mkdir(part, dir_fd=fd)
                        sync_folder(fd)  # also when another made it: he may not have come so far
                    inner = os.open(part, FOLDER, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def _opened_root(self) -> int:
        with self._errors():
            try:
                if self.create_root:
                    self.root.mkdir(parents=True, exist_ok=True)
                return os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
            except (FileNotFoundError, FileExistsError, NotADirectoryError) as exc:
                raise TargetNotFound(f"{self.name}: there is no folder {self.root}.") from exc

    @contextmanager
    def _opened(self, name: str, flags: int, folder: int) -> Iterator[int]:
        with self._errors():
            fd = os.open(name, flags, 0o666, dir_fd=folder)
        try:
            with self._errors():
                mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                raise TargetRefused(f"{self.name}: {name} is there and is not a file.")
            yield fd
        finally:
            os.close(fd)

    def _write(self, source: int, part: str, folder: int, check: Check, moved: Callable[[int], None]) -> str:
        digest, done = hashlib.sha256(), 0
        with self._opened(part, CREATE, folder) as fd:
            for chunk in chunks(source, unreadable_source):
                check()
                with self._errors():
                    write_all(fd, chunk)
                digest.update(chunk)
                done += len(chunk)
                moved(done)
            with self._errors():
                os.fsync(fd)
        return digest.hexdigest()

    def _measured(self, fd: int, check: Check, moved: Callable[[int], None]) -> Stored:
        digest, done = hashlib.sha256(), 0
        for chunk in chunks(fd, self._unreadable):
            check()
            digest.update(chunk)
            done += len(chunk)
            moved(done)
        return Stored(done, digest.hexdigest())

    def _unreadable(self, exc: OSError) -> TargetError:
        return translated(self.name, "reading back", exc)


def _tidied(parent: int, name: str, path: str, keep: frozenset[str], before: float) -> Tidied:
    """Tidy one folder and those in it; never through a link, which is removed like a file."""
    done = Tidied()
    fd = os.open(name, FOLDER, dir_fd=parent)
    try:
        for entry in list(os.scandir(fd)):
            inner = f"{path}/{entry.name}"
            with suppress(FileNotFoundError):  # somebody else removed it meanwhile
                if entry.is_dir(follow_symlinks=False):
                    more = _tidied(fd, entry.name, inner, keep, before)
                elif inner in keep:
                    continue
                elif entry.stat(follow_symlinks=False).st_mtime > before:
                    more = Tidied(young=1)
                else:
                    os.unlink(entry.name, dir_fd=fd)
                    more = Tidied(removed=1)
                done = Tidied(done.removed + more.removed, done.young + more.young)
        sync_folder(fd)
    finally:
        os.close(fd)
    with suppress(OSError):  # not empty
        os.rmdir(name, dir_fd=parent)
    return done


class _NothingThere(UploadFailed):
    """A name below the root does not exist: an answer for head and delete, a race with a remover for put."""


def from_options(name: str, options: Mapping[str, Any]) -> FileTarget:
    """The target of a `[targets.<name>]` table, or SettingInvalid."""
    path = options.get("path")
    if set(options) != {"path"} or not isinstance(path, str) or not Path(path).is_absolute():
        raise SettingInvalid(f"Target '{name}' of kind 'file' needs an absolute 'path' and nothing else.")
    return FileTarget(name, Path(path))
