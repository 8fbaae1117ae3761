"""asr: what is said in each clip becomes words with times, as JSON, SRT and VTT, and goes to each target.

Where it is asked for, the captions are also burnt into the picture. What cannot be made fails alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.core.errors import AsrFailed, IronclipError, Kind, ScratchLost
from pipeline.core.job import SHORTEST_DEADLINE
from pipeline.core.output import BURN_IN, MASTER, SPOKEN, File, Output
from pipeline.media import burnin, probe
from pipeline.media.captions import Transcript
from pipeline.media.ffmpeg import Progress
from pipeline.stages.context import Context
from pipeline.stages.delivering import deliver_outputs
from pipeline.stages.done import Done
from pipeline.stages.listening import listen, said_in, subtitles

CAPTIONS = "captions"
FIRST_WORDS = 12


def asr(ctx: Context) -> Done:
    """Transcribe each clip that can be heard; a silent one is skipped, one that was never made has failed."""
    outputs, settled = ctx.outputs(), ctx.settled()
    wanted = [o for o in outputs if o.kind in SPOKEN and not o.is_out and o.id not in settled]
    clips = list(dict.fromkeys(o.clip for o in wanted))
    heard: dict[str, str] = {}
    for n, name in enumerate(clips):
        ctx.check()
        clip = _Clip(ctx, {o.kind: o for o in wanted if o.clip == name}, n, len(clips))
        text = clip.make(_heard_in(name, outputs), is_mute=_is_mute(name, outputs))
        if text is not None:
            heard[name] = " ".join(text.split()[:FIRST_WORDS])
    counts = deliver_outputs(ctx, [o for o in ctx.outputs() if o.kind in SPOKEN])
    return Done({"first_words": heard, "delivered": counts})


def _heard_in(clip: str, outputs: list[Output]) -> File | None:
    """A file of the clip: a video in the first quality that was asked for, or what its HLS renditions sound like."""
    made = [o for o in outputs if o.clip == clip and o.files]
    sounds = [File(**o.facts["sound"]) for o in made if o.kind == MASTER and "sound" in o.facts]
    return next(iter([*(o.files[0] for o in made if o.kind == "video"), *sounds]), None)


def _is_mute(clip: str, outputs: list[Output]) -> bool:
    """Whether the clip was made, without anything to hear."""
    return any(o.kind == MASTER and o.clip == clip and o.files and "sound" not in o.facts for o in outputs)


class _Clip:
    """What is still to be made of one clip, and how far the whole stage is meanwhile."""

    def __init__(self, ctx: Context, wanted: Mapping[str, Output], nth: int, of: int) -> None:
        self._ctx, self._wanted, self._nth, self._of = ctx, wanted, nth, of

    def make(self, video: File | None, *, is_mute: bool) -> str | None:
        """Make it; what is said, or None if nobody will hear it."""
        if is_mute:
            self._skip("the clip has no sound", *self._wanted.values())
            return None
        if video is None:
            self._fail(AsrFailed("There is no clip to listen to."))
            return None
        found = self._ctx.scratch.reuse(video.name, video.sha256, check=self._ctx.check)
        if found is None:
            raise ScratchLost(f"{video.name} is not on this machine.")
        facts = probe.probe(found.path)
        if not facts.has_audio:
            self._skip("the clip has no sound", *self._wanted.values())
            return None
        for output in self._wanted.values():
            self._ctx.began(output)
        try:
            said = self._captions(found.path, facts)
        except IronclipError as exc:
            if exc.kind is not Kind.FAIL:
                raise
            self._fail(exc)
            return None
        if BURN_IN in self._wanted:
            self._burn_in(self._wanted[BURN_IN], found.path, facts, said)
        return said.text

    def _captions(self, clip: Path, facts: probe.Facts) -> Transcript:
        output = self._wanted.get(CAPTIONS)
        name = output.name if output else f"{self._wanted[BURN_IN].clip}-captions"
        spoken = listen(self._ctx, name, clip, facts, self._on_seconds)
        said = said_in(spoken)
        if output is not None:
            files = [spoken, *subtitles(self._ctx, name, said)]
            self._ctx.transcribed(output, {"text": said.text, "language": said.language, "engine": said.engine})
            self._ctx.made(output, *files)
        return said

    def _burn_in(self, output: Output, clip: Path, facts: probe.Facts, said: Transcript) -> None:
        if not said.lines:
            return self._skip("nothing is said in the clip", output)

        def make(work: Path) -> Mapping[str, Any]:
            def on_progress(seen: Progress) -> None:
                share = min(1.0, seen.media_time_s / facts.duration_s) if facts.duration_s else 1.0
                self._tell(0.5 + share / 2, facts.duration_s + seen.media_time_s)

            folder = self._ctx.scratch.path("burnin/captions.ass").parent
            time_s = {"timeout_s": _allowed_s(self._ctx, facts)}
            measured = burnin.burn_in(
                clip, facts, said, work, folder, check=self._ctx.check, on_progress=on_progress, **time_s
            )
            return asdict(measured)

        try:
            self._ctx.made(output, self._ctx.file_once(output.name, ".mp4", make))
        except IronclipError as exc:
            if exc.kind is not Kind.FAIL:
                raise
            self._ctx.failed(output, exc)

    def _fail(self, error: IronclipError) -> None:
        for output in self._wanted.values():
            self._ctx.failed(output, error)

    def _skip(self, why: str, *outputs: Output) -> None:
        for output in outputs:
            self._ctx.skipped(output, why)

    def _on_seconds(self, done_s: float, total_s: float) -> None:
        share = done_s / total_s if total_s else 1.0
        self._tell(share / 2 if BURN_IN in self._wanted else share, done_s)

    def _tell(self, share: float, value: float) -> None:
        self._ctx.progress(100 * (self._nth + share) / self._of, self._nth * 1e6 + value)


def _allowed_s(ctx: Context, facts: probe.Facts) -> float:
    """How long the burning in of one clip may take."""
    own_s = max(SHORTEST_DEADLINE.total_seconds(), facts.duration_s * ctx.settings.burnin_sla_factor)
    return own_s if ctx.allowed_s is None else min(own_s, ctx.allowed_s)
