"""asr: what is said in each clip becomes words with times, as JSON, SRT and VTT, and goes to each target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipeline.core.errors import AsrFailed, ScratchLost
from pipeline.core.output import Output
from pipeline.media import asr as engines
from pipeline.media import captions, probe, sound
from pipeline.stages import services
from pipeline.stages.context import Context, Unit
from pipeline.stages.delivering import deliver_outputs
from pipeline.stages.done import Done

WRITERS: Mapping[str, Callable[[captions.Transcript], str]] = {"srt": captions.to_srt, "vtt": captions.to_vtt}
FIRST_WORDS = 12


def asr(ctx: Context) -> Done:
    """Transcribe each clip that can be heard; a silent one is skipped, one that was never made has failed."""
    outputs, settled = ctx.outputs(), ctx.settled()
    heard: dict[str, str] = {}
    for output in outputs:
        if output.kind != "captions" or output.is_out or output.id in settled:
            continue
        ctx.check()
        clip = _clip_of(output, outputs)
        if clip is None:
            ctx.failed(output, AsrFailed("There is no clip to listen to."))
            continue
        path = _here(ctx, clip)
        facts = probe.probe(path)
        if not facts.has_audio:
            ctx.skipped(output, "the clip has no sound")
            continue
        ctx.began(output)
        units, text = _captions(ctx, output, path, facts)
        ctx.made(output, *units)
        heard[output.clip] = " ".join(text.split()[:FIRST_WORDS])
    counts = deliver_outputs(ctx, [o for o in ctx.outputs() if o.kind == "captions"])
    return Done({"first_words": heard, "delivered": counts})


def _clip_of(captions_output: Output, outputs: list[Output]) -> Output | None:
    """A video output of the same clip; any quality sounds the same."""
    return next((o for o in outputs if o.kind == "video" and o.clip == captions_output.clip and o.files), None)


def _here(ctx: Context, clip: Output) -> Path:
    file = clip.files[0]
    found = ctx.scratch.reuse(file.name, file.sha256, check=ctx.check)
    if found is None:
        raise ScratchLost(f"{file.name} is not on this machine.")
    return found.path


def _captions(ctx: Context, output: Output, clip: Path, facts: probe.Facts) -> tuple[list[Unit], str]:
    """The three files, and the words."""

    def transcribe(work: Path) -> Mapping[str, Any]:
        def on_seconds(done_s: float, total_s: float) -> None:
            ctx.progress(100 * done_s / total_s if total_s else None, done_s)

        wav = ctx.scratch.path(f"{output.name}-sound.wav")
        engine = engines.engine(ctx.settings)
        with ctx.service(services.of_asr(ctx.settings.asr_engine)):
            sound.extract(clip, facts, wav, check=ctx.check)
            said = engine.transcribe(wav, language=ctx.request.language, check=ctx.check, on_progress=on_seconds)
        wav.unlink()
        work.write_text(captions.to_json(said), encoding="utf-8")
        return {"engine": said.engine, "language": said.language, "words": len(said.words)}

    spoken = ctx.file_once(f"{output.name}-json", ".json", transcribe)
    transcript = captions.from_json(spoken.path.read_text(encoding="utf-8"))
    units = [spoken]
    for kind, write in WRITERS.items():

        def make(work: Path, write: Callable[[captions.Transcript], str] = write) -> Mapping[str, Any]:
            work.write_text(write(transcript), encoding="utf-8")
            return {}

        units.append(ctx.file_once(f"{output.name}-{kind}", f".{kind}", make))
    ctx.transcribed(output, {"text": transcript.text, "language": transcript.language, "engine": transcript.engine})
    return units, transcript.text
