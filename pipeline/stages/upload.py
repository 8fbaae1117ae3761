"""upload: each finished clip goes to each target."""

from __future__ import annotations

from pipeline.core.output import CLIPPED
from pipeline.stages.context import Context
from pipeline.stages.delivering import deliver_outputs
from pipeline.stages.done import Done


def upload(ctx: Context) -> Done:
    """Deliver what was made of the source."""
    return Done({"delivered": deliver_outputs(ctx, [o for o in ctx.outputs() if o.kind in CLIPPED])})
