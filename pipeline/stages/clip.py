"""clip: each clip, in each quality that the source can fill, becomes a verified file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.core import ladder
from pipeline.core.errors import IronclipError, Kind
from pipeline.core.job import OutputStatus
from pipeline.core.output import Output
from pipeline.media import clip as media
from pipeline.media import probe
from pipeline.media.ffmpeg import Progress
from pipeline.stages.context import Context
from pipeline.stages.done import Done
from pipeline.stages.resolve import have_source


def clip(ctx: Context) -> Done:
    """Make every video output that is not made yet. One that cannot be made fails alone, unless all of them do."""
    path = have_source(ctx)
    facts = probe.probe(path)
    wanted = _wanted(ctx)
    errors: list[IronclipError] = []
    modes: dict[str, str] = {}
    for n, output in enumerate(wanted):
        ctx.check()
        if not _fits(output, facts):
            ctx.skipped(output, f"the source is smaller than {output.quality}")
            continue
        ctx.began(output)
        try:
            unit = ctx.file_once(output.name, ".mp4", _Maker(ctx, path, facts, output, n, len(wanted)))
        except IronclipError as exc:
            if exc.kind is not Kind.FAIL:
                raise
            errors.append(exc)
            ctx.failed(output, exc)
        else:
            modes[output.name] = str(unit.facts["mode"])
            ctx.made(output, unit)
    if errors and not modes and not ctx.settled():
        raise errors[0]
    return Done({"made": modes, "failed": len(errors)})


def _wanted(ctx: Context) -> list[Output]:
    """The video outputs that are still to be made, and those that somebody still wants to listen to."""
    settled = ctx.settled()
    outputs = [o for o in ctx.outputs() if o.status is not OutputStatus.FAILED]
    mute = {o.clip for o in outputs if o.kind == "captions" and not o.is_out and o.id not in settled}
    return [o for o in outputs if o.kind == "video" and (o.id not in settled or o.clip in mute)]


def _fits(output: Output, facts: probe.Facts) -> bool:
    assert output.quality is not None
    return facts.video is None or ladder.applies(output.quality, *facts.video.shown_size)


class _Maker:
    """Makes one output, and tells how far the whole stage is meanwhile."""

    def __init__(self, ctx: Context, source: Path, facts: probe.Facts, output: Output, nth: int, of: int) -> None:
        self._ctx, self._source, self._facts, self._output, self._nth, self._of = ctx, source, facts, output, nth, of

    def __call__(self, work: Path) -> Mapping[str, Any]:
        asked_for = next(c for c in self._ctx.request.clips if c.name == self._output.clip)
        cut = media.plan_cut(
            self._source,
            self._facts,
            asked_for.start_s,
            asked_for.end_s,
            self._output.quality or ladder.SOURCE,
            self._ctx.request.precise,
        )

        def on_progress(seen: Progress) -> None:
            share = min(1.0, seen.media_time_s / cut.duration_s)
            self._ctx.progress(100 * (self._nth + share) / self._of, self._nth * 1e6 + seen.media_time_s)

        measured = media.make_clip(
            self._source,
            self._facts,
            cut,
            work,
            check=self._ctx.check,
            on_progress=on_progress,
            timeout_s=self._ctx.allowed_s,
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
