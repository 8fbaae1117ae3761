"""What happens to jobs while a service is down? They wait, at no cost, and go on when a probe has seen it back."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline import breakers as acts
from pipeline import delivery, upkeep
from pipeline.core import errors
from pipeline.core.breaker import FIRST_OPEN, THRESHOLD
from pipeline.core.errors import BreakerOpen, DatabaseUnavailable, IronclipError, LeaseLost, TargetDown, UploadFailed
from pipeline.core.job import Job, Stage, Status
from pipeline.stages import services
from pipeline.stages.delivering import raise_soonest
from pipeline.store import breakers
from pipeline.store.engine import database
from tests.stages import flaky
from tests.stages.conftest import Runner

probing = importlib.import_module("pipeline.upkeep.probe")  # the package gives the function that name
Probed = probing.Probed
HOST = "source:127.0.0.1"
NAS = "target:nas"
Use = Callable[..., None]


def pass_by(service: str, span: timedelta = FIRST_OPEN) -> None:
    """Make this much time go by, as far as the breaker can tell."""
    database().run(
        text("""UPDATE circuit_breakers SET opens_at = opens_at - CAST(:span AS interval),
                       trial_expires_at = trial_expires_at - CAST(:span AS interval) WHERE service = :service"""),
        span=span,
        service=service,
    )


def make_due(job_id: UUID, span: timedelta = timedelta(hours=2)) -> None:
    """Make this much time go by, as far as the waiting job can tell."""
    database().run(
        text("""UPDATE jobs SET skip_until = skip_until - CAST(:span AS interval),
                       first_deferred_at = first_deferred_at - CAST(:span AS interval) WHERE id = :id"""),
        span=span,
        id=job_id,
    )


def all_breakers() -> dict[str, dict[str, Any]]:
    return {b["service"]: b for b in breakers.shown(database())}


def break_down(service: str) -> None:
    for _ in range(THRESHOLD):
        breakers.fault(database(), service, uuid4(), "no")


def waits_s(runner: Runner, job_id: UUID) -> float:
    """How long the job was told to wait."""
    return float(runner.events(job_id, "deferred")[-1]["delay_s"])


# -- sources ---------------------------------------------------------------------------------------------------------


class Web:
    """An HTTP server for a folder, that can be away, and that counts what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        web = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                web.asked.append(self.path)
                super().do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._handler = partial(Handler, directory=str(folder))
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None


@pytest.fixture
def web(silent: Path, tmp_path: Path, use: Use) -> Iterator[Web]:
    use(SOURCE_ALLOW_HOSTS="127.0.0.1")
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "film.mp4").write_bytes(silent.read_bytes())
    (folder / "bad.mp4").write_bytes(b"this is no film " * 1000)
    server = Web(folder)
    yield server
    server.stop()


def test_a_job_whose_source_is_away_waits_a_minute_and_spends_no_attempt(runner: Runner, web: Web) -> None:
    job = runner.submit(web.url("film.mp4"))
    web.stop()

    runner.step(job)

    after = runner.job(job)
    assert (after.status, after.stage, after.attempt_count) == (Status.QUEUED, Stage.RESOLVE, 0)
    assert after.waiting_on == HOST
    assert waits_s(runner, job) == pytest.approx(60, abs=1)
    assert all_breakers()[HOST]["failures"] == 1


def test_five_jobs_open_the_breaker_and_the_sixth_asks_nobody_until_a_probe_saw_the_host_back(
    runner: Runner, web: Web
) -> None:
    jobs = [runner.submit(web.url("film.mp4")) for _ in range(THRESHOLD + 1)]
    web.stop()
    for job in jobs[:THRESHOLD]:
        runner.step(job)
    web.start()

    runner.step(jobs[-1])

    last = runner.job(jobs[-1])
    assert web.asked == []
    assert (last.attempt_count, last.waiting_on) == (0, HOST)
    assert last.skip_until is not None
    assert abs(last.skip_until - all_breakers()[HOST]["opens_at"]) < timedelta(seconds=1)
    assert "BREAKER_OPEN: source:127.0.0.1 failed too often and is left alone until " in (last.last_error or "")
    assert all_breakers()[HOST]["waiting"] == THRESHOLD + 1

    assert upkeep.probe() == Probed()  # too early
    pass_by(HOST)
    assert upkeep.probe() == Probed(up=[HOST])

    assert web.asked == ["/film.mp4"]
    assert all_breakers()[HOST]["state"] == "closed"
    for job in jobs:
        assert runner.finish(job)["outcome"] == "full"


def test_a_probe_that_finds_the_host_still_away_opens_for_longer(runner: Runner, web: Web) -> None:
    job = runner.submit(web.url("film.mp4"))
    web.stop()
    runner.step(job)
    break_down(HOST)
    pass_by(HOST)

    assert upkeep.probe() == Probed(down=[HOST])

    seen = breakers.load(database(), HOST)
    assert seen.breaker.opens_at is not None
    assert (seen.breaker.opens_at - seen.now) / timedelta(minutes=1) == pytest.approx(10, abs=0.2)
    assert all_breakers()[HOST]["last_failure"].startswith("SOURCE_DOWN: ")
    assert runner.job(job).waiting_on == HOST


def test_a_host_that_answers_that_there_is_nothing_is_up(runner: Runner, web: Web) -> None:
    job = runner.submit(web.url("nothing.mp4"))
    breakers.trip(database(), HOST, "test")
    runner.step(job)
    pass_by(HOST)

    assert upkeep.probe() == Probed(up=[HOST])

    assert web.asked == ["/nothing.mp4"]
    assert runner.finish(job)["fail_code"] == "SOURCE_NOT_FOUND"
    assert all_breakers()[HOST]["failures"] == 0


def test_no_host_is_asked_for_anything_that_no_job_waits_for(runner: Runner, web: Web) -> None:
    breakers.trip(database(), HOST, "test")
    pass_by(HOST)

    assert upkeep.probe() == Probed()

    assert all_breakers()[HOST]["state"] == "open"
    assert web.asked == []


def test_a_job_that_comes_when_the_time_of_an_opening_has_passed_gives_the_probe_something_to_ask(
    runner: Runner, web: Web
) -> None:
    breakers.trip(database(), HOST, "test")
    pass_by(HOST)
    job = runner.submit(web.url("film.mp4"))
    runner.step(job)
    assert waits_s(runner, job) == pytest.approx(60, abs=1)

    assert upkeep.probe() == Probed(up=[HOST])

    assert runner.finish(job)["outcome"] == "full"


def test_a_probe_asks_no_private_host_that_was_allowed_once(runner: Runner, web: Web, use: Use) -> None:
    job = runner.submit(web.url("film.mp4"))
    breakers.trip(database(), HOST, "test")
    runner.step(job)
    pass_by(HOST)
    use(SOURCE_ALLOW_HOSTS="")

    upkeep.probe()

    assert web.asked == []
    assert runner.finish(job)["fail_code"] == "SOURCE_FORBIDDEN"


def test_real_runs_on_bad_media_open_no_breaker(runner: Runner, web: Web) -> None:
    for _ in range(THRESHOLD + 1):
        job = runner.submit(web.url("bad.mp4"))
        assert runner.finish(job)["fail_code"] == "SOURCE_UNREADABLE"

    assert all_breakers() == {}


def test_bad_media_a_thousand_times_opens_no_breaker_and_writes_nothing(env: dict[str, str]) -> None:
    final = [
        errors.FfmpegFailed,
        errors.SourceUnreadable,
        errors.SourceNotFound,
        errors.AsrFailed,
        errors.TargetRefused,
    ]

    for n in range(1000):
        with pytest.raises(IronclipError), services.asking(database(), uuid4(), NAS):
            raise final[n % len(final)]("bad", service=NAS)

    assert all_breakers() == {}


# -- targets ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def nas(tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a second target, that is up."""
    monkeypatch.setattr(delivery, "KINDS", dict(delivery.KINDS))
    flaky.register()
    flaky.CALLS.clear()
    root = tmp_path / "nas"
    use(TARGETS_FILE=str(flaky.targets_file(tmp_path / "targets.toml", nas=root, other=tmp_path / "other")))
    return root


BOTH = ["nas", "local"]  # the one that is down first


def delivered_to(runner: Runner, job: UUID) -> set[str]:
    return {d["target"] for o in runner.show(job)["outputs"] for d in o["deliveries"] if d["status"] == "delivered"}


def test_one_target_that_is_down_does_not_keep_the_others_from_theirs(runner: Runner, silent: Path, nas: Path) -> None:
    flaky.switch(nas).touch()
    job = runner.submit(silent, targets=BOTH, qualities=["source", "240p"])
    runner.until(job, Stage.UPLOAD)

    runner.step(job)

    after = runner.job(job)
    assert delivered_to(runner, job) == {"local"}
    assert [path.suffix for path in runner.objects()] == [".mp4", ".mp4"]
    assert (after.status, after.stage, after.attempt_count) == (Status.QUEUED, Stage.UPLOAD, 0)
    assert (after.waiting_on, after.last_error) == (NAS, "TARGET_DOWN: nas: head: Input/output error.")
    assert flaky.CALLS == ["head"]  # its second output is not even tried
    assert all_breakers()[NAS]["failures"] == 1


def test_a_job_goes_on_where_it_was_when_the_probe_saw_its_target_back(runner: Runner, silent: Path, nas: Path) -> None:
    flaky.switch(nas).touch()
    jobs = [runner.submit(silent, targets=BOTH) for _ in range(THRESHOLD)]
    for job in jobs:
        runner.until(job, Stage.UPLOAD)
        runner.step(job)
    assert all_breakers()[NAS]["state"] == "open"
    assert waits_s(runner, jobs[-1]) == pytest.approx(300, abs=5)
    before = {path: path.stat().st_mtime_ns for path in runner.objects()}
    pass_by(NAS)
    assert upkeep.probe() == Probed(down=[NAS])

    flaky.switch(nas).unlink()
    pass_by(NAS, 2 * FIRST_OPEN)
    assert upkeep.probe() == Probed(up=[NAS])

    for job in jobs:
        assert runner.finish(job)["outcome"] == "full"
        assert delivered_to(runner, job) == {"local", "nas"}
        assert runner.claims(job) == ["resolve", "clip", "upload", "upload", "finalize"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert list((nas / probing.FOLDER).iterdir()) == []  # nothing is left of the probe


def test_an_open_breaker_keeps_everybody_from_the_target_and_from_nothing_else(
    runner: Runner, silent: Path, nas: Path
) -> None:
    breakers.trip(database(), NAS, "test")
    job = runner.submit(silent, targets=BOTH)
    runner.until(job, Stage.UPLOAD)

    runner.step(job)

    assert flaky.CALLS == []
    assert delivered_to(runner, job) == {"local"}
    after = runner.job(job)
    assert after.attempt_count == 0
    assert after.skip_until is not None
    until = all_breakers()[NAS]["opens_at"]
    assert abs(after.skip_until - until) < timedelta(seconds=1)


def test_a_target_that_refuses_opens_no_breaker_however_often(runner: Runner, silent: Path, nas: Path) -> None:
    nas.write_text("a file where the folder should be")
    for _ in range(THRESHOLD + 1):
        job = runner.submit(silent, targets=BOTH)
        assert runner.finish(job)["outcome"] == "partial"

    assert all_breakers() == {}


def test_a_target_that_goes_down_before_it_was_verified_lets_the_job_wait(
    runner: Runner, silent: Path, nas: Path
) -> None:
    job = runner.submit(silent, targets=BOTH)
    runner.until(job, Stage.FINALIZE)
    flaky.switch(nas).touch()

    runner.step(job)

    after = runner.job(job)
    assert (after.stage, after.waiting_on, after.attempt_count) == (Stage.FINALIZE, NAS, 0)
    flaky.switch(nas).unlink()
    make_due(job)
    assert runner.finish(job)["outcome"] == "full"


def test_the_manifest_reaches_the_others_before_the_job_waits(runner: Runner, silent: Path, nas: Path) -> None:
    job = runner.submit(silent, targets=BOTH)
    runner.until(job, Stage.FINALIZE)
    flaky.switch(nas).write_text("put")

    runner.step(job)

    assert runner.job(job).waiting_on == NAS
    assert [path.suffix for path in runner.objects()].count(".json") == 1


def test_a_job_that_waited_too_long_fails_as_service_unavailable_and_is_refunded(
    runner: Runner, silent: Path, nas: Path
) -> None:
    database().run(text("INSERT INTO accounts (id, balance) VALUES ('ann', 10)"))
    flaky.switch(nas).touch()
    job = runner.submit(silent, targets=["nas"], account="ann")
    runner.until(job, Stage.UPLOAD)
    runner.step(job)
    make_due(job, timedelta(hours=23))
    runner.step(job)
    assert runner.job(job).status is Status.QUEUED

    make_due(job, timedelta(hours=2))
    runner.step(job)

    after: Job = runner.job(job)
    assert (after.status, after.fail_code) == (Status.FAILED, "SERVICE_UNAVAILABLE")
    assert NAS in (after.fail_reason or "")
    assert database().run(text("SELECT balance FROM accounts"))[0].balance == 10


@pytest.mark.parametrize(
    ("stage", "mute", "outcome"),
    [(Stage.UPLOAD, "", "partial"), (Stage.FINALIZE, "", "partial"), (Stage.FINALIZE, "put", "full")],
    ids=["before delivery", "before it was verified", "before the manifest"],
)
def test_a_target_that_stays_down_costs_nobody_else_his_files(
    runner: Runner, silent: Path, nas: Path, stage: Stage, mute: str, outcome: str
) -> None:
    job = runner.submit(silent, targets=BOTH)
    runner.until(job, stage)
    flaky.switch(nas).write_text(mute)
    runner.step(job)
    assert runner.job(job).waiting_on == NAS
    make_due(job, timedelta(hours=25))

    assert runner.finish(job)["outcome"] == outcome
    assert delivered_to(runner, job) == ({"local"} if outcome == "partial" else {"local", "nas"})
    assert [path.suffix for path in runner.objects()].count(".json") == 1


def test_with_several_troubles_the_job_comes_back_for_the_soonest() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    late = BreakerOpen("late", service="target:a", until=now + timedelta(hours=1))
    soon = BreakerOpen("soon", service="target:b", until=now)
    down, broken = TargetDown("down", service=NAS), UploadFailed("broken")

    for troubles, first in (([late, soon], soon), ([soon, down], down), ([late, down, broken], broken)):
        with pytest.raises(IronclipError) as raised:
            raise_soonest(troubles)
        assert raised.value is first
    raise_soonest([])


# -- how it went is told ---------------------------------------------------------------------------------------------


def test_a_lost_lease_says_nothing_about_the_service(env: dict[str, str]) -> None:
    breakers.fault(database(), NAS, uuid4(), "no")

    with pytest.raises(LeaseLost), services.asking(database(), uuid4(), NAS):
        raise LeaseLost

    assert all_breakers()[NAS]["failures"] == 1


def test_a_service_that_works_again_is_forgiven(env: dict[str, str]) -> None:
    breakers.fault(database(), NAS, uuid4(), "no")

    with services.asking(database(), uuid4(), NAS):
        pass

    assert all_breakers()[NAS]["failures"] == 0


def test_after_a_redirect_the_host_that_was_down_is_blamed(env: dict[str, str]) -> None:
    with pytest.raises(errors.SourceDown), services.asking(database(), uuid4(), "source:a.org"):
        raise errors.SourceDown("b.org cannot be reached.", service="source:b.org")

    assert list(all_breakers()) == ["source:b.org"]


def test_an_opinion_that_cannot_be_written_down_changes_nothing_for_the_job(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise DatabaseUnavailable("Postgres cannot be reached.")

    monkeypatch.setattr(breakers, "fault", away)
    monkeypatch.setattr(breakers, "success", away)

    with pytest.raises(TargetDown), services.asking(database(), uuid4(), NAS):
        raise TargetDown("down", service=NAS)
    with services.asking(database(), uuid4(), NAS):
        pass


def test_a_host_has_one_breaker_however_its_name_is_written() -> None:
    names = ["http://EXAMPLE.org/a", "https://u:p@example.org:8443/b?c"]
    assert {services.of_source(url) for url in names} == {"source:example.org"}
    assert services.of_source("http://xn--bcher-kva.example/") == services.of_source("http://bücher.example/")


# -- probes of the other kinds ---------------------------------------------------------------------------------------


def open_and_due(service: str) -> None:
    breakers.trip(database(), service, "test")
    pass_by(service)


def test_an_engine_that_cannot_be_loaded_defers_its_jobs_until_it_can(
    runner: Runner, talkie: Path, tmp_path: Path, use: Use
) -> None:
    use(ASR_MODEL=str(tmp_path / "no-model"))
    job = runner.submit(talkie, captions=True)
    runner.until(job, Stage.ASR)
    runner.step(job)
    assert (runner.job(job).waiting_on, runner.job(job).attempt_count) == ("asr:whisper", 0)
    open_and_due("asr:whisper")
    assert upkeep.probe() == Probed(down=["asr:whisper"])

    use(ASR_MODEL="")
    pass_by("asr:whisper", 2 * FIRST_OPEN)

    assert upkeep.probe() == Probed(up=["asr:whisper"])
    assert runner.finish(job)["status"] == "completed"


def test_the_broker_is_asked_for_a_connection(env: dict[str, str], use: Use) -> None:
    use(BROKER_URL="redis://127.0.0.1:1/0")
    open_and_due("broker")
    assert upkeep.probe() == Probed(down=["broker"])

    use(BROKER_URL=env["BROKER_URL"])
    pass_by("broker", 2 * FIRST_OPEN)

    assert upkeep.probe() == Probed(up=["broker"])


@pytest.mark.parametrize("service", ["target:nobody", "asr:nobody"])
def test_what_is_not_configured_here_is_not_taken_for_up(env: dict[str, str], service: str) -> None:
    open_and_due(service)

    assert upkeep.probe() == Probed(down=[service])


def test_a_mount_that_went_from_broken_to_missing_is_not_taken_for_back(
    env: dict[str, str], tmp_path: Path, use: Use
) -> None:
    told = tmp_path / "targets.toml"
    told.write_text(f'[targets.nas]\nkind = "file"\npath = "{tmp_path / "gone"}"\n')
    use(TARGETS_FILE=str(told))
    open_and_due(NAS)

    assert upkeep.probe() == Probed(down=[NAS])

    assert all_breakers()[NAS]["last_failure"].startswith("TARGET_NOT_FOUND: ")


def test_a_check_that_hangs_has_failed_and_holds_up_nobody_else(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()
    monkeypatch.setattr(probing, "PATIENCE_S", 1.0)
    monkeypatch.setattr(probing, "ask_target", lambda *_: let_go.wait(60))
    open_and_due(NAS)
    open_and_due("broker")

    probed = upkeep.probe()
    after = all_breakers()[NAS]
    let_go.set()
    for thread in threading.enumerate():
        if thread.name == f"probe {NAS}":
            thread.join(20)

    assert probed == Probed(up=["broker"], down=[NAS])
    assert (after["state"], after["last_failure"]) == ("open", "no answer within 1 s")
    assert all_breakers()[NAS] == after  # what it said in the end came too late


def test_a_probe_that_is_just_being_made_elsewhere_is_not_made_twice(env: dict[str, str]) -> None:
    open_and_due("broker")
    assert breakers.begin_trial(database(), "broker", uuid4())

    assert upkeep.probe() == Probed()


def test_of_many_probes_that_see_the_same_breaker_due_exactly_one_asks(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    all_have_seen = threading.Barrier(8)
    triable = breakers.triable

    def seen_by_all(*told: Any) -> list[str]:
        due = triable(*told)
        all_have_seen.wait(20)
        return due

    monkeypatch.setattr(breakers, "triable", seen_by_all)
    monkeypatch.setattr(probing, "ask_target", lambda name, _now: asked.append(name))
    open_and_due(NAS)

    with ThreadPoolExecutor(8) as pool:
        probed = [each.result(30) for each in [pool.submit(upkeep.probe) for _ in range(8)]]

    assert asked == ["nas"]
    assert sorted(p.up for p in probed) == [[]] * 7 + [[NAS]]


def test_who_was_just_being_deferred_when_the_breaker_closed_is_woken_by_the_next_probe(
    runner: Runner, silent: Path, nas: Path
) -> None:
    breakers.trip(database(), NAS, "test")
    job = runner.submit(silent, targets=BOTH)
    runner.until(job, Stage.UPLOAD)
    runner.step(job)
    breakers.reset(database(), NAS, "test")  # and whoever reset it died before it woke the jobs
    assert runner.job(job).waiting_on == NAS

    upkeep.probe()

    assert runner.finish(job)["outcome"] == "full"


def test_a_reset_wakes_whoever_waits(runner: Runner, silent: Path, nas: Path) -> None:
    acts.trip(NAS, "test")
    job = runner.submit(silent, targets=BOTH)
    runner.until(job, Stage.UPLOAD)
    runner.step(job)

    assert acts.reset(NAS, "test") == 1

    assert runner.finish(job)["outcome"] == "full"
