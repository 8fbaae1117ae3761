"""How is a source fetched over http(s)?

Every hop of a redirect is resolved and judged by us, and connected to by its address. What broke off is gone on with
where it ended, if the server vouches for it (Range and If-Range); else it begins anew. Nothing is unpacked on the way:
what arrives is what is counted and kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from pipeline.core.errors import (
    SourceDown,
    SourceError,
    SourceForbidden,
    SourceTimeout,
    SourceUnreadable,
    UpstreamFailure,
)
from pipeline.files import Check
from pipeline.media import address
from pipeline.media.partial import Origin
from pipeline.media.transfer import REFUSED, Limits, OnBytes, Transfer, carry, meaning

__all__ = ["Limits", "OnBytes", "SourceIsPage", "download"]

REDIRECTS = 5
CONNECT_S = 15.0
PAGES = ("text/html", "application/xhtml+xml")
LISTS = ("mpegurl", "dash+xml")  # HLS and DASH: addresses of a film's pieces
VAGUE = ("", "text/plain", "application/octet-stream", "binary/octet-stream")
PAGE_BEGINS = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<!doctype html|<html|#EXTM3U|(?:<\?xml[^>]*>\s*)?<MPD[\s>])", re.I)
CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


class SourceIsPage(SourceUnreadable):
    """At the source's address is a page or a list of pieces; the film is somewhere behind it.

    A page that `refused` us may still open for a browser.
    """

    def __init__(self, host: str, refused: SourceError | None = None) -> None:
        super().__init__(f"{host} answered with a page, not with a video.")
        self.refused = refused


def download(
    url: str, into: Path, limits: Limits, *, check: Check, on_progress: OnBytes, earlier: Iterable[Path] = ()
) -> Path:
    """Fetch the URL into this file. `earlier`: folders in which dead leases may have left the beginning of it."""
    try:
        transfer = _Web(url, into.with_name(into.name + ".part"), limits)
    except httpx.InvalidURL as exc:
        raise SourceForbidden("The source's address cannot be read.") from exc
    return carry(transfer, into, check=check, on_progress=on_progress, earlier=earlier)


class _Web(Transfer):
    """One download over http(s)."""

    def __init__(self, url: str, part: Path, limits: Limits) -> None:
        self.asked_for = self.url = httpx.URL(url)
        super().__init__(self.url.host, part, limits)

    def fetch_once(self) -> None:
        """From the address that was asked for, through its redirects, to the file."""
        self.url, self.host = self.asked_for, self.asked_for.host
        # No proxy of the environment: it would resolve names for us, behind the guard.
        timeout = httpx.Timeout(self.limits.stall_s, connect=CONNECT_S)
        with httpx.Client(trust_env=False, verify=True, timeout=timeout, follow_redirects=False) as client:
            for _ in range(REDIRECTS + 1):
                onward = self._hop(client)
                if onward is None:
                    return
                self._follow(onward)
        raise SourceForbidden(f"{self.host} redirects more than {REDIRECTS} times.")

    def _follow(self, onward: httpx.URL) -> None:
        if onward.scheme not in ("http", "https") or not onward.host:
            raise SourceForbidden(f"{self.host} redirects to something that is not http.")
        if onward.host != self.url.host:
            onward = onward.copy_with(username=None, password=None)
        elif not onward.userinfo and self.url.userinfo:
            onward = onward.copy_with(username=self.url.username, password=self.url.password)
        self.url, self.host = onward, onward.host

    def _hop(self, client: httpx.Client) -> httpx.URL | None:
        """Ask once; the URL to go on to, or None when the file is here."""
        port = self.url.port or (443 if self.url.scheme == "https" else 80)
        addresses = address.resolve(self.host, port, self.limits.exceptions)
        for last, candidate in enumerate(addresses, start=1 - len(addresses)):
            try:
                return self._ask(client, candidate)
            except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
                if last == 0:
                    raise SourceDown(f"{self.host} cannot be reached.", service=self.service) from exc
            except httpx.InvalidURL as exc:
                raise SourceForbidden(f"{self.host} redirects to something that is not http.") from exc
            except httpx.TimeoutException as exc:
                raise SourceTimeout(f"{self.host} fell silent.", service=self.service) from exc
            except httpx.HTTPError as exc:
                raise UpstreamFailure(f"{self.host} broke off the transfer.", service=self.service) from exc
        raise SourceDown(f"{self.host} has no address.", service=self.service)

    def _ask(self, client: httpx.Client, to: address.Address) -> httpx.URL | None:
        """Send the request to this very address, in the name of the host."""
        literal = f"[{to}]" if to.version == 6 else str(to)
        request = client.build_request(
            "GET",
            self.url.copy_with(host=literal, username=None, password=None),
            headers={
                "Host": self.url.netloc.decode().rpartition("@")[2],
                "Accept-Encoding": "identity",
                **self._from_where_it_ended(),
            },
            extensions={"sni_hostname": self.host},
        )
        credentials = httpx.BasicAuth(self.url.username, self.url.password) if self.url.userinfo else None
        response = client.send(request, stream=True, auth=credentials)
        try:
            return self._take(response)
        finally:
            response.close()

    def _from_where_it_ended(self) -> dict[str, str]:
        origin = self.part.origin
        if origin is None or origin.place != self._place() or not self.part.start:
            return {}
        return {"Range": f"bytes={self.part.start}-", "If-Range": origin.mark}

    def _take(self, response: httpx.Response) -> httpx.URL | None:
        """Save what came; or the URL to ask next: the same one, if what we have cannot be gone on with."""
        if response.has_redirect_location:
            return self.url.join(response.headers["Location"])
        has_asked_for_rest = "Range" in response.request.headers
        if response.status_code == 206 and has_asked_for_rest and self._fits(response):
            assert self.part.origin is not None
            self.total = self.part.origin.total
            self.save(response.iter_raw(), self.part.continued())
        elif response.status_code in (206, 416) and has_asked_for_rest:
            self.part.forget()
            return self.url
        elif response.status_code == 200:
            self._save_whole(response)
        else:
            refusal = meaning(response.status_code, self.host)
            if response.status_code in REFUSED and _kind(response) in PAGES:
                raise SourceIsPage(self.host, refusal)
            raise refusal
        return None

    def _fits(self, response: httpx.Response) -> bool:
        """Whether this is the rest of what we have, and not the middle of something else."""
        said = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        origin, mark = self.part.origin, response.headers.get("ETag")
        if said is None or origin is None or _is_packed(response):
            return False
        is_same = mark is None or not origin.mark.startswith('"') or mark == origin.mark
        return is_same and (int(said[1]), int(said[2])) == (self.part.start, origin.total)

    def _save_whole(self, response: httpx.Response) -> None:
        kind = _kind(response)
        if kind in PAGES or kind.endswith(LISTS):
            raise SourceIsPage(self.host)
        if _is_packed(response):
            raise SourceUnreadable(f"{self.host} packs the source ({response.headers['Content-Encoding'][:20]}).")
        claimed = response.headers.get("Content-Length", "")
        self.total = int(claimed) if claimed.isdecimal() else None
        self.limits.hold(self.total or 0)
        pieces = response.iter_raw()
        self.save(self._no_page(pieces) if kind in VAGUE else pieces, self.part.begun(self._origin(response)))

    def _no_page(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The same pieces, unless they are a page whose server does not say what it sends."""
        for number, piece in enumerate(pieces):
            if number == 0 and PAGE_BEGINS.match(piece):
                raise SourceIsPage(self.host)
            yield piece

    def _origin(self, response: httpx.Response) -> Origin | None:
        mark = _mark(response)
        if mark is None or self.total is None or response.headers.get("Accept-Ranges", "").lower() == "none":
            return None
        return Origin(self._place(), mark, self.total)

    def _place(self) -> str:
        """The address without its query, which is often a signature that changes each time."""
        where = f"{self.url.scheme}://{self.url.netloc.decode().rpartition('@')[2]}{self.url.path}"
        return hashlib.sha256(where.encode()).hexdigest()


def _kind(response: httpx.Response) -> str:
    """What the server says it is, in small letters."""
    said: str = response.headers.get("Content-Type", "")
    return said.partition(";")[0].strip().lower()


def _is_packed(response: httpx.Response) -> bool:
    return response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity")


def _mark(response: httpx.Response) -> str | None:
    """What tells this content from any other: a strong ETag, or a date that is old enough to be one."""
    etag: str = response.headers.get("ETag", "").strip()
    if etag.startswith('"') and etag.endswith('"') and len(etag) > 2:
        return etag
    changed: str = response.headers.get("Last-Modified", "")
    try:
        age = parsedate_to_datetime(response.headers["Date"]) - parsedate_to_datetime(changed)
    except (KeyError, TypeError, ValueError):
        return None
    # A file that changes twice within a second has one date for both.
    return changed if age.total_seconds() >= 1 and not etag else None
