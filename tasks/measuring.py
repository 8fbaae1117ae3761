"""Where does Prometheus find a worker's figures? At METRICS_PORT of its main process, if that is set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from http.server import ThreadingHTTPServer

from pipeline import gauges, metrics, settings
from pipeline.metrics import Reading
from pipeline.repeat import Repeat

TIDY_S = 30.0


class Measuring:
    """Counts in all processes of the worker, and answers for them. Make it before the pool is made."""

    def __init__(self, running: Callable[[], Sequence[str]]) -> None:
        self._running = running
        self._server: ThreadingHTTPServer | None = None
        self._tidying = Repeat("metrics", TIDY_S, metrics.tidy)
        if settings.current().metrics_port:
            metrics.start_worker()

    def start(self) -> None:
        now = settings.current()
        if now.metrics_port:
            self._server = gauges.serve(now.metrics_address, now.metrics_port, self._own)
            self._tidying.start()

    def stop(self) -> None:
        self._tidying.stop()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        metrics.stop()

    def _own(self) -> Iterator[Reading]:
        yield Reading("worker_concurrent_jobs", len(self._running()))
