"""When may a job run again?

Delays double from `base` to `cap`, and a random part of them is waited ("full jitter"), so that jobs which failed
together do not come back together. The randomness is drawn from the job's id and attempt, so a test can predict it.
"""

from __future__ import annotations

import random
from datetime import timedelta
from uuid import UUID


def ceiling(attempt: int, base: timedelta, cap: timedelta) -> timedelta:
    """The longest delay after that many executions: base, 2 base, 4 base ... cap."""
    times = 1 << min(attempt - 1, 60)
    return cap if base > cap / times else min(cap, base * times)  # no timedelta holds a minute that doubled 50 times


def delay(job_id: UUID, attempt: int, base: timedelta, cap: timedelta) -> timedelta:
    """How long the job waits after its attempt-th execution: between half a second and the ceiling."""
    longest = ceiling(attempt, base, cap)
    drawn = longest * random.Random(f"{job_id}:{attempt}").random()  # noqa: S311 - spreads, hides nothing
    return max(drawn, min(longest, timedelta(seconds=0.5)))
