"""What do workers run in a chaos run? Real stages for real sources; for a `.fake` one, stages of some milliseconds.

A worker takes this in with `celery worker --include pipeline.chaos.stage`. Fake or real, the runner, the fences, the
checkpoints, the deliveries and the ledger are the product's own: only what ffmpeg and the speech engine would make is
made here. Around each stage two notes are left outside of the database: whom a process is busy with, so that a killer
finds it, and that a stage came to its end, so that the checker can count.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pipeline.core.job import Stage
from pipeline.core.output import Output
from pipeline.stages import STAGES, services
from pipeline.stages.context import Context
from pipeline.stages.delivering import deliver_outputs
from pipeline.stages.done import Done

NOTES = "IRONCLIP_CHAOS_NOTES"  # the folder of the notes; without it this module changes nothing
FAKE = ".fake"
QUICK_S, LONG_S = (0.002, 0.012), (0.3, 1.5)
LONG_SHARE = 0.06  # some stages are worth being killed in
STEP_S = 0.02
CONTENT = 4096


def resolve(ctx: Context) -> Done:
    _work(ctx)
    return Done({"duration_s": 1.0}, expected_duration=timedelta(seconds=1))


def clip(ctx: Context) -> Done:
    """A small file for each video output."""
    return Done({"made": {output.name: "fake" for output in _made(ctx, "video", ".mp4")}})


def asr(ctx: Context) -> Done:
    """A small file for each output with captions, delivered."""
    _made(ctx, "captions", ".json")
    return Done({"delivered": deliver_outputs(ctx, [o for o in ctx.outputs() if o.kind == "captions"])})


FAKES: Mapping[Stage, Callable[[Context], Done]] = {Stage.RESOLVE: resolve, Stage.CLIP: clip, Stage.ASR: asr}


def _made(ctx: Context, kind: str, suffix: str) -> list[Output]:
    wanted = [output for output in ctx.outputs() if output.kind == kind]
    for output in wanted:

        def make(work: Path, output: Output = output) -> Mapping[str, Any]:
            _work(ctx)
            # The same for everybody who makes it: whatever else lies at the target was made by mistake.
            work.write_bytes(random.Random(f"{ctx.job.id} {output.name}").randbytes(CONTENT))  # noqa: S311 - no secret
            return {"fake": True}

        ctx.began(output)
        ctx.made(output, ctx.file_once(output.name, suffix, make))
    return wanted


def _work(ctx: Context) -> None:
    dice = random.Random(f"{ctx.job.id} {ctx.job.stage}")  # noqa: S311 - no secret
    until = time.monotonic() + dice.uniform(*(LONG_S if dice.random() < LONG_SHARE else QUICK_S))
    steps = 0
    while (left := until - time.monotonic()) > 0:
        ctx.check()
        time.sleep(min(left, STEP_S))
        ctx.progress(value=(steps := steps + 1))


# -- the notes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Notes:
    """Where workers leave them and others find them."""

    folder: Path

    @property
    def effects(self) -> Path:
        return self.folder / "effects"

    def busy(self, pid: int) -> Path:
        return self.folder / "busy" / str(pid)

    def make(self) -> None:
        (self.folder / "busy").mkdir(parents=True, exist_ok=True)

    def fence_of(self, pid: int) -> str | None:
        """The lease that this process is working under; None if it does nothing."""
        with suppress(OSError):
            return self.busy(pid).read_text() or None
        return None

    def came_to_its_end(self, ctx: Context) -> None:
        line = f"{ctx.job.id} {ctx.job.run} {ctx.job.stage} {ctx.job.fence}\n".encode()
        fd = os.open(self.effects, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, line)  # at once: whoever is killed leaves all of it or nothing
        finally:
            os.close(fd)


def _noted(notes: Notes, real: Callable[[Context], Done], fake: Callable[[Context], Done]) -> Callable[[Context], Done]:
    def run(ctx: Context) -> Done:
        note = notes.busy(os.getpid())
        note.write_text(str(ctx.job.fence))
        try:
            done = (fake if ctx.request.source.endswith(FAKE) else real)(ctx)
            notes.came_to_its_end(ctx)
            return done
        finally:
            note.unlink(missing_ok=True)

    return run


def install(folder: Path) -> None:
    """Let this process run the stages as above."""
    notes = Notes(folder)
    notes.make()
    services.SOON = timedelta(seconds=2)  # a job that met a full disk comes back while the run lasts
    for stage, definition in list(STAGES.items()):
        STAGES[stage] = replace(definition, run=_noted(notes, definition.run, FAKES.get(stage, definition.run)))


if NOTES in os.environ:
    install(Path(os.environ[NOTES]))
