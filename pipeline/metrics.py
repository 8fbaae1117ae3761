"""Which figures are there, and how are they counted?

`METRICS` names every one. `count` and `observe` cost a few microseconds once `start` was called, nothing before, and
never raise: a figure is not worth a job. A worker's processes count each into a file of its own, and the main process
adds them up when somebody asks; files of dead processes are added to one and removed. What a scrape reads from Postgres
comes in as `Reading`s from above (`pipeline.gauges`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ROOM = 1 << 18  # bytes of a process's file, taken at once: a write into a full disk would kill the process
ARCHIVE = "0"  # stands for all processes that are gone


class Kind(StrEnum):
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"  # read at scrape time


@dataclass(frozen=True)
class Metric:
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True)
class Reading:
    """One value of a gauge, read for one scrape."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000, 30_000)
_S = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600)
_C, _H, _G = Kind.COUNTER, Kind.HISTOGRAM, Kind.GAUGE

METRICS: Mapping[str, Metric] = {
    # -- from workers
    "worker_heartbeats_total": Metric(_C, "Batches in which a worker renewed its leases."),
    "worker_heartbeat_failures_total": Metric(_C, "Heartbeats that did not reach Postgres."),
    "worker_recovered_jobs_total": Metric(
        _C, "Jobs that went back to the queue without their holder: stale, crash, stall or recovery.", ("reason",)
    ),
    "worker_retry_attempts_total": Metric(_C, "Executions that ended in a retry, by error code.", ("code",)),
    "worker_acquire_conflicts_total": Metric(_C, "Claims that found the job in somebody else's hands."),
    "worker_concurrent_jobs": Metric(_G, "Stages that this worker is running now."),
    "reaper_requeues_total": Metric(_C, "Leases that the reaper took away, job queued again.", ("table", "stage")),
    "reaper_failures_total": Metric(_C, "Leases that the reaper took away, job failed.", ("table", "stage")),
    "reaper_scan_duration_ms": Metric(_H, "How long a run of the reaper took, in milliseconds.", (), _MS),
    "jobs_finished_total": Metric(
        _C, "Jobs that have ended, by status; failed by all is the failure rate.", ("status",)
    ),
    "job_completion_seconds": Metric(_H, "Time to completion, from the request to its outputs.", (), _S),
    "stage_duration_seconds": Metric(
        _H, "How long an execution of a stage took, by how it ended.", ("stage", "by"), _S
    ),
    "stalls_caught_total": Metric(_C, "Executions stopped because their progress stood still.", ("stage",)),
    "breaker_activations_total": Metric(_C, "Times a breaker opened, by kind of service.", ("kind",)),
    "checkpoint_resumes_total": Metric(_C, "Units that were not made again because a checkpoint had them.", ("stage",)),
    "alerts_total": Metric(_C, "Alerts that were told to operators.", ("type",)),
    "webhook_deliveries_total": Metric(_C, "Tries to deliver a webhook: delivered, failed or given_up.", ("result",)),
    # -- from Postgres, for the whole fleet
    "database_up": Metric(_G, "Whether Postgres answered this scrape."),
    "jobs_current": Metric(_G, "Jobs that have not ended, by status and stage.", ("status", "stage")),
    "queue_age_seconds": Metric(_G, "How long the job that has waited longest in a queue has been due.", ("queue",)),
    "oldest_due_job_seconds": Metric(_G, "The same over all queues."),
    "jobs_stuck": Metric(_G, "Jobs that are processing although their lease is over."),
    "reaper_seconds_since_last_run": Metric(_G, "Seconds since the reaper last ended well."),
    "upkeep_seconds_since_last_run": Metric(_G, "Seconds since each upkeep last ended well.", ("chore",)),
    "workers_current": Metric(_G, "Workers heard from in the last day, by status.", ("status",)),
    "breaker_state": Metric(_G, "0 closed, 1 on trial, 2 open.", ("service",)),
    "doctor_violations": Metric(
        _G, "Rows that break an invariant of the doctor (at most 100 each).", ("invariant", "severity")
    ),
    "webhooks_pending": Metric(_G, "Deliveries that are still to be sent."),
    "webhooks_oldest_pending_seconds": Metric(_G, "How long the oldest of them has been waiting."),
}

_active: _Counting | None = None
_scraping = threading.Lock()


class _Counting:
    """The counters of this process, made at first use. With a folder: in files that outlive the process."""

    def __init__(self, folder: Path | None) -> None:
        import prometheus_client as prometheus
        from prometheus_client import values

        self.folder = folder
        self._prometheus = prometheus
        self._registry = prometheus.CollectorRegistry()
        self._made: dict[str, Any] = {}
        self._making = threading.Lock()
        if folder is not None:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
            _take_room(folder)
            values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]

    def metric(self, name: str, labels: Mapping[str, str]) -> Any:
        made = self._made.get(name)
        if made is None:
            with self._making:
                made = self._made.get(name) or self._make(name)
        return made.labels(**labels) if labels else made

    def _make(self, name: str) -> Any:
        about = METRICS[name]
        kinds = {Kind.COUNTER: self._prometheus.Counter, Kind.HISTOGRAM: self._prometheus.Histogram}
        more = {"buckets": about.buckets} if about.buckets else {}
        made = kinds[about.kind](name, about.help, about.labels, registry=self._registry, **more)
        self._made[name] = made
        return made

    def collectors(self) -> Any:
        """What a scrape reads: our own figures, or those of all processes that share the folder."""
        if self.folder is None:
            return self._registry
        from prometheus_client.multiprocess import MultiProcessCollector

        shared = self._prometheus.CollectorRegistry()
        MultiProcessCollector(shared, path=str(self.folder))  # type: ignore[no-untyped-call]
        return shared


def _take_room(folder: Path) -> None:
    for kind in (Kind.COUNTER, Kind.HISTOGRAM):
        with (folder / f"{kind}_{os.getpid()}.db").open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, ROOM)


# -- counting --------------------------------------------------------------------------------------------------------


def start(folder: Path | None = None) -> None:
    """Count from now on, in this process and in those that it forks."""
    global _active
    with suppress(Exception):
        _active = _Counting(folder)


def start_worker() -> None:
    """Count in a folder that all processes of this worker share; without one, not at all."""
    with suppress(OSError):
        start(folder_of_worker())
    for name, about in METRICS.items():
        if about.kind is Kind.COUNTER and not about.labels:
            count(name, 0)  # what never happened is shown as 0, not as nothing


def stop() -> None:
    """Count no more, and leave no file behind."""
    global _active
    counting, _active = _active, None
    if counting is not None and counting.folder is not None:
        shutil.rmtree(counting.folder, ignore_errors=True)


def _in_child() -> None:
    # A lock that some thread of our parent held at the fork would never be released here: begin anew.
    global _scraping
    _scraping = threading.Lock()
    if _active is not None:
        start(_active.folder)


os.register_at_fork(after_in_child=_in_child)


def count(name: str, amount: float = 1, **labels: str) -> None:
    """So many more of it happened."""
    if _active is not None:
        with suppress(Exception):
            _active.metric(name, labels).inc(amount)


def observe(name: str, value: float, **labels: str) -> None:
    """It took so long."""
    if _active is not None:
        with suppress(Exception):
            _active.metric(name, labels).observe(value)


# -- showing ---------------------------------------------------------------------------------------------------------


def exposition(readings: Iterable[Reading] = ()) -> bytes:
    """Everything that was counted and read, as Prometheus wants it."""
    from prometheus_client import CollectorRegistry, generate_latest

    if _active is None:
        start()
    told = CollectorRegistry()
    told.register(_Read(list(readings)))
    with _scraping:
        _tidy()
        counted = b"" if _active is None else generate_latest(_active.collectors())
    return counted + generate_latest(told)


class _Read:
    """Readings as a collector."""

    def __init__(self, readings: list[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import GaugeMetricFamily

        families = {}
        for each in self._readings:
            about = METRICS[each.name]
            if each.name not in families:
                families[each.name] = GaugeMetricFamily(each.name, about.help, labels=about.labels)
            families[each.name].add_metric([str(each.labels[label]) for label in about.labels], each.value)
        return families.values()

    def describe(self) -> Iterable[Any]:
        return ()


# -- files -----------------------------------------------------------------------------------------------------------


def folder_of_worker() -> Path:
    """A new folder for this process tree, ours as long as any of it lives; those of trees that are gone are removed."""
    place = Path(tempfile.gettempdir()) / f"ironclip-metrics-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    if place.stat().st_uid != os.getuid():
        raise PermissionError(f"{place} is somebody else's")
    for left in place.iterdir():
        with suppress(OSError):
            os.close(_lock(left))  # nobody holds it any more
            shutil.rmtree(left)
    mine = Path(tempfile.mkdtemp(dir=place))
    _lock(mine)  # never closed: our children hold it with us
    return mine


def _lock(folder: Path) -> int:
    """BlockingIOError if a living process tree has it."""
    held = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def tidy() -> None:
    """Add what processes counted that are gone to one file, and remove theirs."""
    with _scraping:
        _tidy()


def _tidy() -> None:
    if _active is None or _active.folder is None:
        return
    from prometheus_client.mmap_dict import MmapedDict

    for left in _active.folder.glob("*_*.db"):
        kind, _, pid = left.stem.partition("_")
        if pid == ARCHIVE or _is_running(int(pid)):
            continue
        archive = MmapedDict(str(_active.folder / f"{kind}_{ARCHIVE}.db"))  # type: ignore[no-untyped-call]
        for key, value, _at, _position in MmapedDict.read_all_values_from_file(str(left)):  # type: ignore[no-untyped-call]
            before, _ = archive.read_value(key)  # type: ignore[no-untyped-call]
            archive.write_value(key, before + value, 0.0)  # type: ignore[no-untyped-call]
        archive.close()  # type: ignore[no-untyped-call]
        left.unlink()
