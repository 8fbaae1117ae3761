"""How is a source fetched over http(s), within its limits?

Every hop of a redirect is resolved and judged by us, and connected to by its address. The transfer runs in a thread
of its own, so that the caller can look twice a second whether it may go on, whatever the server does or does not do.
The limits hold whatever the server claims: bytes are counted as they come, and the clock runs from the start.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import httpx

from pipeline.core.errors import (
    ScratchFull,
    SourceDown,
    SourceError,
    SourceForbidden,
    SourceNotFound,
    SourceTimeout,
    SourceTooLarge,
    UpstreamFailure,
)
from pipeline.files import Check
from pipeline.media import address

OnBytes = Callable[[int, int | None], None]  # so many have come, of so many (if the server says)

CHUNK = 1 << 16
CHECK_EVERY_S = 0.25
REDIRECTS = 5
CONNECT_S = 15.0
SILENCE_S = 60.0  # a server that sends nothing for so long has broken off
BUSY = frozenset({429, 503})
GONE = frozenset({404, 410})
REFUSED = frozenset({401, 402, 403, 407, 451})


@dataclass(frozen=True)
class Limits:
    """How much, for how long, and which private hosts all the same."""

    max_bytes: int
    timeout_s: float
    exceptions: tuple[str, ...] = ()


def download(url: str, into: Path, limits: Limits, *, check: Check, on_progress: OnBytes) -> Path:
    """Fetch the URL into this file, which appears only when it is complete."""
    try:
        transfer = _Transfer(url, into.with_name(into.name + ".part"), limits)
    except httpx.InvalidURL as exc:
        raise SourceForbidden("The source's address cannot be read.") from exc
    thread = threading.Thread(target=transfer.run, name="download", daemon=True)
    deadline = time.monotonic() + limits.timeout_s
    thread.start()
    try:
        while not transfer.ended.wait(CHECK_EVERY_S):
            check()
            on_progress(transfer.done, transfer.total)
            if time.monotonic() > deadline:
                raise SourceTimeout(
                    f"{transfer.host} did not send the source within {limits.timeout_s:g} s.", service=transfer.service
                )
    finally:
        # The thread may still sit in a read; it writes nothing more, and its file has a name that nobody looks at.
        transfer.stopped.set()
    if transfer.error is not None:
        raise transfer.error
    on_progress(transfer.done, transfer.total)
    transfer.part.rename(into)
    return into


class _Transfer:
    """One download, seen from both threads."""

    def __init__(self, url: str, part: Path, limits: Limits) -> None:
        self.url = httpx.URL(url)
        self.host = self.url.host
        self.part = part
        self.limits = limits
        self.done = 0
        self.total: int | None = None
        self.error: BaseException | None = None
        self.stopped = threading.Event()
        self.ended = threading.Event()

    @property
    def service(self) -> str:
        """The breaker that a fault of this server counts for."""
        return f"source:{self.host}"

    def run(self) -> None:
        """Fetch, and leave either a complete `.part` file or the error."""
        try:
            self._fetch()
        except SourceError as exc:
            self.error = exc
        except OSError as exc:
            full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
            self.error = ScratchFull("There is no room left for the source.") if full else exc
        except BaseException as exc:
            self.error = exc
        finally:
            self.ended.set()

    def _fetch(self) -> None:
        # No proxy of the environment: it would resolve names for us, behind the guard.
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_S)
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
            headers={"Host": self.url.netloc.decode().rpartition("@")[2], "Accept-Encoding": "identity"},
            extensions={"sni_hostname": self.host},
        )
        credentials = httpx.BasicAuth(self.url.username, self.url.password) if self.url.userinfo else None
        response = client.send(request, stream=True, auth=credentials)
        try:
            if response.has_redirect_location:
                return self.url.join(response.headers["Location"])
            if response.status_code != 200:
                self._refuse(response.status_code)
            self._save(response)
            return None
        finally:
            response.close()

    def _refuse(self, status: int) -> NoReturn:
        """Say what the server's answer means for us."""
        if status in GONE:
            raise SourceNotFound(f"{self.host} has nothing at this address (HTTP {status}).")
        if status in REFUSED:
            raise SourceForbidden(f"{self.host} does not let us have the source (HTTP {status}).")
        if status in BUSY:
            raise SourceDown(f"{self.host} takes no requests now (HTTP {status}).", service=self.service)
        if status >= 500 or status in (408, 425):
            raise UpstreamFailure(f"{self.host} answered with HTTP {status}.", service=self.service)
        raise SourceNotFound(f"{self.host} did not send a file (HTTP {status}).")

    def _save(self, response: httpx.Response) -> None:
        claimed = response.headers.get("Content-Length", "")
        self.total = int(claimed) if claimed.isdecimal() else None
        self._within(self.total or 0)
        with self.part.open("wb") as file:
            for chunk in response.iter_bytes(CHUNK):
                if self.stopped.is_set():
                    return
                self.done += len(chunk)
                self._within(self.done)
                file.write(chunk)
            file.flush()

    def _within(self, size: int) -> None:
        if size > self.limits.max_bytes:
            raise SourceTooLarge(f"The source is larger than {self.limits.max_bytes} bytes.")
