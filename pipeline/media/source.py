"""Where does a source come from, and how does it get here?

A local file is read where it is: copying gigabytes would cost more than it protects from, and a hard link would share
the same bytes anyway. Nothing ever writes to it or deletes it. A URL is downloaded into the folder that was given; if
there is a page at it, yt-dlp looks behind it. An object of a bucket is fetched with the client of the target it is of.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote, urlsplit

from pipeline import settings
from pipeline.core.errors import BadRequest, SourceForbidden, SourceNotFound, SourceUnreadable
from pipeline.files import Check, go_on
from pipeline.media import address

if TYPE_CHECKING:
    from pipeline.media.transfer import Limits, OnBytes

FIELD = "source"

ClientFor = Callable[[str], Any]  # the boto3 client that may read a bucket; SourceForbidden if there is none


class Kind(StrEnum):
    """The three ways that a source can be had."""

    FILE = "file"
    WEB = "web"
    BUCKET = "bucket"


SCHEMES = {"file": Kind.FILE, "http": Kind.WEB, "https": Kind.WEB, "s3": Kind.BUCKET}


def no_client(bucket: str) -> NoReturn:
    """No bucket is ours."""
    raise SourceForbidden(f"There is no key to the bucket {bucket[:80]}.")


def ignore(_done: int, _total: int | None) -> None:
    """The progress that nobody watches."""


def validate(source: str, buckets: Collection[str] = ()) -> None:
    """Refuse what can be seen to be no source, without touching the network: BadRequest with a reason.

    `buckets` are those that we have a client for.
    """
    if not source.strip():
        raise _bad("SOURCE_MISSING", "A job needs a source: an absolute path, an http(s) address or an s3:// key.")
    if "\0" in source or "\n" in source or "\r" in source:
        raise _bad("SOURCE_INVALID", "The source has characters that no path and no address can have.")
    match kind_of(source):
        case Kind.WEB:
            _validate_url(source)
        case Kind.BUCKET:
            _validate_key(source, buckets)
        case Kind.FILE:
            _local(source)


def fetch(
    source: str,
    into: Path,
    *,
    check: Check = go_on,
    on_progress: OnBytes = ignore,
    earlier: Iterable[Path] = (),
    client_for: ClientFor = no_client,
) -> Path:
    """The path of the source on this machine; a download goes into the folder `into`.

    `earlier` are folders in which a download of the same source may have been left unfinished.
    """
    if is_local(source):
        return _local_now(source, on_progress)
    # Only here: an app that enqueues validates sources, and needs no HTTP client for it.
    from pipeline.media import site
    from pipeline.media.download import SourceIsPage

    into.mkdir(parents=True, exist_ok=True)
    now, limits = settings.current(), _limits()
    try:
        return _download(source, into, limits, check, on_progress, earlier, client_for)
    except SourceIsPage as exc:
        if exc.refused is not None and not site.is_possible():
            raise exc.refused from None
    patient = replace(limits, timeout_s=now.ytdlp_timeout_sec)
    return site.visit(source, into / "site", patient, check=check, on_progress=on_progress)


def knock(source: str, into: Path, timeout_s: float, client_for: ClientFor = no_client) -> None:
    """Ask for the source as `fetch` would, and hang up when it comes: SourceTooLarge, if all is well."""
    _download(source, into, replace(_limits(), max_bytes=0, timeout_s=timeout_s), go_on, ignore, (), client_for)


def _limits() -> Limits:
    from pipeline.media.transfer import Limits

    now = settings.current()
    allowed = address.exceptions_of(now.source_allow_hosts)
    return Limits(now.source_max_bytes, now.source_timeout_sec, allowed, now.source_stall_sec)


def _download(
    source: str,
    into: Path,
    limits: Limits,
    check: Check,
    on_progress: OnBytes,
    earlier: Iterable[Path],
    client_for: ClientFor,
) -> Path:
    from pipeline.media import bucket, download

    file = into / "source"
    if kind_of(source) is Kind.WEB:
        return download.download(source, file, limits, check=check, on_progress=on_progress, earlier=earlier)
    client = client_for(bucket_of(source))
    return bucket.download(source, client, file, limits, check=check, on_progress=on_progress, earlier=earlier)


def is_local(source: str) -> bool:
    """Whether the source is a file of this machine."""
    return kind_of(source) is Kind.FILE


def bucket_of(source: str) -> str:
    """The bucket of an s3:// source, as it is written there."""
    return source.removeprefix("s3://").partition("/")[0]


def shown(source: str) -> str:
    """The source as it may be shown: a URL without credentials and query."""
    if kind_of(source) is not Kind.WEB:
        return source
    parts = urlsplit(source)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _bad(code: str, message: str) -> BadRequest:
    return BadRequest(code, message, field=FIELD)


def kind_of(source: str) -> Kind:
    """What the source is by its scheme; BadRequest for any other than http, https, s3 and file."""
    scheme, mark, _ = source.partition(":")
    if not mark or source.startswith(("/", ".")) or not scheme.replace("+", "").isalnum():
        return Kind.FILE
    kind = SCHEMES.get(scheme.lower())
    if kind is None:
        raise _bad("SOURCE_SCHEME", f"Sources are files, http, https or s3; {scheme[:20]} is none of them.")
    return kind


def _validate_key(source: str, buckets: Collection[str]) -> None:
    from pipeline.media.bucket import parts_of

    parts = parts_of(source)
    if parts is None:
        raise _bad("SOURCE_URL", "An s3 source is s3://bucket/key, in small letters up to the key.")
    if parts[0] not in buckets:
        raise _bad("SOURCE_BUCKET", f"No s3 target lets us read the bucket {parts[0]} (TARGETS_FILE, SOURCE_BUCKETS).")


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
    path = path_of(source)
    if not path.is_absolute():
        raise _bad("SOURCE_NOT_ABSOLUTE", f"{source} is a relative path; give the whole one.")
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError):
        raise _bad("SOURCE_MISSING", f"There is no file {path}.") from None
    now = settings.current()
    roots = [Path(root).resolve() for root in now.source_roots.split(":") if root]
    if roots and not any(real.is_relative_to(root) for root in (*roots, now.uploads.resolve())):
        raise _bad("SOURCE_OUTSIDE_ROOTS", f"{path} is not in a folder that sources may come from (SOURCE_ROOTS).")
    if not stat.S_ISREG(mode):
        raise _bad("SOURCE_NOT_A_FILE", f"{path} is not a file.")
    if not os.access(real, os.R_OK):
        raise _bad("SOURCE_NOT_READABLE", f"{path} may not be read by us.")
    if real.stat().st_size == 0:
        raise _bad("SOURCE_EMPTY", f"{path} is empty.")
    return real


def path_of(source: str) -> Path:
    """The path that a local source names, as a path or as a file address."""
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
