"""What may a process do that goes where strangers lead it?

A `Guard` is an audit hook of Python itself, which nothing in the process can take away again. Under it

- a connection goes to an address that `address.py` allows, judged at the very moment it is made, whatever name,
  spelling or redirect led there; only http and https are asked for;
- files are written in one folder only, and read there and where Python itself lies;
- no other program is started: no ffmpeg with an address in its hand, no external downloader, no browser.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
import sysconfig
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from pipeline.media.address import is_allowed

RESOLVE = socket.getaddrinfo
STARTS_A_PROGRAM = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty")
OTHER_NETWORK = ("socket.bind", "socket.sendto", "socket.sendmsg", "ftplib.connect")
CHANGES_A_NAME = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate")
GIVES_A_NAME = ("os.rename", "os.link", "os.symlink")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
SYSTEM = ("/etc/mime.types", "/etc/apache2/mime.types", "/etc/ssl", "/usr/share/zoneinfo", os.devnull, "/dev/urandom")


class Guard:
    """What this process may do; everything else is refused where it is tried, and remembered."""

    def __init__(self, folder: Path, exceptions: tuple[str, ...]) -> None:
        self.host = ""  # that was asked last
        self.refused: list[str] = []  # places that a page led to
        self.trouble: Any = None  # the last error that yt-dlp tried to get over: it forgets it when it gives up
        self._exceptions = exceptions
        self._by_name: set[str] = set()  # addresses of hosts that are allowed by their names
        self._written = (str(folder),)
        here = Path(__file__).resolve().parents[1]
        python = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
        self._read = (*self._written, *SYSTEM, str(here), *(str(Path(path).resolve()) for path in python), *python)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            self._connect(args[1])
        elif event == "urllib.Request":
            self._request(str(args[0]))
        elif event == "open":
            self._open(args[0], args[1], args[2])
        elif event in CHANGES_A_NAME:
            for path in args[: 2 if event in GIVES_A_NAME else 1]:
                _below(path, self._written)
        elif event in STARTS_A_PROGRAM or event in OTHER_NETWORK:
            raise PermissionError(errno.EPERM, f"refused: {event}")

    def resolve(self, host: Any, *args: Any, **kwargs: Any) -> Any:
        """`getaddrinfo`, remembering the addresses of hosts that are allowed by name."""
        found = RESOLVE(host, *args, **kwargs)
        name = str(host).lower().rstrip(".")
        if name in {exception.lower().rstrip(".") for exception in self._exceptions}:
            self._by_name |= {str(entry[4][0]) for entry in found}
        return found

    def noting(self, report: Any) -> Any:
        """yt-dlp's way to report that it tries again, remembering why."""

        def noted(downloader: Any, trouble: Any, *args: Any, **kwargs: Any) -> Any:
            self.trouble = trouble
            return report(downloader, trouble, *args, **kwargs)

        return noted

    def _connect(self, to: Any) -> None:
        literal = str(to[0]) if isinstance(to, tuple) else ""
        try:
            address = ipaddress.ip_address(literal.partition("%")[0])
        except ValueError:
            self._refuse("a connection to something that is no address")
        if literal not in self._by_name and not is_allowed(literal, address, self._exceptions):
            self._refuse(f"a connection to {address}")

    def _request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            self._refuse(f"a request by {parts.scheme[:20]}")
        self.host = parts.hostname or ""

    def _open(self, path: Any, mode: Any, flags: Any) -> None:
        # `open` tells a mode, `os.open` tells flags.
        is_write = set(mode) & set("wax+") if isinstance(mode, str) else isinstance(flags, int) and flags & WRITES
        _below(path, self._written if is_write else self._read)

    def _refuse(self, what: str) -> NoReturn:
        self.refused.append(what)
        raise PermissionError(errno.EPERM, f"refused: {what}")


def _below(path: Any, roots: tuple[str, ...]) -> None:
    """Refuse a file that is below none of these folders; one that is open already may stay so."""
    if isinstance(path, int):
        return
    whole = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - Path.resolve would come through this very hook
    if whole != os.devnull and not any(whole == root or whole.startswith(root.rstrip("/") + "/") for root in roots):
        raise PermissionError(errno.EPERM, f"refused: the file {whole.rpartition('/')[2]}")
