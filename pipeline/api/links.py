"""Who may read a file without a key? Whoever has a link that we signed, until it expires.

The signature covers the files of one job and stands in the path, so that a playlist's relative names lead to links
that are as good as its own.
"""

from __future__ import annotations

import hmac
import time
from urllib.parse import quote
from uuid import UUID

from pipeline import settings
from pipeline.api.caller import sign
from pipeline.core.errors import LinkInvalid

ROUND_S = 300  # links made within this time are the same: a browser may keep what it has


def folder(job: UUID) -> str:
    """What the keys of a job begin with."""
    return f"jobs/{job}/"


def to(job: UUID, key: str) -> str:
    """A link to the file under this key, for a while."""
    until = (int(time.time() + settings.current().link_sec) // ROUND_S + 1) * ROUND_S
    return f"/api/files/{until}.{_signature(job, until)}/{job}/{quote(key.removeprefix(folder(job)))}"


def check(grant: str, job: UUID) -> float:
    """The seconds that are left, if we signed this and it has not expired; else LinkInvalid."""
    until, _, signature = grant.partition(".")
    if not (until.isascii() and until.isdigit() and len(until) <= 12):
        raise LinkInvalid("This link was not made by us.")
    if not hmac.compare_digest(signature.encode(), _signature(job, int(until)).encode()):
        raise LinkInvalid("This link was not made by us.")
    if int(until) < time.time():
        raise LinkInvalid("This link has expired.")
    return int(until) - time.time()


def _signature(job: UUID, until: int) -> str:
    return sign("file", f"{job}:{until}")
