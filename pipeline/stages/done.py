"""What does a stage give back? What it found out, for the stages after it and for whoever looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pipeline.core.job import Outcome


@dataclass(frozen=True)
class Done:
    found: Mapping[str, Any] = field(default_factory=dict)
    expected_duration: timedelta | None = None  # of the media that the following stages make
    outcome: Outcome = Outcome.FULL  # said by the last stage
