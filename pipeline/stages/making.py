"""What does making one output of the clip stage need to know?"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.core.output import Output
from pipeline.core.request import Clip
from pipeline.media import probe
from pipeline.stages.context import Context

NOTED_EVERY_S = 2.0


@dataclass
class Making:
    """One output, made of one source, as the `nth` of `of` in its stage."""

    ctx: Context
    source: Path
    facts: probe.Facts
    output: Output
    nth: int
    of: int
    _noted_at: float = field(default_factory=time.monotonic)

    @property
    def clip(self) -> Clip:
        """The piece of the source that was asked for."""
        return next(c for c in self.ctx.request.clips if c.name == self.output.clip)

    def at(self, media_s: float, duration_s: float) -> None:
        """Say how far the whole stage is."""
        share = min(1.0, media_s / duration_s)
        self.ctx.progress(100 * (self.nth + share) / self.of, self.nth * 1e6 + media_s)

    def alone(self, media_s: float, duration_s: float) -> None:
        """Say how far the stage is, and now and then also how far this output is."""
        self.at(media_s, duration_s)
        now = time.monotonic()
        if now - self._noted_at >= NOTED_EVERY_S:
            self._noted_at = now
            self.ctx.advanced(self.output, 100 * min(1.0, media_s / duration_s))
