"""Are the figures right: over all processes of a worker, after their deaths, at no risk to anybody?"""

from __future__ import annotations

import ast
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipeline import metrics
from pipeline.metrics import METRICS, Kind, Reading

ROOT = Path(__file__).resolve().parents[2]
fork = multiprocessing.get_context("fork")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This process counts as a worker's main process does."""
    from prometheus_client import values

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = values.ValueClass
    metrics.start_worker()
    assert metrics._active is not None
    assert metrics._active.folder is not None
    yield metrics._active.folder
    metrics.stop()
    values.ValueClass = before
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    yield
    metrics.stop()


def value(name: str, **labels: str) -> float | None:
    """What a scrape shows for one series."""
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return None


def in_child(act: object) -> int:
    """Run it in a process forked from this one; its exit code."""
    child = fork.Process(target=act)  # type: ignore[arg-type]
    child.start()
    child.join(20)
    if child.exitcode is None:
        child.kill()
        child.join()
    assert child.exitcode is not None
    return child.exitcode


def test_what_all_processes_counted_is_one_figure(folder: Path) -> None:
    metrics.count("worker_heartbeats_total")
    for _ in range(3):
        in_child(lambda: metrics.count("worker_heartbeats_total", 2))

    assert value("worker_heartbeats_total") == 7


def test_the_files_of_dead_processes_go_and_what_they_counted_stays(folder: Path) -> None:
    for _ in range(4):
        in_child(lambda: metrics.count("worker_retry_attempts_total", code="X"))
        in_child(lambda: metrics.observe("reaper_scan_duration_ms", 7))
    left = {file.stem.partition("_")[2] for file in folder.glob("*.db")}

    metrics.tidy()

    kept = {file.stem.partition("_")[2] for file in folder.glob("*.db")}
    assert len(left) > 8
    assert kept == {str(os.getpid()), metrics.ARCHIVE}
    assert value("worker_retry_attempts_total", code="X") == 4
    assert value("reaper_scan_duration_ms_count") == 4
    assert value("reaper_scan_duration_ms_bucket", le="10.0") == 4
    assert value("reaper_scan_duration_ms_bucket", le="5.0") == 0


def test_a_killed_process_takes_nothing_with_it(folder: Path) -> None:
    def die() -> None:
        metrics.count("stalls_caught_total", stage="clip")
        os.kill(os.getpid(), signal.SIGKILL)

    in_child(die)

    assert value("stalls_caught_total", stage="clip") == 1


def test_a_process_forked_in_the_middle_of_a_count_can_count(folder: Path) -> None:
    """A lock that a thread of the parent holds at the fork must not hang the child: it may be running a job."""
    metrics.count("worker_heartbeats_total")
    assert metrics._active is not None
    with metrics._active._making, metrics._scraping:
        code = in_child(lambda: metrics.count("stalls_caught_total", stage="clip"))  # the first of its name

    assert code == 0
    assert value("stalls_caught_total", stage="clip") == 1


def test_the_folder_of_a_worker_that_is_gone_is_removed_and_that_of_a_living_one_is_not(folder: Path) -> None:
    leave = fork.Queue()

    def live_and_die() -> None:
        leave.put(str(metrics.folder_of_worker()))

    child = fork.Process(target=live_and_die)
    child.start()
    left = Path(leave.get(timeout=20))
    child.join()
    assert left.exists()

    mine = metrics.folder_of_worker()

    assert not left.exists()
    assert folder.exists()
    assert mine.exists()


def test_without_a_start_nothing_is_counted_and_no_file_is_made(tmp_path: Path) -> None:
    metrics.count("worker_heartbeats_total")
    metrics.observe("reaper_scan_duration_ms", 1)

    assert metrics._active is None


def test_a_figure_never_fails_whoever_counts_it(folder: Path) -> None:
    metrics.count("no_such_metric")
    metrics.count("worker_retry_attempts_total", wrong="label")
    metrics.observe("worker_heartbeats_total", 1)

    assert value("worker_retry_attempts_total", wrong="label") is None


def test_a_disk_without_room_costs_the_figures_not_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", no_room)

    metrics.start(tmp_path)
    metrics.count("worker_heartbeats_total")

    assert metrics._active is None


def test_the_room_for_figures_is_taken_before_it_is_written_to(folder: Path) -> None:
    (file,) = folder.glob("counter_*.db")

    assert file.stat().st_blocks * 512 >= metrics.ROOM


def test_threads_lose_no_count(folder: Path) -> None:
    def many() -> None:
        for _ in range(500):
            metrics.count("worker_heartbeats_total")

    threads = [threading.Thread(target=many) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert value("worker_heartbeats_total") == 2000


def test_readings_are_shown_beside_what_was_counted() -> None:
    told = metrics.exposition([Reading("breaker_state", 2, {"service": "target:nas"}), Reading("database_up", 1)])

    assert b'breaker_state{service="target:nas"} 2.0' in told
    assert b"# HELP database_up " in told


# -- the table -------------------------------------------------------------------------------------------------------


def counted() -> list[tuple[str, str, set[str], str]]:
    """Every call of `metrics.count` and `metrics.observe` in the product: which, its name, its labels, where."""
    found = []
    for path in [*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "tasks").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            module = node.func.value
            if isinstance(module, ast.Name) and module.id == "metrics" and node.func.attr in ("count", "observe"):
                names = [n.value for n in ast.walk(node.args[0]) if isinstance(n, ast.Constant)] or ["(a variable)"]
                labels = {str(keyword.arg) for keyword in node.keywords}
                found += [(node.func.attr, str(name), labels, f"{path.name}:{node.lineno}") for name in names]
    return found


def test_every_figure_that_is_counted_is_in_the_table_with_its_labels() -> None:
    kinds = {"count": Kind.COUNTER, "observe": Kind.HISTOGRAM}
    for how, name, labels, where in counted():
        if name == "(a variable)":  # the reaper's two, whose labels are the same
            continue
        assert name in METRICS, where
        assert METRICS[name].kind is kinds[how], where
        assert set(METRICS[name].labels) == labels, where


def test_every_counter_of_the_table_is_counted_somewhere() -> None:
    named = {name for _, name, _, _ in counted()}
    sources = "".join(path.read_text() for path in (ROOT / "pipeline" / "upkeep").glob("*.py"))
    silent = [n for n, about in METRICS.items() if about.kind is not Kind.GAUGE and n not in named and n not in sources]

    assert silent == []


def test_the_names_of_the_specification_are_all_there() -> None:
    asked = """
        worker_heartbeats_total worker_heartbeat_failures_total worker_recovered_jobs_total worker_retry_attempts_total
        worker_concurrent_jobs worker_acquire_conflicts_total reaper_requeues_total reaper_failures_total
        reaper_scan_duration_ms"""

    assert set(asked.split()) <= METRICS.keys()
    assert METRICS["worker_recovered_jobs_total"].labels == ("reason",)
    assert METRICS["reaper_requeues_total"].labels == METRICS["reaper_failures_total"].labels == ("table", "stage")


def test_no_label_grows_with_the_number_of_jobs() -> None:
    assert not {"job", "job_id", "url", "worker", "account"} & {label for m in METRICS.values() for label in m.labels}
