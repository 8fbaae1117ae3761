"""clip: each clip, in each quality that the source can fill, becomes verified files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.core import ladder
from pipeline.core.errors import IronclipError, Kind
from pipeline.core.job import OutputStatus
from pipeline.core.output import CLIPPED, MASTER, RENDITION, SPOKEN, THUMBNAIL, Output
from pipeline.media import clip as media
from pipeline.media import probe, thumbnail
from pipeline.media.ffmpeg import Progress
from pipeline.stages.context import Bundle, Context
from pipeline.stages.done import Done
from pipeline.stages.making import Making
from pipeline.stages.rendering import make_master, make_rendition
from pipeline.stages.resolve import have_source


def clip(ctx: Context) -> Done:
    """Make every output that is not made yet. One that cannot be made fails alone, unless all of them do."""
    path = have_source(ctx)
    facts = probe.probe(path)
    settled = ctx.settled()
    wanted = _wanted(ctx.outputs(), settled)
    errors: list[IronclipError] = []
    modes: dict[str, str] = {}
    for n, output in enumerate(wanted):
        ctx.check()
        obstacle = _why_not(output, facts, ctx)
        if obstacle is not None:
            ctx.skipped(output, obstacle)
            continue
        if output.id not in settled:
            ctx.began(output)
        try:
            made = MAKERS[output.kind](Making(ctx, path, facts, output, n, len(wanted)))
        except IronclipError as exc:
            if exc.kind is not Kind.FAIL:
                raise
            errors.append(exc)
            ctx.failed(output, exc)
        else:
            modes[output.name] = str(made.facts["mode"])
            # What lies at its targets already is only listened to, unless it is a list of what was made anew.
            if output.id not in settled or (output.kind == MASTER and made.files != output.files):
                ctx.bundled(output, made)
    if errors and not modes and not ctx.settled():
        raise errors[0]
    return Done({"made": modes, "failed": len(errors)})


def _wanted(outputs: list[Output], settled: Set[int]) -> list[Output]:
    """What is still to be made, what somebody still wants to listen to, and lists of what is made anew."""
    left = [o for o in outputs if o.status is not OutputStatus.FAILED]
    mute = {o.clip for o in left if o.kind in SPOKEN and not o.is_out and o.id not in settled}
    heard = {"video"} if any(o.kind == "video" for o in left) else {MASTER}
    renewed = {o.clip for o in left if o.kind == RENDITION and o.id not in settled}

    def is_wanted(output: Output) -> bool:
        if output.id not in settled or (output.kind in heard and output.clip in mute):
            return True
        return output.kind == MASTER and output.clip in renewed

    return [o for o in left if o.kind in CLIPPED and is_wanted(o)]


def _why_not(output: Output, facts: probe.Facts, ctx: Context) -> str | None:
    """Why an output does not apply to this source."""
    assert facts.video is not None  # resolve lets no other source pass
    if output.quality is not None and not ladder.applies(output.quality, *facts.video.shown_size):
        return f"the source is smaller than {output.quality}"
    rungs = [o for o in ctx.outputs() if o.kind == RENDITION and o.clip == output.clip] if output.kind == MASTER else []
    if rungs and all(o.status is OutputStatus.SKIPPED for o in rungs):
        return "the source is smaller than every rendition"
    return None


def _video(making: Making) -> Bundle:
    ctx, output = making.ctx, making.output

    def make(work: Path) -> Mapping[str, Any]:
        asked = making.clip
        cut = media.plan_cut(
            making.source,
            making.facts,
            asked.start_s,
            asked.end_s,
            output.quality or ladder.SOURCE,
            ctx.request.precise,
        )

        def on_progress(seen: Progress) -> None:
            making.alone(seen.media_time_s, cut.duration_s)

        measured = media.make_clip(
            making.source,
            making.facts,
            cut,
            work,
            check=ctx.check,
            on_progress=on_progress,
            timeout_s=ctx.allowed_s,
            decode=ctx.settings.verify_decode,
        )
        return {
            "mode": cut.mode,
            "reason": cut.reason,
            "start_s": cut.start_s,
            "end_s": cut.end_s,
            "width": cut.width,
            "height": cut.height,
            "frame_s": cut.tolerance_s,
            **asdict(measured),
        }

    unit = ctx.file_once(output.name, ".mp4", make)
    return Bundle((unit.file,), unit.facts)


def _thumbnail(making: Making) -> Bundle:
    ctx, asked = making.ctx, making.clip

    def make(work: Path) -> Mapping[str, Any]:
        end_s = media.end_of(making.facts, asked.start_s, asked.end_s)
        return thumbnail.make_thumbnail(
            making.source,
            making.facts,
            asked.start_s,
            end_s,
            work,
            check=ctx.check,
            timeout_s=ctx.allowed_s,
        )

    unit = ctx.file_once(making.output.name, ".jpg", make)
    return Bundle((unit.file,), unit.facts)


MAKERS: Mapping[str, Callable[[Making], Bundle]] = {
    "video": _video,
    RENDITION: make_rendition,
    MASTER: make_master,
    THUMBNAIL: _thumbnail,
}
