"""What must a job make, and how complete is what it made?

An output is the unit of checkpoint, billing and partial success: one clip in one quality, or the captions of a clip.
It has one or more files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.core.job import Outcome, OutputStatus
from pipeline.core.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A finished file: its name in scratch and what is in it."""

    name: str
    sha256: str
    size: int

    @property
    def suffix(self) -> str:
        return "." + self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One row of `outputs`."""

    id: int
    name: str
    kind: str  # "video" or "captions"
    clip: str
    quality: str | None = None
    critical: bool = False
    status: OutputStatus = OutputStatus.PENDING
    files: tuple[File, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    error_code: str | None = None
    error_message: str | None = None

    @property
    def is_out(self) -> bool:
        """Nothing will come of it: it cannot be made, or does not apply."""
        return self.status in (OutputStatus.FAILED, OutputStatus.SKIPPED)


@dataclass(frozen=True, slots=True)
class Wanted:
    """An output as it stands in a new job."""

    name: str
    kind: str
    clip: str
    quality: str | None
    price: int
    critical: bool = False


def wanted(request: Request, price: int) -> list[Wanted]:
    """Every output that the request asks for."""
    rows = []
    for clip in request.clips:
        rows += [Wanted(f"{clip.name}-{q}", "video", clip.name, q, price) for q in request.qualities]
        if request.captions:
            rows.append(Wanted(f"{clip.name}-captions", "captions", clip.name, None, price))
    return rows


def outcome(outputs: Iterable[Output]) -> Outcome | None:
    """How complete the job is; None: it failed, because nothing succeeded or a critical output did not."""
    seen = list(outputs)
    failed = [o for o in seen if o.status is OutputStatus.FAILED]
    if any(o.critical for o in failed) or not any(o.status is OutputStatus.COMPLETED for o in seen):
        return None
    return Outcome.PARTIAL if failed else Outcome.FULL
