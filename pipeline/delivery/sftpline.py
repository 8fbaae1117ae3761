"""How is an SFTP server spoken to? Only after its host key proved who it is, and with an end to every wait."""

from __future__ import annotations

import base64
import binascii
import hmac
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipeline.core.errors import (
    TargetDown,
    TargetError,
    TargetPermissionDenied,
    TargetRefused,
    TargetUntrusted,
    UploadFailed,
)
from pipeline.delivery.attended import Step, StoodStill, attended
from pipeline.delivery.options import Secret
from pipeline.delivery.target import translated
from pipeline.files import Check, go_on

T = TypeVar("T")

IDLE_S = 15.0  # a connection that was not used for longer may be dead without our knowing
NO_ROOM = 256 * 1024
RSA = ("rsa-sha2-512", "rsa-sha2-256")
EXTENDED, EXTENDED_REPLY = 200, 201


@dataclass(frozen=True)
class Options:
    """What `[targets.<name>]` says of a folder behind SFTP."""

    name: str
    host: str
    user: str
    path: str
    port: int = 22
    host_key: str = ""  # "SHA256:..." or "ssh-ed25519 AAAA..."
    known_hosts: str = ""
    key_file: str = ""
    passphrase: Secret | None = None
    password: Secret | None = None
    timeout_s: float = 30.0
    public_url: str = ""


class NothingThere(UploadFailed):
    """There is no such file: an answer for whoever looks, a race with a remover for anybody else."""


class Line:
    """One connection at a time, made when it is needed and used again while it is warm."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._sftp: Any = None
        self._used_at = 0.0
        self._hang_up: Callable[[], object] = lambda: None

    def ask(
        self, what: str, work: Callable[[Any, Step], T], check: Check = go_on, on_step: Step = lambda _done: None
    ) -> T:
        """What the work gives, done with a paramiko client; TargetError for whatever goes wrong at the target."""
        name = self.options.name

        def done(step: Step) -> T:
            sftp = self._connected()
            with self._errors(what, sftp):
                return work(sftp, step)

        try:
            return attended(done, check=check, on_step=on_step, patience_s=self.options.timeout_s, hang_up=self._cut)
        except StoodStill as exc:
            waited = f"nothing moved for {self.options.timeout_s:g} s"
            raise TargetDown(f"{name}: {what}: {waited}.", service=f"target:{name}") from exc
        finally:
            self._used_at = time.monotonic()

    def _cut(self) -> None:
        self._hang_up()

    def _connected(self) -> Any:
        if self._sftp is None or not self._is_warm():
            self._cut()
            transport = self._transport()
            self._hang_up = weakref.finalize(self, transport.close)
            with self._connecting():
                self._sftp = _paramiko(self.options.name).SFTPClient.from_transport(transport)
                self._sftp.get_channel().settimeout(self.options.timeout_s)
        return self._sftp

    def _is_warm(self) -> bool:
        return time.monotonic() - self._used_at < IDLE_S and self._sftp.get_channel().get_transport().is_active()

    def _transport(self) -> Any:
        options, paramiko = self.options, _paramiko(self.options.name)
        with self._connecting():
            wire = socket.create_connection((options.host, options.port), timeout=min(10.0, options.timeout_s))
            transport = paramiko.Transport(wire)
        try:
            transport.banner_timeout = transport.auth_timeout = transport.channel_timeout = options.timeout_s
            known = _known_keys(options, paramiko)
            kinds = [kind for key in known for kind in (RSA if key.get_name() == "ssh-rsa" else (key.get_name(),))]
            if kinds:
                transport.get_security_options().key_types = tuple(kinds)
            with self._connecting():
                transport.start_client(timeout=options.timeout_s)
            self._must_be_known(transport.get_remote_server_key(), known)
            self._log_in(transport, paramiko)
        except BaseException:
            transport.close()
            raise
        return transport

    def _must_be_known(self, key: Any, known: list[Any]) -> None:
        """Before anything of ours is sent, our login too."""
        pinned = self.options.host_key
        good = key in known or (pinned.startswith("SHA256:") and hmac.compare_digest(key.fingerprint, pinned))
        if not good:
            raise TargetUntrusted(
                f"{self.options.name}: {self.options.host} has the host key {key.get_name()} {key.fingerprint}, "
                "which is not the one that we know."
            )

    def _log_in(self, transport: Any, paramiko: Any) -> None:
        options = self.options
        try:
            with self._connecting():
                if options.key_file:
                    secret = options.passphrase.read() if options.passphrase else None
                    transport.auth_publickey(options.user, _private_key(options, paramiko, secret))
                elif options.password:
                    transport.auth_password(options.user, options.password.read())
        except paramiko.AuthenticationException as exc:
            raise TargetPermissionDenied(f"{options.name}: {options.host} does not let us in.") from exc

    @contextmanager
    def _connecting(self) -> Iterator[None]:
        """Until we are in, whatever goes wrong means that the server is not there for us."""
        paramiko = _paramiko(self.options.name)
        try:
            yield
        except paramiko.AuthenticationException:
            raise
        except (OSError, EOFError, paramiko.SSHException) as exc:
            if isinstance(exc, paramiko.IncompatiblePeer):
                raise TargetUntrusted(f"{self.options.name}: {self.options.host} lacks the key that we know.") from exc
            why = getattr(exc, "strerror", None) or type(exc).__name__
            raise TargetDown(
                f"{self.options.name}: {self.options.host} cannot be reached: {why}.",
                service=f"target:{self.options.name}",
            ) from exc

    @contextmanager
    def _errors(self, what: str, sftp: Any) -> Iterator[None]:
        paramiko = _paramiko(self.options.name)
        try:
            yield
        except TimeoutError as exc:
            name = self.options.name
            raise TargetDown(f"{name}: {what}: the server does not answer.", service=f"target:{name}") from exc
        except FileNotFoundError as exc:
            raise NothingThere(f"{self.options.name}: {what} is not there.") from exc
        except (EOFError, paramiko.SSHException) as exc:
            raise self._broke(what, exc) from exc
        except OSError as exc:
            raise self._meaning(what, sftp, exc) from exc

    def _meaning(self, what: str, sftp: Any, exc: OSError) -> TargetError:
        if isinstance(exc, ConnectionError) or not sftp.get_channel().get_transport().is_active():
            return self._broke(what, exc)
        return translated(self.options.name, what, exc)

    def _broke(self, what: str, exc: Exception) -> UploadFailed:
        name = self.options.name
        return UploadFailed(f"{name}: {what}: the connection broke ({type(exc).__name__}).", service=f"target:{name}")


def extended(sftp: Any, request: str, *arguments: Any) -> Any:
    """Ask for something that not every server knows; OSError if it does not."""
    return sftp._request(EXTENDED, request, *arguments)


def has_no_room(sftp: Any, path: str) -> bool:
    with suppress(OSError, EOFError):
        kind, answer = extended(sftp, "statvfs@openssh.com", path)
        if kind == EXTENDED_REPLY:
            _size, unit, _blocks, _free, available = (answer.get_int64() for _ in range(5))
            return bool(unit * available < NO_ROOM)
    return False


def _paramiko(target: str) -> Any:
    try:
        import paramiko
    except ImportError as exc:
        raise TargetRefused(f"{target}: SFTP needs a package here: pip install 'ironclip[sftp]'.") from exc
    return paramiko


def _known_keys(options: Options, paramiko: Any) -> list[Any]:
    """The keys that the server may have; none if only a fingerprint is known."""
    if options.known_hosts:
        hosts = paramiko.HostKeys()
        try:
            hosts.load(options.known_hosts)
        except OSError as exc:
            raise TargetUntrusted(f"{options.name}: its known_hosts cannot be read: {exc.strerror}.") from exc
        entry = options.host if options.port == 22 else f"[{options.host}]:{options.port}"
        known = list((hosts.lookup(entry) or {}).values())
        if not known:
            raise TargetUntrusted(f"{options.name}: its known_hosts does not know {entry}.")
        return known
    kind, _, encoded = options.host_key.partition(" ")
    if not encoded:
        return []
    try:
        return [paramiko.PKey.from_type_string(kind, base64.b64decode(encoded.split()[0], validate=True))]
    except (binascii.Error, ValueError, paramiko.SSHException) as exc:
        raise TargetUntrusted(f"{options.name}: its 'host_key' cannot be read.") from exc


def _private_key(options: Options, paramiko: Any, passphrase: str | None) -> Any:
    try:
        return paramiko.PKey.from_path(Path(options.key_file), passphrase.encode() if passphrase else None)
    except (OSError, ValueError, TypeError, paramiko.SSHException) as exc:
        raise TargetPermissionDenied(f"{options.name}: its key_file cannot be used ({type(exc).__name__}).") from exc
