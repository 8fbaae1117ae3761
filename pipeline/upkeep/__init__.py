"""What does time ask for? One file each; beat asks, and a worker that sees one overdue asks too.

Everything here may run anywhere, at any time, twice at once or after a death in the middle: it decides nothing that
the row does not decide again.
"""

from __future__ import annotations

from pipeline.upkeep.reap import Reaped, reap
from pipeline.upkeep.sweep import Swept, sweep

__all__ = ["Reaped", "Swept", "reap", "sweep"]
