"""Which stages are there? Five plain functions and one table; a new stage is a line here and a member of `Stage`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from pipeline.core.job import Stage
from pipeline.settings import Settings
from pipeline.stages.asr import asr
from pipeline.stages.clip import clip
from pipeline.stages.context import Context
from pipeline.stages.done import Done
from pipeline.stages.finalize import finalize
from pipeline.stages.resolve import resolve
from pipeline.stages.upload import upload


@dataclass(frozen=True)
class Definition:
    """What there is to know about a stage besides its function."""

    run: Callable[[Context], Done]
    stalls_after: timedelta
    sla: Callable[[Settings], float | None] = lambda _settings: None
    rewinds_to: Stage | None = None  # who made the files that it may miss
    burn_in_sla: Callable[[Settings], float] = lambda _settings: 0.0  # on top of that, where captions are burnt in


STAGES: dict[Stage, Definition] = {
    Stage.RESOLVE: Definition(resolve, timedelta(minutes=30)),
    Stage.CLIP: Definition(clip, timedelta(minutes=10), lambda s: s.clip_sla_factor, Stage.RESOLVE),
    Stage.UPLOAD: Definition(upload, timedelta(minutes=5), rewinds_to=Stage.CLIP),
    Stage.ASR: Definition(
        asr, timedelta(minutes=10), lambda s: s.asr_sla_factor, Stage.CLIP, lambda s: s.burnin_sla_factor
    ),
    Stage.FINALIZE: Definition(finalize, timedelta(minutes=5), rewinds_to=Stage.UPLOAD),
}
