"""How does a file get behind SFTP so that nobody ever sees half of it?

It is written under a hidden name beside its place, synced where the server knows how to, read back, and renamed. SFTP
keeps no checksums, so whoever wants to know what lies there reads it: each look at a file is one download of it.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.core.errors import TargetNotFound, TargetRefused
from pipeline.delivery.attended import Step
from pipeline.delivery.options import Table
from pipeline.delivery.sftpline import Line, NothingThere, Options
from pipeline.delivery.sftpput import Put, measured
from pipeline.delivery.target import Meter, Progress, Stored, Tidied, key_parts, opened_source, parts_for, unseen
from pipeline.files import Check, go_on

FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
PUBLIC_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,3}( .*)?")


class SftpTarget:
    """A folder behind SFTP. A missing folder is a missing disk: refused."""

    def __init__(self, options: Options) -> None:
        self.name = options.name
        self.options = options
        self._line = Line(options)

    def head(self, key: str, *, check: Check = go_on, on_progress: Progress = unseen) -> Stored | None:
        """The true size and hash of what lies under the key; None when nothing does."""
        place = self._place(key_parts(key))
        check()
        total = 0

        def work(sftp: Any, step: Step) -> Stored | None:
            nonlocal total
            self._must_have_root(sftp)
            try:
                there = sftp.lstat(place)
            except FileNotFoundError:
                return None
            if not stat.S_ISREG(there.st_mode):
                raise TargetRefused(f"{self.name}: {key} is there and is not a file.")
            total = there.st_size
            return measured(sftp, place, total, step)

        return self._line.ask(key, work, check, lambda done: on_progress(done, max(done, total)))

    def put(self, path: Path, key: str, sha256: str, *, check: Check = go_on, on_progress: Progress = unseen) -> Stored:
        """Put the file under the key: whole, durable and verified, or not at all.

        What a put that lost its connection has left is used again, if it turns out to be good.
        """
        *folders, leaf = parts_for(key, sha256)
        with opened_source(path) as source:
            size = os.fstat(source).st_size

            def work(sftp: Any, step: Step) -> Stored:
                fd = os.dup(source)  # the work's own, also if it is left behind
                try:
                    self._must_have_root(sftp)
                    folder = self._folder(sftp, folders)
                    return Put(self.name, sftp, fd, size, sha256, folder, leaf).whole(step)
                finally:
                    os.close(fd)

            return self._line.ask(key, work, check, Meter(on_progress, 2 * size))

    def url(self, key: str) -> str:
        """Where a person finds the file."""
        place = self._place(key_parts(key))
        options = self.options
        if options.public_url:
            return f"{options.public_url}/{key}"
        return f"sftp://{options.user}@{options.host}:{options.port}/{place.lstrip('/')}"

    def delete(self, key: str) -> None:
        """Remove what lies under the key, if anything does."""
        place = self._place(key_parts(key))
        with suppress(NothingThere):
            self._line.ask(key, lambda sftp, _: sftp.remove(place))

    def tidy(self, folder: str, keep: Collection[str], older_than: timedelta) -> Tidied:
        """Remove whatever below the folder is none of the keys in `keep` and was not touched for this long."""
        parts = key_parts(folder)
        kept = {self._place(key_parts(key)) for key in keep}

        def work(sftp: Any, step: Step) -> Tidied:
            self._must_have_root(sftp)
            before = _clock(sftp, self._place(())) - older_than.total_seconds()
            return _tidied(sftp, self._place(parts), kept, before, step)

        try:
            return self._line.ask(folder, work)
        except NothingThere:
            return Tidied()

    def _place(self, parts: Collection[str]) -> str:
        return str(PurePosixPath(self.options.path, *parts))

    def _must_have_root(self, sftp: Any) -> None:
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(sftp.stat(self.options.path).st_mode):
                return
        raise TargetNotFound(f"{self.name}: there is no folder {self.options.path}.")

    def _folder(self, sftp: Any, parts: list[str]) -> str:
        """The folder of a key, made if it is not there; never through a link."""
        for n in range(1, len(parts) + 1):
            place = self._place(parts[:n])
            if _mode(sftp, place) is None:
                try:
                    sftp.mkdir(place)
                except OSError:
                    if _mode(sftp, place) is None:  # nobody else was quicker
                        raise
            if not stat.S_ISDIR(_mode(sftp, place) or 0):
                raise TargetRefused(f"{self.name}: {'/'.join(parts[:n])} is there and is not a folder.")
        return self._place(parts)


def _mode(sftp: Any, place: str) -> int | None:
    try:
        return int(sftp.lstat(place).st_mode)
    except FileNotFoundError:
        return None


def _clock(sftp: Any, root: str) -> float:
    """What the server's own clock says."""
    place = str(PurePosixPath(root, f".part-{secrets.token_hex(8)}"))
    with sftp.open(place, "wbx") as file:
        now = float(file.stat().st_mtime)
    sftp.remove(place)
    return now


def _tidied(sftp: Any, folder: str, keep: Collection[str], before: float, step: Step) -> Tidied:
    """Tidy one folder and those in it; never through a link, which is removed like a file."""
    done = Tidied()
    for entry in sftp.listdir_attr(folder):
        place = str(PurePosixPath(folder, entry.filename))
        step(0)
        with suppress(FileNotFoundError):  # somebody else removed it meanwhile
            if stat.S_ISDIR(entry.st_mode):
                more = _tidied(sftp, place, keep, before, step)
            elif place in keep:
                continue
            elif entry.st_mtime > before:
                more = Tidied(young=1)
            else:
                sftp.remove(place)
                more = Tidied(removed=1)
            done = Tidied(done.removed + more.removed, done.young + more.young)
    with suppress(OSError):  # not empty
        sftp.rmdir(folder)
    return done


def from_options(name: str, options: Mapping[str, Any]) -> SftpTarget:
    """The target of a `[targets.<name>]` table, or SettingInvalid."""
    table = Table(name, "sftp", options)
    host_key, known_hosts = table.text("host_key", ""), table.path("known_hosts")
    if bool(host_key) == bool(known_hosts):
        raise table.wrong("needs 'host_key' or 'known_hosts', and not both: without one anybody could be the server")
    if host_key and not FINGERPRINT.fullmatch(host_key) and not PUBLIC_KEY.fullmatch(host_key):
        raise table.wrong("needs a 'host_key' like SHA256:... or ssh-ed25519 AAAA...")
    key_file, password, passphrase = table.path("key_file"), table.secret("password"), table.secret("passphrase")
    if bool(key_file) == bool(password) or (passphrase and not key_file):
        raise table.wrong("needs 'key_file', or 'password_env' or 'password_file'")
    read = Options(
        name=name,
        host=table.text("host"),
        port=int(table.number("port", 22, 1, 65535)),
        user=table.text("user"),
        path=table.text("path"),
        host_key=host_key,
        known_hosts=known_hosts,
        key_file=key_file,
        passphrase=passphrase,
        password=password,
        timeout_s=table.number("timeout_s", 30, 1, 600),
        public_url=table.address("public_url"),
    )
    table.close()
    return SftpTarget(read)
