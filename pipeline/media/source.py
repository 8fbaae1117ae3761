"""Where does a source come from, and how does it get here?

A local file is read where it is: copying gigabytes would cost more than it protects from, and a hard link would share
the same bytes anyway. Nothing ever writes to it or deletes it. A URL is downloaded into the folder that was given.
"""

from __future__ import annotations

import os
import stat
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pipeline import settings
from pipeline.core.errors import BadRequest, SourceForbidden, SourceNotFound, SourceUnreadable
from pipeline.files import Check, go_on
from pipeline.media import address

if TYPE_CHECKING:
    from pipeline.media.download import OnBytes

FIELD = "source"


def ignore(_done: int, _total: int | None) -> None:
    """The progress that nobody watches."""


def validate(source: str) -> None:
    """Refuse what can be seen to be no source, without touching the network: BadRequest with a reason."""
    if not source.strip():
        raise _bad("SOURCE_MISSING", "A job needs a source: an absolute path or an http(s) address.")
    if "\0" in source or "\n" in source or "\r" in source:
        raise _bad("SOURCE_INVALID", "The source has characters that no path and no address can have.")
    if _is_remote(source):
        _validate_url(source)
    else:
        _local(source)


def fetch(source: str, into: Path, *, check: Check = go_on, on_progress: OnBytes = ignore) -> Path:
    """The path of the source on this machine; a download goes into the folder `into`."""
    if not _is_remote(source):
        return _local_now(source, on_progress)
    # Only here: an app that enqueues validates sources, and needs no HTTP client for it.
    from pipeline.media.download import Limits, download

    now = settings.current()
    limits = Limits(now.source_max_bytes, now.source_timeout_sec, address.exceptions_of(now.source_allow_hosts))
    into.mkdir(parents=True, exist_ok=True)
    return download(source, into / "source", limits, check=check, on_progress=on_progress)


def is_local(source: str) -> bool:
    """Whether the source is a file of this machine."""
    return not _is_remote(source)


def shown(source: str) -> str:
    """The source as it may be shown: a URL without credentials and query."""
    if not _is_remote(source):
        return source
    parts = urlsplit(source)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _bad(code: str, message: str) -> BadRequest:
    return BadRequest(code, message, field=FIELD)


def _is_remote(source: str) -> bool:
    """Whether this is a URL; every other scheme than http, https and file is refused on the way."""
    scheme, mark, _ = source.partition(":")
    if not mark or source.startswith(("/", ".")) or not scheme.replace("+", "").isalnum():
        return False
    if scheme.lower() in ("http", "https"):
        return True
    if scheme.lower() == "file":
        return False
    raise _bad("SOURCE_SCHEME", f"Sources are files, http or https; {scheme[:20]} is none of them.")


def _validate_url(source: str) -> None:
    try:
        parts = urlsplit(source)
        host, _port = parts.hostname, parts.port
    except ValueError:
        raise _bad("SOURCE_URL", "The source's address cannot be read.") from None
    if not host:
        raise _bad("SOURCE_URL", "The source's address names no host.")
    try:
        literal = ip_address(host)
    except ValueError:
        return  # a name, or a number in disguise: judged when it is resolved
    if not address.is_allowed(host, literal, address.exceptions_of(settings.current().source_allow_hosts)):
        raise _bad("SOURCE_FORBIDDEN", f"{host} is not on the open internet; SOURCE_ALLOW_HOSTS can allow it.")


def _local(source: str) -> Path:
    """The real path of a local source, if it is a regular file that we may read and take."""
    path = _path_of(source)
    if not path.is_absolute():
        raise _bad("SOURCE_NOT_ABSOLUTE", f"{source} is a relative path; give the whole one.")
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError):
        raise _bad("SOURCE_MISSING", f"There is no file {path}.") from None
    roots = [Path(root).resolve() for root in settings.current().source_roots.split(":") if root]
    if roots and not any(real.is_relative_to(root) for root in roots):
        raise _bad("SOURCE_OUTSIDE_ROOTS", f"{path} is not in a folder that sources may come from (SOURCE_ROOTS).")
    if not stat.S_ISREG(mode):
        raise _bad("SOURCE_NOT_A_FILE", f"{path} is not a file.")
    if not os.access(real, os.R_OK):
        raise _bad("SOURCE_NOT_READABLE", f"{path} may not be read by us.")
    if real.stat().st_size == 0:
        raise _bad("SOURCE_EMPTY", f"{path} is empty.")
    return real


def _path_of(source: str) -> Path:
    if not source.lower().startswith("file:"):
        return Path(source)
    parts = urlsplit(source)
    if parts.netloc not in ("", "localhost"):
        raise _bad("SOURCE_URL", "A file address may not name another host.")
    return Path(unquote(parts.path))


def _local_now(source: str, on_progress: OnBytes) -> Path:
    """The same rules when the stage runs, long after the request was accepted: now they are the source's errors."""
    try:
        real = _local(source)
    except BadRequest as exc:
        if exc.reason in ("SOURCE_OUTSIDE_ROOTS", "SOURCE_NOT_READABLE"):
            raise SourceForbidden(exc.message) from None
        if exc.reason == "SOURCE_EMPTY":
            raise SourceUnreadable(exc.message) from None
        raise SourceNotFound(exc.message) from None
    size = real.stat().st_size
    on_progress(size, size)
    return real
