"""How is something fetched that may hang, within its limits?

A transfer runs in a thread of its own, so that the caller can look four times a second whether it may go on, whatever
the server does or does not do. The limits hold whatever the server claims: bytes are counted as they come, and the
clock runs from the start.
"""

from __future__ import annotations

import errno
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

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
from pipeline.files import Check, write_all
from pipeline.media.partial import Partial

OnBytes = Callable[[int, int | None], None]  # so many have come, of so many (if the server says)

CHUNK = 1 << 16
CHECK_EVERY_S = 0.25
RESUMES = 20  # within one attempt
BUSY = frozenset({429, 503})
GONE = frozenset({404, 410})
REFUSED = frozenset({401, 402, 403, 407, 451})


@dataclass(frozen=True)
class Limits:
    """How much, for how long, which private hosts all the same, and how long a server may be silent."""

    max_bytes: int
    timeout_s: float
    exceptions: tuple[str, ...] = ()
    stall_s: float = 60.0

    def hold(self, size: int) -> None:
        """SourceTooLarge for more than this."""
        if size > self.max_bytes:
            raise SourceTooLarge(f"The source is larger than {self.max_bytes} bytes.")


def meaning(status: int, host: str) -> SourceError:
    """What a server's answer means for us."""
    service = f"source:{host}"
    if status in GONE:
        return SourceNotFound(f"{host} has nothing at this address (HTTP {status}).")
    if status in REFUSED:
        return SourceForbidden(f"{host} does not let us have the source (HTTP {status}).")
    if status in BUSY:
        return SourceDown(f"{host} takes no requests now (HTTP {status}).", service=service)
    if status >= 500 or status in (408, 425):
        return UpstreamFailure(f"{host} answered with HTTP {status}.", service=service)
    return SourceNotFound(f"{host} did not send a file (HTTP {status}).")


class Transfer(ABC):
    """One fetch, seen from both threads."""

    def __init__(self, host: str, part: Path, limits: Limits) -> None:
        self.host = host
        self.part = Partial(part)
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

    @abstractmethod
    def fetch_once(self) -> None:
        """Fetch it into `part`; whatever goes wrong is one of our errors, or an OSError of our own disk."""

    def fetch(self) -> None:
        """Fetch it, going on where it broke off as long as each try brings something."""
        for left in range(RESUMES, -1, -1):
            before = self.part.size
            try:
                self.fetch_once()
                return
            except UpstreamFailure:
                has_come = self.part.origin is not None and self.part.size > before
                if not left or not has_come or self.stopped.is_set():
                    raise

    def run(self) -> None:
        """Fetch, and leave either a complete file or the error."""
        try:
            self.fetch()
        except SourceError as exc:
            self.error = exc
        except OSError as exc:
            full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
            self.error = ScratchFull("There is no room left for the source.") if full else exc
        except BaseException as exc:
            self.error = exc
        finally:
            self.ended.set()

    def save(self, pieces: Iterable[bytes], file: BinaryIO) -> None:
        """Write what comes, as long as somebody wants it and it is not too much."""
        with file:
            self.done = file.tell()
            for piece in pieces:
                if self.stopped.is_set():
                    return
                self.limits.hold(self.done + len(piece))
                write_all(file.fileno(), piece)
                self.done += len(piece)
        if self.total is not None and self.done != self.total:
            raise UpstreamFailure(f"{self.host} sent {self.done} bytes of {self.total}.", service=self.service)


def carry(transfer: Transfer, into: Path, *, check: Check, on_progress: OnBytes, earlier: Iterable[Path] = ()) -> Path:
    """Run a transfer into this file, which appears only when it is complete.

    What earlier leases have of it in their folders is not fetched again, if the server agrees that it is the same.
    """
    transfer.part.inherit(earlier, check)
    transfer.done = transfer.part.size
    deadline = time.monotonic() + transfer.limits.timeout_s
    threading.Thread(target=transfer.run, name="download", daemon=True).start()
    try:
        while not transfer.ended.wait(CHECK_EVERY_S):
            check()
            on_progress(transfer.done, transfer.total)
            if time.monotonic() > deadline:
                raise SourceTimeout(
                    f"{transfer.host} did not send the source within {transfer.limits.timeout_s:g} s.",
                    service=transfer.service,
                )
    finally:
        # The thread may still sit in a read; it writes nothing more, and its file has a name that nobody looks at.
        transfer.stopped.set()
    if transfer.error is not None:
        raise transfer.error
    on_progress(transfer.done, transfer.total)
    return transfer.part.finished(into)
