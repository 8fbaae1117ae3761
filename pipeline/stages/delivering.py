"""How does a finished output reach its targets? The same way for clips, captions and manifests.

Each target stands alone: one that refuses is noted and the others go on; one that is down, or that its breaker takes
for down, is tried again later, after the others have got theirs. What a target has taken it is not asked about again;
what lies there whole, because somebody died before he could say so, is not sent again. A target that spoils the last
attempt of all, or is still down when the job has waited long enough, is noted like one that refuses, so that it costs
no other target its files. A master playlist comes after its streams, and only where all of them lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.core.errors import BreakerOpen, IronclipError, Kind, TargetError, TargetIncomplete, TargetRefused
from pipeline.core.output import MASTER, RENDITION, File, Output
from pipeline.delivery import Target, deliver, published_key, published_keys
from pipeline.stages.context import Context
from pipeline.stages.services import of_target

PLAYLIST = ".m3u8"


def deliver_outputs(ctx: Context, outputs: Sequence[Output]) -> dict[str, int]:
    """Bring each output that has files to each target of the job; how many each target got."""
    settled = ctx.settled()
    ready = [o for o in outputs if o.files and not o.is_out and o.id not in settled]
    round_ = _Round(ctx, [o for o in outputs if o.kind == RENDITION])
    counts = dict.fromkeys(ctx.request.targets, 0)
    for n, output in enumerate(ready):
        pairs = published(ctx, output)
        for name in ctx.request.targets:
            counts[name] += round_.brings(output, name, pairs)
        round_.sent += sum(file.size for file in output.files)
        ctx.progress(100 * (n + 1) / len(ready), round_.sent)
    raise_soonest(round_.troubles)
    return counts


class _Round:
    """One walk over outputs and targets: what was said before, and what goes wrong on the way."""

    def __init__(self, ctx: Context, streams: Sequence[Output]) -> None:
        self._ctx = ctx
        self._answers = {(d["output_id"], d["target"]): d for d in ctx.deliveries()}
        self._down: dict[str, IronclipError] = {}  # for further outputs too
        self._lacking = {(o.clip, t) for o in streams for t in ctx.request.targets if self._has_refused(o, t)}
        self._later: set[tuple[str, str]] = set()
        self.troubles: list[IronclipError] = []
        self.sent = 0

    def brings(self, output: Output, name: str, pairs: Sequence[tuple[str, File]]) -> bool:
        """Whether the target has the output now; else it refused, or is asked again when the trouble is over."""
        if self._has_refused(output, name) or (output.kind == MASTER and (output.clip, name) in self._later):
            return False
        if self._has_taken(output, name, pairs):
            return True
        ctx = self._ctx
        try:
            self._may_have(output, name)
            with ctx.service(of_target(name)):
                files = [_deliver(ctx, ctx.targets[name], key, file, self.sent) for key, file in pairs]
        except (TargetError, BreakerOpen) as exc:
            if exc.kind is Kind.DEFER:
                self._down[name] = exc
            is_final = isinstance(exc, TargetRefused) or ctx.gives_up(name, exc)
            if output.kind == RENDITION:
                (self._lacking if is_final else self._later).add((output.clip, name))
            if is_final:
                ctx.refused(output, name, exc)
            else:
                self.troubles.append(exc)
            return False
        ctx.delivered(output, name, files)
        return True

    def _may_have(self, output: Output, name: str) -> None:
        """Raise what is already known: nobody is asked twice in vain, and no playlist names what is not there."""
        if name in self._down:
            raise self._down[name]
        if output.kind == MASTER and (output.clip, name) in self._lacking:
            raise TargetIncomplete(f"{name} did not take every stream that {output.name} names.")

    def _has_refused(self, output: Output, name: str) -> bool:
        answer = self._answers.get((output.id, name))
        return answer is not None and answer["status"] == "refused"

    def _has_taken(self, output: Output, name: str, pairs: Sequence[tuple[str, File]]) -> bool:
        """Whether an earlier attempt brought just these files there. The target is not asked: finalize looks at
        everything before it counts, and forgets the answer of a target where something is missing."""
        answer = self._answers.get((output.id, name))
        taken = answer["files"] if answer is not None and answer["status"] == "delivered" else []
        return bool(taken) and {file["key"] for file in taken} == {key for key, _ in pairs}


def raise_soonest(troubles: Sequence[IronclipError]) -> None:
    """Raise the trouble after which the job comes back first: an attempt that failed, then a service that was down,
    then the one that is given up for the shortest time. So an outage of one target never hides what is wrong at
    another."""
    if troubles:
        raise min(troubles, key=_comes_back)


def _comes_back(trouble: IronclipError) -> tuple[bool, float]:
    until = trouble.until if isinstance(trouble, BreakerOpen) else None
    return trouble.kind is Kind.DEFER, until.timestamp() if until else 0.0


def key_of(ctx: Context, output: str, file: File) -> str:
    """Where a file is published: its name and the hash of its content."""
    return published_key(ctx.job.id, ctx.job.building, output, file.sha256, file.suffix)


def published(ctx: Context, output: Output) -> list[tuple[str, File]]:
    """The files of an output with their keys, as they are to be published: a playlist after whatever it may name."""
    keys = published_keys(ctx.job.id, ctx.job.building, output.name, output.files)
    return sorted(zip(keys, output.files, strict=True), key=lambda pair: pair[1].suffix == PLAYLIST)


def _deliver(ctx: Context, target: Target, key: str, file: File, sent: int) -> dict[str, Any]:
    def on_bytes(done: int, _total: int) -> None:
        ctx.progress(value=sent + done)

    done = deliver(target, _here(ctx, file), key, file.sha256, check=ctx.check, on_progress=on_bytes)
    return asdict(done)


def _here(ctx: Context, file: File) -> Path:
    """The file in our own scratch, if any lease on this machine has it. The target opens it only if it must."""
    found = ctx.scratch.reuse(file.name, file.sha256, check=ctx.check)
    return found.path if found else ctx.scratch.path(file.name)
