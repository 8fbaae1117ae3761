"""Our own application with stages that do nothing but take a moment: `IDLE_S` seconds."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from pipeline.stages import STAGES
from pipeline.stages.context import Context
from pipeline.stages.done import Done
from tasks import app

__all__ = ["app"]

IDLE_S = float(os.environ.get("IDLE_S", "0.02"))


def idle(_ctx: Context) -> Done:
    time.sleep(IDLE_S)
    return Done()


for _stage, _definition in list(STAGES.items()):
    STAGES[_stage] = replace(_definition, run=idle)
