"""Where does a holder work, so that no dead one can spoil its files?

Every lease has a folder of its own, `<SCRATCH_DIR>/jobs/<job>/<fence>/`, and its holder writes and deletes only there.
A file is made as `<name>-work.<suffix>`. When its writer has ended it is synced, made read-only and renamed to
`<name>-final.<suffix>`: only such files are ever shared. An heir takes one over when its hash is right, by a hard link.
A link shares the inode, so a stopped writer that wakes up would write into the heir's file too. That is why the kernel
is asked whether anybody still has the file open for writing; unless it says no, the heir makes a copy.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import signal
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import UUID

from pipeline import crashpoints
from pipeline.core.errors import InternalTransient, ScratchFull
from pipeline.crashpoints import At
from pipeline.files import Check, chunks, go_on, safe_parts, sha256_of, sync_folder, write_all

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
ANY_WRITE_BIT = 0o222
READ_ONLY = 0o444
WRITER_TRIES, WRITER_PAUSE_S = 20, 0.05


@dataclass(frozen=True)
class Finished:
    """A file that will not change any more."""

    path: Path
    sha256: str
    size: int


class Scratch:
    """The folder of one lease on one job. Bad names are ValueError; a full disk is ScratchFull."""

    def __init__(self, root: Path, job_id: UUID | str, fence: UUID | str) -> None:
        self.job_dir = _job_dir(root, job_id)
        self.fence = _one_part(str(fence))

    @cached_property
    def dir(self) -> Path:
        """The holder's own folder. Made once: a ghost whose folder was removed does not get a new one."""
        own = self.job_dir / self.fence
        with full_disk_is_ours():
            for folder in (self.job_dir.parent.parent, self.job_dir.parent, self.job_dir, own):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if own.resolve() != self.job_dir.parent.resolve() / self.job_dir.name / self.fence:
            raise ValueError(f"{own} leads elsewhere through a link")
        return own

    def path(self, name: str) -> Path:
        """A place for a file below the own folder; `name` may have folders, which are made."""
        *folders, leaf = safe_parts(name)
        folder = self.dir
        with full_disk_is_ours():
            for part in folders:  # one by one: the own folder itself is not made a second time
                folder = folder / part
                folder.mkdir(mode=0o700, exist_ok=True)
        place = folder / leaf
        self._must_be_own(place)
        return place

    def publish(self, work: Path, final: Path, *, check: Check = go_on) -> Finished:
        """Turn a `-work` file whose writer has ended into a `-final` one: synced, read-only, hashed, renamed.

        Refuses (InternalTransient) a file that somebody still has open for writing.
        """
        self._must_be_own(work)
        self._must_be_own(final)
        if not work.stem.endswith("-work"):
            raise ValueError(f"{work.name} is not a '-work' file")
        _must_be_final(final.name)
        with full_disk_is_ours(), _opened(work, READ) as fd:
            self._wait_for_writer(fd, work.name, check)
            os.fchmod(fd, READ_ONLY)
            os.fsync(fd)
            done = Finished(final, sha256_of(fd, check), os.fstat(fd).st_size)
            check()
            work.rename(final)
            _sync(final.parent)
        return done

    def find(self, name: str, sha256: str, *, check: Check = go_on) -> Path | None:
        """The finished unit of this name and content in another fence's folder of this job; it stays where it is."""
        return next((path for path in self._of_others(name) if _hash_of(path, check) == sha256), None)

    def adopt(self, other: Path, sha256: str, name: str, *, check: Check = go_on) -> Finished | None:
        """Take another fence's finished file over as our own `name`, or None if its hash is not this one.

        The other's file is not touched. Ours has a name of its own and bytes that nobody can change.
        """
        _must_be_final(other.name)
        _must_be_final(name)
        if self.job_dir not in other.parents or self.dir in other.parents:
            raise ValueError(f"{other} is not of another lease on this job")
        final = self.path(name)
        ours = final.with_name(f"{final.name}.adopting-{secrets.token_hex(4)}")
        try:
            # Whatever is wrong with the other's file: the answer is None and the unit is made again.
            with suppress(OSError), full_disk_is_ours():
                _link_or_copy(other, ours, check)
                with _opened(ours, READ) as fd:
                    # Hashed under our own name: whatever happens to the other's name, these are the bytes we keep.
                    if sha256_of(fd, check) == sha256:
                        size = os.fstat(fd).st_size
                        check()
                        crashpoints.reached(At.UNIT_ADOPTED)
                        ours.rename(final)
                        _sync(final.parent)
                        return Finished(final, sha256, size)
            return None
        finally:
            ours.unlink(missing_ok=True)

    def reuse(self, name: str, sha256: str, *, check: Check = go_on) -> Finished | None:
        """The finished unit of this name and content as our own file: ours already, or adopted; else None."""
        _must_be_final(name)
        own = self.path(name)
        if _hash_of(own, check) == sha256:
            return Finished(own, sha256, own.stat().st_size)
        taken = (self.adopt(other, sha256, name, check=check) for other in self._of_others(name))
        return next((unit for unit in taken if unit is not None), None)

    def remove_own(self) -> None:
        """Remove the own folder, as far as that is possible: what remains is swept when the job is final."""
        shutil.rmtree(self.dir, ignore_errors=True)

    def free_bytes(self) -> int:
        """How much room there is for us on the scratch disk."""
        return shutil.disk_usage(self.dir).free

    def _must_be_own(self, path: Path) -> None:
        if not path.parent.resolve().is_relative_to(self.dir.resolve()) or path.is_symlink():
            raise ValueError(f"{path} is not below the own scratch folder")

    def _wait_for_writer(self, fd: int, name: str, check: Check) -> None:
        """Return when nobody can write to the file any more; InternalTransient if that does not come soon."""
        for _ in range(WRITER_TRIES):
            if not _has_writer(fd) or not self._kernel_knows_writers:
                return
            check()
            time.sleep(WRITER_PAUSE_S)  # another thread's child has our descriptors from its fork until its exec
        raise InternalTransient(f"{name} is still being written.")

    @cached_property
    def _kernel_knows_writers(self) -> bool:
        """Some network file systems say "has a writer" of every file: try one that has none."""
        probe = self.dir / f"probe-{secrets.token_hex(4)}"
        try:
            with _opened(probe, CREATE):
                pass
            with _opened(probe, READ) as fd:
                return _has_writer(fd) is False
        finally:
            probe.unlink(missing_ok=True)

    def _of_others(self, name: str) -> Iterator[Path]:
        _must_be_final(name)
        parts = safe_parts(name)
        folders = sorted(self.job_dir.iterdir()) if self.job_dir.is_dir() else []
        for folder in folders:
            unit = folder.joinpath(*parts)
            if folder.name != self.fence and unit.is_file():
                yield unit


def remove_job(root: Path, job_id: UUID | str) -> None:
    """Remove all scratch of a job that is final, for callers that hold no lease on it."""
    crashpoints.reached(At.CLEARING)
    shutil.rmtree(_job_dir(root, job_id), ignore_errors=True)


def leases_of(root: Path, job_id: UUID | str) -> list[str]:
    """Which leases have a folder here. Whoever asks before he sees that the job is final may remove just those: a run
    that begins after that has another one."""
    with suppress(FileNotFoundError):
        return [path.name for path in _job_dir(root, job_id).iterdir()]
    return []


def remove_leases(root: Path, job_id: UUID | str, leases: Iterable[str]) -> None:
    """Remove what these leases left of a job, and the job's folder if nobody else is in it."""
    crashpoints.reached(At.CLEARING)
    folder = _job_dir(root, job_id)
    for lease in leases:
        path = folder / _one_part(lease)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty: somebody works there again
        folder.rmdir()


@contextmanager
def full_disk_is_ours() -> Iterator[None]:
    """A full disk inside is ScratchFull: this worker's trouble, not the job's."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ScratchFull("This worker's scratch disk is full.") from exc
        raise


def _job_dir(root: Path, job_id: UUID | str) -> Path:
    return root.absolute() / "jobs" / _one_part(str(job_id))


def _one_part(name: str) -> str:
    parts = safe_parts(name)
    if len(parts) != 1:
        raise ValueError(f"{name!r} is more than one name")
    return parts[0]


def _must_be_final(name: str) -> None:
    if not Path(name).stem.endswith("-final"):
        raise ValueError(f"{name} is not a '-final' file")


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _sync(folder: Path) -> None:
    with _opened(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
        sync_folder(fd)


def _hash_of(path: Path, check: Check) -> str | None:
    """The hash of the file, or None if it cannot be read to its end."""
    try:
        with _opened(path, READ) as fd:
            return sha256_of(fd, check)
    except OSError:
        return None


def _has_writer(fd: int) -> bool | None:
    """Does anybody, also a stopped process, have this file open for writing? None where the kernel cannot say.

    The kernel grants a read lease only on a file without writers, so we ask for one and give it back.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # who opens it in between must not kill us with SIGIO
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as exc:
        return True if exc.errno == errno.EAGAIN else None
    return False


def _link_or_copy(other: Path, ours: Path, check: Check) -> None:
    with _opened(other, READ) as fd:
        status = os.fstat(fd)
        settled = stat.S_ISREG(status.st_mode) and not status.st_mode & ANY_WRITE_BIT and _has_writer(fd) is False
        if settled:
            with suppress(OSError):  # another device, too many links, a file system without them: copy
                os.link(other, ours, follow_symlinks=False)
                if os.path.samestat(os.lstat(ours), status):
                    return
                ours.unlink()  # the name went to another file since we looked at it
        with _opened(ours, CREATE) as copy:
            for chunk in chunks(fd):
                check()
                write_all(copy, chunk)
            os.fchmod(copy, READ_ONLY)
            os.fsync(copy)
