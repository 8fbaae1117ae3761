"""How often may one key ask? A bucket of tokens each, filled at a steady rate, in this process's memory."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from pipeline.core.errors import RateLimited

MOST = 10_000  # buckets that are remembered; whoever was forgotten starts with a full one


class Buckets:
    """The tokens of everybody who asked lately."""

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when that was so

    def take(self, who: str) -> None:
        """Take a token, or RateLimited."""
        now = self._clock()
        with self._lock:
            left, since = self._left.pop(who, (float(self._burst), now))
            left = min(float(self._burst), left + (now - since) * self._per_s)
            enough = left >= 1
            self._left[who] = (left - 1 if enough else left, now)
            if len(self._left) > MOST:
                self._left.popitem(last=False)
        if not enough:
            raise RateLimited("This key asks too often.", wait_s=(1 - left) / self._per_s)
