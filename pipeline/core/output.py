"""What must a job make, and how complete is what it made?

An output is the unit of checkpoint, billing and partial success: one clip in one quality, or the captions of a clip.
It has one or more files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.core.errors import BadRequest
from pipeline.core.job import Outcome, OutputStatus
from pipeline.core.request import Request

SPOKEN = ("captions", "burnin")  # the kinds that show what was said

BURN_IN = "burnin"  # the kind of a video with its captions in the picture
RENDITION, MASTER = "hls", "master"  # the kinds of an HLS stream of pictures, and of what names all of a clip's streams
THUMBNAIL = "thumbnail"
CLIPPED = ("video", RENDITION, MASTER, THUMBNAIL)  # the kinds that are made of the source alone


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A finished file: its name in scratch and what is in it."""

    name: str
    sha256: str
    size: int
    path: str = ""  # its name below the folder that its output has at a target; empty: it stands there alone

    @property
    def suffix(self) -> str:
        return "." + self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One row of `outputs`."""

    id: int
    name: str
    kind: str  # "video", "captions", "burnin", "hls", "master" or "thumbnail"
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
        if "mp4" in request.formats:
            rows += [Wanted(f"{clip.name}-{q}", "video", clip.name, q, price) for q in request.qualities]
        if "hls" in request.formats:
            rows += [Wanted(f"{clip.name}-{q}-hls", RENDITION, clip.name, q, price) for q in request.qualities]
            rows.append(Wanted(f"{clip.name}-master", MASTER, clip.name, None, 0))
        if request.thumbnail:
            rows.append(Wanted(f"{clip.name}-thumbnail", THUMBNAIL, clip.name, None, 0))
        if request.captions:
            rows.append(Wanted(f"{clip.name}-captions", "captions", clip.name, None, price))
        if request.burn_in:
            rows.append(Wanted(f"{clip.name}-burnin", BURN_IN, clip.name, None, price))
    return rows


def made_anew(outputs: Sequence[Output], qualities: Sequence[str], transcription: bool) -> tuple[str, ...] | None:
    """The names of the outputs that a rerender makes anew; None: all of them, because nothing was chosen.

    BadRequest for a quality that the job does not have, or for the words of a job without captions.
    """
    for n, quality in enumerate(qualities):
        if quality not in {o.quality for o in outputs}:
            raise BadRequest("UNKNOWN_QUALITY", f"The job has no quality {quality!r}.", field=f"qualities[{n}]")
    if transcription and not any(o.kind in SPOKEN for o in outputs):
        raise BadRequest("NO_CAPTIONS", "The job has no captions.", field="transcription")
    if not qualities and not transcription:
        return None
    again = {o.name for o in outputs if o.quality in qualities or (transcription and o.kind in SPOKEN)}
    renewed = {o.clip for o in outputs if o.kind == RENDITION and o.name in again}
    return tuple(o.name for o in outputs if o.name in again or (o.kind == MASTER and o.clip in renewed))


def outcome(outputs: Iterable[Output]) -> Outcome | None:
    """How complete the job is; None: it failed, because nothing succeeded or a critical output did not."""
    seen = list(outputs)
    failed = [o for o in seen if o.status is OutputStatus.FAILED]
    if any(o.critical for o in failed) or not any(o.status is OutputStatus.COMPLETED for o in seen):
        return None
    return Outcome.PARTIAL if failed else Outcome.FULL
