"""What was so a moment ago? Answers that many ask for are made once and kept for a second or two."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

MOST = 1000


class Lately:
    """Answers by what was asked; while one is being made, others who ask for it wait for that one."""

    def __init__(self, life_s: float) -> None:
        self._life_s = life_s
        self._kept: dict[Hashable, tuple[float, Any]] = {}
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, what: Hashable, make: Callable[[], Any]) -> Any:
        with self._lock:
            if len(self._making) > MOST:
                self._kept.clear()
                self._making.clear()
            one = self._making.setdefault(what, threading.Lock())
        with one:
            at, answer = self._kept.get(what, (-1e9, None))
            if time.monotonic() - at > self._life_s:
                answer = make()
                self._kept[what] = (time.monotonic(), answer)
            return answer
