"""How does a webhook reach its endpoint, and how does the endpoint know that it is ours?

One POST of JSON, signed with HMAC-SHA256 over the time and the body. The name is resolved by us, the address judged,
and the connection made to that very address: an endpoint cannot point us into our own network. No redirect is
followed, no proxy is asked, and the whole of it ends within its time, however slowly the other side answers.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from pipeline.media import address

SIGNATURE, DELIVERY, TYPE = "Ironclip-Signature", "Ironclip-Delivery", "Ironclip-Type"
FRESH_S = 300


class Undelivered(Exception):
    """It did not arrive. `final`: trying again cannot help."""

    def __init__(self, reason: str, *, status: int | None = None, final: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.status, self.final = reason, status, final


# -- signatures ------------------------------------------------------------------------------------------------------


def sign(secret: str, at: int, body: bytes) -> str:
    """The value of the signature's header."""
    mac = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256)
    return f"t={at},v1={mac.hexdigest()}"


def verify(secret: str, signature: str, body: bytes, now: float, fresh_s: float = FRESH_S) -> bool:
    """Whether the body was signed with this secret, not too long ago."""
    told = dict(part.split("=", 1) for part in signature.split(",") if "=" in part)
    at = told.get("t", "")
    if not (at.isascii() and at.isdigit()) or abs(now - int(at)) > fresh_s:
        return False
    return hmac.compare_digest(sign(secret, int(at), body), f"t={at},v1={told.get('v1', '')}")


def secret_of(master: str, account: str | None) -> str:
    """The secret that signs the callbacks of an account's jobs: nobody can make another account's from his own."""
    return hmac.new(master.encode(), f"callbacks:{account or ''}".encode(), hashlib.sha256).hexdigest()


def encode(payload: Mapping[str, Any]) -> bytes:
    """The body: the same bytes at every try."""
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), default=str).encode()


# -- sending ---------------------------------------------------------------------------------------------------------


def post(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float, exceptions: tuple[str, ...]) -> int:
    """Send it; the status of a success. Undelivered if it did not arrive, or the other side did not want it."""
    parts = urlsplit(url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    connection = _Pinned(host, port, _allowed(host, port, exceptions), is_tls=is_tls, timeout_s=timeout_s)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        with _ended_after(timeout_s, connection):
            connection.request("POST", path, body, dict(headers))
            status = connection.getresponse().status
        if connection.was_late:  # what was cut off in the middle can look like an answer
            raise TimeoutError
    except (OSError, http.client.HTTPException, ValueError) as exc:
        late = connection.was_late or isinstance(exc, TimeoutError)
        said = f"no answer within {timeout_s:g} s" if late else f"{type(exc).__name__}: {_short(exc)}"
        raise Undelivered(said) from exc
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise Undelivered(f"HTTP {status}", status=status)
    return status


def _short(exc: BaseException) -> str:
    return (exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc))[:200]


def _allowed(host: str, port: int, exceptions: tuple[str, ...]) -> str:
    """An address of the host; Undelivered for good if any of them is not on the open internet."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise Undelivered("the name does not resolve") from exc
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    for each in addresses:
        if not address.is_allowed(host, ip_address(each), exceptions):
            raise Undelivered("the address is not on the open internet; WEBHOOK_ALLOW_HOSTS can allow it", final=True)
    return addresses[0]


class _Pinned(http.client.HTTPConnection):
    """A connection to one address, under the host's name for TLS and the Host header."""

    def __init__(self, host: str, port: int, where: str, *, is_tls: bool, timeout_s: float) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self._where, self._is_tls = where, is_tls
        self.default_port = 443 if is_tls else 80  # the Host header names any other
        self.was_late = False

    def connect(self) -> None:
        raw = socket.create_connection((self._where, self.port), self.timeout)
        self.sock = raw
        if self._is_tls:
            self.sock = ssl.create_default_context().wrap_socket(raw, server_hostname=self.host)

    def cut(self) -> None:
        """The time is over: whoever waits in a read or write hears so."""
        self.was_late = True
        with suppress(OSError, AttributeError):
            self.sock.shutdown(socket.SHUT_RDWR)


class _ended_after:  # noqa: N801 - reads as a clause
    """A peer that sends a byte now and then would keep every single read within its timeout."""

    def __init__(self, seconds: float, connection: _Pinned) -> None:
        self._timer = threading.Timer(seconds, connection.cut)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
