"""What does a scrape show besides what was counted? The state of the fleet, read from Postgres at that moment.

`exposition` is what the API answers at /metrics, and a worker at /metrics/fleet. Invariants are looked at once a minute
at most: the doctor takes its time. While Postgres is away, a scrape says just that, and soon.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pipeline import log, metrics
from pipeline.core.breaker import State
from pipeline.core.errors import DatabaseUnavailable
from pipeline.core.job import Stage, Status
from pipeline.core.routing import QUEUES
from pipeline.metrics import Reading
from pipeline.store import gauges as rows
from pipeline.store import upkeep as runs
from pipeline.store.engine import Database, database

logger = log.get("metrics")

DOCTOR_S = 60.0
LEVEL = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}

_doctor: dict[str, tuple[float, list[Reading]]] = {}
_asking = threading.Lock()


def exposition(own: Callable[[], Iterator[Reading]] | None = None) -> bytes:
    """What this process counted, and the fleet as it is now."""
    return metrics.exposition([*(own() if own else ()), *fleet()])


def fleet() -> list[Reading]:
    """Every gauge that Postgres can tell."""
    db = database().hasty()
    try:
        return [Reading("database_up", 1), *_jobs(db), *_around(db), *_violations(db)]
    except DatabaseUnavailable:
        return [Reading("database_up", 0)]


def _jobs(db: Database) -> Iterator[Reading]:
    counted: dict[tuple[str, str], int] = defaultdict(int)
    waits: dict[str, float] = dict.fromkeys(QUEUES, 0.0)
    for each in rows.living(db):
        counted[each.status, each.stage] += each.jobs
        waits[each.queue] = max(waits[each.queue], each.due_s or 0.0)
    for status in (Status.QUEUED, Status.PROCESSING):
        for stage in Stage:
            yield Reading("jobs_current", counted[status, stage], {"status": status, "stage": stage})
    for queue, waited_s in waits.items():
        yield Reading("queue_age_seconds", waited_s, {"queue": queue})
    yield Reading("oldest_due_job_seconds", max(waits.values()))
    yield Reading("jobs_stuck", rows.stuck(db))


def _around(db: Database) -> Iterator[Reading]:
    ages = runs.ages_s(db)
    for chore, age_s in ages.items():
        yield Reading("upkeep_seconds_since_last_run", age_s, {"chore": chore})
    if "reap" in ages:
        yield Reading("reaper_seconds_since_last_run", ages["reap"])
    for status, n in rows.workers(db).items():
        yield Reading("workers_current", n, {"status": status})
    for service, state in rows.breakers(db).items():
        yield Reading("breaker_state", LEVEL[State(state)], {"service": service})
    pending, oldest_s = rows.webhooks(db)
    yield Reading("webhooks_pending", pending)
    yield Reading("webhooks_oldest_pending_seconds", oldest_s)


def _violations(db: Database) -> list[Reading]:
    """As the doctor last found them. Whoever finds another asking takes what is known."""
    seen_at, seen = _doctor.get("seen", (float("-inf"), []))
    if time.monotonic() - seen_at < DOCTOR_S or not _asking.acquire(blocking=False):
        return seen
    try:
        seen = _examined(db)
        _doctor["seen"] = (time.monotonic(), seen)
    finally:
        _asking.release()
    return seen


def _examined(db: Database) -> list[Reading]:
    try:
        from pipeline import doctor  # it needs the extra `worker`
    except ImportError:
        return []
    broken = {each.invariant.name: len(each.found) for each in doctor.examine(db)}
    return [
        Reading("doctor_violations", broken.get(each.name, 0), {"invariant": each.name, "severity": each.severity})
        for each in doctor.INVARIANTS
        if not each.deep
    ]


# -- a worker's own port ---------------------------------------------------------------------------------------------


def serve(address: str, port: int, own: Callable[[], Iterator[Reading]]) -> ThreadingHTTPServer | None:
    """Answer Prometheus from a thread of this process; None, and a line in the log, if the port cannot be had."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages = {"/metrics": lambda: metrics.exposition(own()), "/metrics/fleet": lambda: exposition(own)}
            page = pages.get(self.path.partition("?")[0])
            try:
                body = page() if page else b""
            except Exception:
                logger.exception("scrape failed")
                self.send_error(500)
                return
            self.send_response(200 if page else 404)
            self.send_header("Content-Type", metrics.CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """A scrape is no news."""

    try:
        server = ThreadingHTTPServer((address, port), Handler)
    except OSError as exc:
        logger.warning("no metrics", extra={"address": address, "port": port, "reason": exc.strerror})
        return None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
