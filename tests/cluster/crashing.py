"""A worker app that dies once, at the worst moment: `resolve` is committed and the next link is not published yet.

`CRASH_NOTE` names a file that tells whether it has died already; `CRASH_OF` who dies: the pool's child, or the whole
tree as in a power cut. Our own code has no such switch.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import tasks.stages
from pipeline.core.job import Stage
from tasks import app

__all__ = ["app"]

_run_stage = tasks.stages.run_stage


def _die_once(stage: Stage, *told: Any) -> Any:
    answer = _run_stage(stage, *told)
    note = Path(os.environ["CRASH_NOTE"])
    if stage is Stage.RESOLVE and not note.exists():
        note.touch()
        if os.environ["CRASH_OF"] == "tree":
            os.killpg(0, signal.SIGKILL)
        os._exit(9)
    return answer


tasks.stages.run_stage = _die_once
