"""Where do Postgres and Redis come from on a machine that has neither?

From wheels, with everything they write below one folder (`home`). One process owns a home and its servers end with it;
the kernel frees its lock however it dies, and the next owner recognises what was left behind by pid and start time.
Others may look a running home up, and use it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pipeline.core.errors import IronclipError
from pipeline.embedded.postgres import Postgres
from pipeline.embedded.redis import Redis


class HomeInUse(IronclipError):
    """Another process owns the servers of this home."""

    code = "HOME_IN_USE"


@dataclass
class Services:
    """A Postgres and a Redis that answer, and the folders beside them."""

    home: Path
    postgres: Postgres
    redis: Redis
    is_owner: bool
    _lock: IO[str] | None = field(default=None, repr=False)

    @property
    def database_url(self) -> str:
        return self.postgres.url

    @property
    def broker_url(self) -> str:
        return self.redis.url

    @property
    def scratch_dir(self) -> Path:
        return self.home / "scratch"

    @property
    def output_dir(self) -> Path:
        return self.home.parent / "output"

    def env(self) -> dict[str, str]:
        """The variables that a worker, beat, Flower or the command line needs; those that are set already win."""
        told = {
            "DATABASE_URL": self.database_url,
            "BROKER_URL": self.broker_url,
            "SCRATCH_DIR": str(self.scratch_dir),
            "OUTPUT_DIR": str(self.output_dir),
            "IRONCLIP_HOME": str(self.home),
        }
        kept = {name: os.environ[name] for name in ("SCRATCH_DIR", "OUTPUT_DIR") if os.environ.get(name)}
        return told | kept

    def stop(self) -> None:
        """End both servers and give the home up; does nothing for a guest."""
        if not self.is_owner:
            return
        # Redis first: nobody is handed work while the truth is closing.
        for server in (self.redis, self.postgres):
            server.stop()
        self.is_owner = False
        if self._lock is not None:
            self._lock.close()


def default_home() -> Path:
    """IRONCLIP_HOME, or `.ironclip` in the working folder."""
    return Path(os.environ.get("IRONCLIP_HOME") or ".ironclip").absolute()


@contextlib.contextmanager
def services(home: Path | None = None, *, share: bool = False) -> Iterator[Services]:
    """Both servers for as long as the block lasts."""
    held = start(home, share=share)
    try:
        yield held
    finally:
        held.stop()


def start(home: Path | None = None, *, share: bool = False) -> Services:
    """Own this home and start its servers; return when both answer.

    If another process owns it: its servers when `share` is set, else a refusal.
    """
    home = (home or default_home()).absolute()
    home.mkdir(parents=True, exist_ok=True)
    # Postgres, which is not root when we are, passes through; the secrets inside are closed one by one.
    home.chmod(0o711 if os.geteuid() == 0 else 0o700)
    lock = _take(home)
    if lock is None:
        if share and (guest := running(home)):
            return guest
        holder = (home / "lock").read_text().strip()
        raise HomeInUse(
            f"Process {holder} runs the servers of {home}: stop it, or set IRONCLIP_HOME to another folder."
        )
    try:
        return _start(home, lock)
    except BaseException:
        lock.close()
        raise


def running(home: Path | None = None) -> Services | None:
    """The servers of a home that somebody runs right now, to be used as a guest; None if nobody does."""
    home = (home or default_home()).absolute()
    if not (home / "secrets").exists():
        return None
    found = Services(home, *_servers(home), is_owner=False)
    return found if found.postgres.is_running and found.redis.is_running else None


def secret(home: Path, name: str, *, characters: int = 32) -> str:
    """A password that is made once and kept in a file that only its owner can read."""
    path = home / "secrets" / name
    with contextlib.suppress(FileNotFoundError):
        if kept := path.read_text():
            return kept
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = secrets.token_hex(characters // 2)
    draft = path.with_suffix(".making")
    draft.touch(mode=0o600)
    draft.write_text(made)
    draft.replace(path)
    return made


def _start(home: Path, lock: IO[str]) -> Services:
    postgres, redis = _servers(home)
    held = Services(home, postgres, redis, is_owner=True, _lock=lock)
    for server in (postgres, redis):
        server.take_over()
    with ThreadPoolExecutor(2) as both:
        beginnings = [both.submit(server.start) for server in (postgres, redis)]
    if failures := [exc for each in beginnings if (exc := each.exception())]:
        held.stop()
        raise failures[0]
    held.scratch_dir.mkdir(exist_ok=True)
    return held


def _servers(home: Path) -> tuple[Postgres, Redis]:
    return Postgres(home, secret(home, "postgres")), Redis(home, secret(home, "redis"))


def _take(home: Path) -> IO[str] | None:
    """The lock of a home, held until it is closed or we end; None while somebody else holds it."""
    lock = (home / "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
