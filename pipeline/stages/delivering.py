"""How does a finished output reach its targets? The same way for clips, captions and manifests.

Each target stands alone: one that refuses is noted and the others go on; one that is down, or that its breaker takes
for down, is tried again later, after the others have got theirs. What a target has taken it is not asked about again;
what lies there whole, because somebody died before he could say so, is not sent again. A target that spoils the last
attempt of all, or is still down when the job has waited long enough, is noted like one that refuses, so that it costs
no other target its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.core.errors import BreakerOpen, IronclipError, Kind, TargetError, TargetRefused
from pipeline.core.output import File, Output
from pipeline.delivery import Target, deliver, published_key, published_keys
from pipeline.stages.context import Context
from pipeline.stages.services import of_target

PLAYLIST = ".m3u8"


def deliver_outputs(ctx: Context, outputs: Iterable[Output]) -> dict[str, int]:
    """Bring each output that has files to each target of the job; how many each target got."""
    settled = ctx.settled()
    ready = [o for o in outputs if o.files and not o.is_out and o.id not in settled]
    answers = {(d["output_id"], d["target"]): d for d in ctx.deliveries()}
    counts = dict.fromkeys(ctx.request.targets, 0)
    troubles: list[IronclipError] = []
    down: dict[str, IronclipError] = {}
    sent = 0
    for n, output in enumerate(ready):
        pairs = published(ctx, output)
        for name in ctx.request.targets:
            answer = answers.get((output.id, name))
            if _has_refused(answer):
                continue
            if _has_taken(answer, pairs):
                counts[name] += 1
                continue
            try:
                if name in down:
                    raise down[name]
                with ctx.service(of_target(name)):
                    files = [_deliver(ctx, ctx.targets[name], key, file, sent) for key, file in pairs]
            except (TargetError, BreakerOpen) as exc:
                if exc.kind is Kind.DEFER:
                    down[name] = exc  # for its further outputs too
                if isinstance(exc, TargetRefused) or ctx.gives_up(name, exc):
                    ctx.refused(output, name, exc)
                else:
                    troubles.append(exc)
            else:
                ctx.delivered(output, name, files)
                counts[name] += 1
        sent += sum(file.size for file in output.files)
        ctx.progress(100 * (n + 1) / len(ready), sent)
    raise_soonest(troubles)
    return counts


def _has_refused(answer: Mapping[str, Any] | None) -> bool:
    return answer is not None and answer["status"] == "refused"


def _has_taken(answer: Mapping[str, Any] | None, pairs: Sequence[tuple[str, File]]) -> bool:
    """Whether an earlier attempt brought just these files there. The target is not asked: finalize looks at everything
    before it counts, and forgets the answer of a target where something is missing."""
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
