"""Our own application with stages that do nothing: claim, events, attempts, fences and chain are all there."""

from __future__ import annotations

from dataclasses import replace

from pipeline.stages import STAGES
from pipeline.stages.context import Context
from pipeline.stages.done import Done
from tasks import app

__all__ = ["app"]


def nothing(_ctx: Context) -> Done:
    return Done()


for _stage, _definition in list(STAGES.items()):
    STAGES[_stage] = replace(_definition, run=nothing)
