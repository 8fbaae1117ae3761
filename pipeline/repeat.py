"""How is something done again and again beside everything else? In a thread that no error ends."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pipeline import log
from pipeline.core.errors import DatabaseUnavailable

logger = log.get("repeat")


class Repeat:
    """Calls `act` every so many seconds; `first` before that, once."""

    def __init__(self, name: str, every_s: float, act: Callable[[], object], first: Callable[[], object] | None = None):
        self._every_s, self._act, self._first = every_s, act, first
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No more; what is just being done is finished."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _live(self) -> None:
        if self._first is not None:
            self._try(self._first)
        while not self._stop.wait(self._every_s):
            self._try(self._act)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except DatabaseUnavailable:
            logger.debug("database away", extra={"what": self._thread.name})
        except Exception:
            logger.exception("failed, and goes on", extra={"what": self._thread.name})
