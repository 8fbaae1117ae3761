"""resolve: a source, wherever it is, becomes a local file whose facts are known."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from pipeline.core.errors import SourceUnreadable
from pipeline.delivery.buckets import Buckets
from pipeline.media import probe, source
from pipeline.stages import services
from pipeline.stages.context import Context
from pipeline.stages.done import Done


def resolve(ctx: Context) -> Done:
    """Have the source here, and look into it."""
    facts = probe.probe(have_source(ctx))
    if facts.video is None:
        raise SourceUnreadable("The source has no picture.")
    seconds = sum(
        max(0.0, min(clip.end_s or facts.duration_s, facts.duration_s) - clip.start_s) for clip in ctx.request.clips
    )
    found = {
        "duration_s": round(facts.duration_s, 3),
        "container": facts.container,
        "video": f"{facts.video.codec} {facts.video.width}x{facts.video.height}",
        "fps": float(facts.video.fps),
        "audio": [track.codec for track in facts.audio],
        "bytes": facts.size_bytes,
    }
    return Done(found, expected_duration=timedelta(seconds=seconds * ctx.request.renditions))


def have_source(ctx: Context) -> Path:
    """The source as a local file. A download that is still here is used again; one that is missing is fetched again."""
    asked_for = ctx.request.source
    if source.is_local(asked_for):
        return source.fetch(asked_for, ctx.scratch.dir, check=ctx.check)

    def download(work: Path) -> Mapping[str, Any]:
        def on_bytes(done: int, total: int | None) -> None:
            ctx.progress(100 * done / total if total else None, done)

        with ctx.service(services.of_source(asked_for)):
            source.fetch(
                asked_for,
                ctx.scratch.dir,
                check=ctx.check,
                on_progress=on_bytes,
                earlier=_folders_of_others(ctx),
                client_for=Buckets(ctx.targets, ctx.settings).client,
            ).rename(work)
        return {"from": source.shown(asked_for)}

    return ctx.file_once("source", "", download).path


def _folders_of_others(ctx: Context) -> list[Path]:
    """Where earlier leases on this job worked: what they have of a download is read there, and never touched."""
    own = ctx.scratch.dir
    return [folder for folder in own.parent.iterdir() if folder != own]
