"""Why does a job not run now? Each answer, first from facts alone, then from rows on a real Postgres."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline.core.errors import NoSuchJob
from pipeline.core.job import Job, Outcome, OutputStatus, Stage, Status
from pipeline.core.moves import Cancel, Complete, Defer, Fail, Retry
from pipeline.core.window import Sight
from pipeline.settings import Settings, env_names
from pipeline.store import outputs, workers
from pipeline.store import why as store
from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from pipeline.store.why import Facts
from pipeline.why import Code, Reason, because, why
from tests.store.world import (
    advance,
    claim,
    enqueue,
    everything,
    let_pass,
    make_late,
    output,
    outputs_of,
    play,
    running,
)

NOW = datetime(2026, 5, 4, 12, 17, tzinfo=UTC)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "find-out-why.md"


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


@pytest.fixture
def defaults(monkeypatch: pytest.MonkeyPatch) -> Settings:
    for field in Settings.model_fields:
        for name in env_names(field):
            monkeypatch.delenv(name, raising=False)
    return Settings()


def clock(moment: datetime) -> str:
    return f"{moment.astimezone():%H:%M:%S}"


# -- from facts to a sentence ----------------------------------------------------------------------------------------

FULL = Sight(workers={"io": {4: 1}, "media": {4: 1}}, published={Stage.CLIP: 16})
ROOMY = Sight(workers={"io": {4: 1}, "media": {4: 1}})
QUEUED = Facts(
    now=NOW,
    status=Status.QUEUED,
    stage=Stage.CLIP,
    queue="media",
    workers=1,
    slots=4,
    due_since=NOW - s(9),
    sight=ROOMY,
)
SWEPT = replace(QUEUED, sweep_began_at=NOW - s(4), sweep_ended_at=NOW - s(3))
SENT = replace(QUEUED, published_at=NOW - s(10), published=1)
RUNNING = Facts(
    now=NOW,
    status=Status.PROCESSING,
    stage=Stage.CLIP,
    queue="media",
    attempt_count=1,
    progress=61.4,
    holder="3f2a",
    worker_name="ironclip@a",
    worker_heard_at=NOW - s(4),
    processing_started_at=NOW - s(43),
    renewed_at=NOW - s(4),
    lease_expires_at=NOW + s(290),
    last_progress_update=NOW - s(2),
)
DEFERRED = replace(
    QUEUED,
    skip_until=NOW + s(43),
    waiting_on="target:nas",
    first_deferred_at=NOW - s(60),
    last_error="TARGET_DOWN: nas: refused.",
)
ENDED = Facts(now=NOW, status=Status.COMPLETED, stage=Stage.FINALIZE, queue="io", finished_at=NOW - s(60))

CASES: list[tuple[Facts, Code, str]] = [
    (replace(ENDED, outcome=Outcome.FULL), Code.COMPLETED, f"It completed in full at {clock(NOW - s(60))}."),
    (
        replace(ENDED, outcome=Outcome.PARTIAL, outputs=3, outputs_failed=1),
        Code.COMPLETED_PARTLY,
        f"It completed in part at {clock(NOW - s(60))}: 1 of 3 outputs failed.",
    ),
    (
        replace(ENDED, outcome=Outcome.PARTIAL, outputs=3),
        Code.COMPLETED_PARTLY,
        f"It completed in part at {clock(NOW - s(60))}: a target refused.",
    ),
    (
        replace(ENDED, status=Status.FAILED, stage=Stage.CLIP, fail_code="FFMPEG_FAILED", fail_reason="exit 1.\nmore"),
        Code.FAILED,
        f"It failed at clip at {clock(NOW - s(60))}: FFMPEG_FAILED: exit 1.",
    ),
    (
        replace(ENDED, status=Status.CANCELLED, cancelled_by="cli:ann"),
        Code.CANCELLED,
        f"It was cancelled by cli:ann at {clock(NOW - s(60))}.",
    ),
    (
        RUNNING,
        Code.RUNNING,
        "It runs clip on ironclip@a for 43 s now, 61 % done; its lease was renewed 4 s ago.",
    ),
    (
        replace(RUNNING, worker_name=None),
        Code.RUNNING,
        "It runs clip on 3f2a for 43 s now, 61 % done; its lease was renewed 4 s ago.",
    ),
    (
        replace(RUNNING, last_progress_update=NOW - s(240)),
        Code.NO_PROGRESS,
        "It runs clip on ironclip@a, without progress for 4 min at 61 %; its lease was renewed 4 s ago.",
    ),
    (
        replace(RUNNING, renewed_at=NOW - s(40), worker_heard_at=NOW - s(40)),
        Code.WORKER_SILENT,
        (
            "Its worker ironclip@a has been silent for 40 s at clip; unless it speaks again, the job is taken from it"
            f" from {clock(NOW + s(50))} on."
        ),
    ),
    (
        replace(RUNNING, renewed_at=NOW - s(40), worker_heard_at=NOW - s(1), lease_expires_at=NOW + s(20)),
        Code.WORKER_SILENT,
        (
            "Its worker ironclip@a has been silent for 40 s at clip; unless it speaks again, the job is taken from it"
            f" from {clock(NOW + s(20))} on."
        ),
    ),
    (
        replace(RUNNING, worker_stopped=True, reap_ended_at=NOW - s(12)),
        Code.WORKER_GONE,
        (
            "Its worker ironclip@a has stopped in the middle of clip; the reaper takes it away at its next run, and"
            " last ran 12 s ago."
        ),
    ),
    (
        replace(RUNNING, lease_expires_at=NOW - s(20), reap_ended_at=NOW - s(41)),
        Code.LEASE_OVER,
        "Its lease on clip ended 20 s ago; the reaper, which takes it from ironclip@a, last ran 41 s ago.",
    ),
    (
        replace(RUNNING, lease_expires_at=None),
        Code.LEASE_OVER,
        "It has no lease; the reaper, which takes it from ironclip@a, never ran.",
    ),
    (
        replace(DEFERRED, breaker="open", breaker_opens_at=NOW + s(43)),
        Code.SERVICE_DOWN,
        (
            f"target:nas is down: open until {clock(NOW + s(43))}, then a probe asks it again;"
            f" the job waits until {clock(NOW + s(43))}."
        ),
    ),
    (
        replace(DEFERRED, breaker="open", breaker_opens_at=NOW - s(5)),
        Code.SERVICE_DOWN,
        f"target:nas is down: a probe may ask it since {clock(NOW - s(5))}; the job waits until {clock(NOW + s(43))}.",
    ),
    (
        replace(DEFERRED, breaker="half_open", trial_expires_at=NOW + s(9)),
        Code.SERVICE_DOWN,
        f"target:nas is down: a probe is asking it just now; the job waits until {clock(NOW + s(43))}.",
    ),
    (
        replace(DEFERRED, breaker="closed"),
        Code.DEFERRED,
        f"It waits for target:nas until {clock(NOW + s(43))} (in 43 s), after TARGET_DOWN: nas: refused.",
    ),
    (
        replace(QUEUED, next_earliest_run_at=NOW + s(43), attempt_count=1, last_error="CLIP_TIMEOUT: too slow"),
        Code.BACKOFF,
        "It tries clip again in 43 s after CLIP_TIMEOUT, attempt 2 of 3.",
    ),
    (
        replace(SENT, workers=0, slots=0, workers_disabled=1, workers_elsewhere=1),
        Code.WORKERS_DISABLED,
        "The only worker of its queue media for clip is disabled.",
    ),
    (
        replace(SENT, workers=0, slots=0, workers_disabled=2),
        Code.WORKERS_DISABLED,
        "All 2 workers of its queue media for clip are disabled.",
    ),
    (
        replace(SENT, workers=0, slots=0, workers_elsewhere=1),
        Code.NO_WORKER,
        "No live worker serves its queue media for clip (other queues have 1 worker): none was heard from within 90 s.",
    ),
    (
        replace(QUEUED, workers=0, slots=0),
        Code.NO_WORKER,
        "No live worker serves its queue media for clip: none was heard from within 90 s.",
    ),
    (
        replace(QUEUED, broker="open"),
        Code.BROKER_AWAY,
        "The broker is away; sweep sends its message when it is back, every 5 s.",
    ),
    (
        SWEPT,
        Code.BROKER_AWAY,
        "The broker did not take its message when sweep ran 3 s ago; it tries every 5 s.",
    ),
    (
        replace(QUEUED, due_since=NOW - s(240), sweep_ended_at=NOW - s(240)),
        Code.UPKEEP_OVERDUE,
        (
            "It is due for 4 min and has no message: sweep, which sends it every 5 s, last ran 4 min ago; neither beat"
            " nor a worker runs it."
        ),
    ),
    (
        QUEUED,
        Code.UPKEEP_OVERDUE,
        (
            "It is due for 9 s and has no message: sweep, which sends it every 5 s, never ran; neither beat nor a"
            " worker runs it."
        ),
    ),
    (
        replace(SWEPT, published=8, ahead=12, sight=FULL),
        Code.BACKLOG,
        (
            "It is due for 9 s and comes after 12 jobs by priority and age; queue media has 8 messages on the way to 4"
            " live slots, and sweep adds to them every 5 s."
        ),
    ),
    (
        replace(SWEPT, due_since=NOW - s(0.5), slots=1),
        Code.BACKLOG,
        (
            "It is due for 0.5 s and is the next one by priority and age; queue media has 0 messages on the way to 1"
            " live slot, and sweep adds to them every 5 s."
        ),
    ),
    (
        replace(SWEPT, sweep_published=500),
        Code.BACKLOG,
        (
            "It is due for 9 s and is the next one by priority and age; queue media has 0 messages on the way to 4"
            " live slots, and sweep adds to them every 5 s."
        ),
    ),
    (
        replace(SWEPT, ahead=1, sight=Sight(workers={"media": {8: 1}}, running={Stage.CLIP: 5})),
        Code.LIMITED,
        (
            "5 run clip or are on their way to it, and 5 may at once (STAGE_LIMITS, FLEET_LIMITS); it comes after"
            " 1 job by priority and age."
        ),
    ),
    (
        replace(SWEPT, stage=Stage.RESOLVE, queue="io", sight=FULL),
        Code.HELD_BACK,
        "It is held back at resolve: the stages after it are so far behind that their queue is full.",
    ),
    (
        replace(SENT, ahead=6, published=7, busy=4),
        Code.IN_QUEUE,
        "It is number 7 in queue media, behind 6 others, with 4 of 4 live slots busy.",
    ),
    (
        replace(SENT, published_at=NOW - s(70), busy=4),
        Code.IN_QUEUE,
        "It is number 1 in queue media, behind 0 others, with 4 of 4 live slots busy.",
    ),
    (
        replace(SENT, published_at=NOW - s(70), busy=1),
        Code.MESSAGE_LOST,
        (
            "Nobody claimed it in 70 s though queue media has 3 free slots: its message is lost or stuck; sweep"
            " sends another when it knows."
        ),
    ),
]


@pytest.mark.parametrize(("facts", "code", "sentence"), CASES, ids=[f"{n}-{c[1]}" for n, c in enumerate(CASES)])
def test_each_case_has_its_sentence(defaults: Settings, facts: Facts, code: Code, sentence: str):
    reason = because(facts, defaults)

    assert (reason.code, reason.sentence) == (code, sentence)
    assert reason.facts


def test_no_code_is_without_a_case():
    assert {code for _, code, _ in CASES} == set(Code)


def test_a_day_that_is_not_today_is_named(defaults: Settings):
    reason = because(replace(ENDED, outcome=Outcome.FULL, finished_at=NOW - timedelta(days=3)), defaults)

    assert f"{(NOW - timedelta(days=3)).astimezone():%Y-%m-%d}" in reason.sentence


def test_the_page_explains_every_code():
    cells = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]

    assert [each[0].strip().strip("`") for each in cells] == [str(code) for code in Code]


# -- from rows to facts ----------------------------------------------------------------------------------------------

ALL = ("io", "media", "control")


@pytest.fixture
def ask(db: Database, defaults: Settings) -> Any:
    def reason_of(job: Job) -> Reason:
        return because(store.facts(db, job.id, defaults.silence()), defaults)

    return reason_of


def worker(db: Database, *queues: str, slots: int = 2, status: str = "idle", silent: float = 0) -> UUID:
    who = uuid4()
    workers.register(
        db,
        who,
        name="ironclip@a",
        hostname="a",
        queues=queues or ALL,
        slots=slots,
        boot_id=None,
        pid=1,
        pid_started=None,
    )
    set_worker(db, who, status=status, silent=silent)
    return who


def set_worker(db: Database, who: UUID, *, status: str, silent: float = 0) -> None:
    beat = "status = :status, last_heartbeat = clock_timestamp() - CAST(:silent AS interval)"
    db.run(text(f"UPDATE workers SET {beat} WHERE id = :id"), id=who, status=status, silent=s(silent))


def swept(db: Database, ago: float = 1, published: int = 0) -> None:
    db.run(
        text("""INSERT INTO upkeep_runs (name, last_began_at, last_ended_at, last_result)
                VALUES ('sweep', clock_timestamp() - CAST(:ago AS interval),
                        clock_timestamp() - CAST(:ago AS interval), jsonb_build_object('published', :n))"""),
        ago=s(ago),
        n=published,
    )


def make_due_for(db: Database, job: Job, seconds: float, table: Table = Table.JOBS) -> None:
    db.run(
        text(f"UPDATE {table} SET updated_at = clock_timestamp() - CAST(:ago AS interval) WHERE id = :id"),
        id=job.id,
        ago=s(seconds),
    )


def breaker(db: Database, state: str, service: str = "target:nas") -> None:
    trial = {"trial": uuid4(), "expires": s(60)} if state == "half_open" else {"trial": None, "expires": None}
    db.run(
        text("""INSERT INTO circuit_breakers (service, state, opens_at, trial, trial_expires_at)
                VALUES (:service, :state, clock_timestamp() + interval '5 min', :trial,
                        clock_timestamp() + CAST(:expires AS interval))"""),
        service=service,
        state=state,
        **trial,
    )


def deferred(db: Database) -> Job:
    job = running(db)
    return play(
        db,
        job,
        Defer(
            fence=job.fence,
            code="TARGET_DOWN",
            reason="refused",
            service="target:nas",
            delay=s(300),
            max_wait=timedelta(days=1),
        ),
    )


def test_a_job_that_is_not_there_is_said_to_be_none(db: Database):
    with pytest.raises(NoSuchJob):
        why(db, uuid4())


def test_a_job_that_has_ended_tells_how(db: Database, ask: Any):
    cancelled = play(db, enqueue(db), Cancel(by="cli:ann"))
    broken = running(db)
    failed = play(db, broken, Fail(fence=broken.fence, code="FFMPEG_FAILED", reason="exit 1"))
    last = running(db, plan=[Stage.FINALIZE], outputs=[output("a"), output("b")])
    outputs.record(db, last.id, last.fence, outputs_of(db, last)[0], OutputStatus.FAILED, error_code="X")
    partly = play(db, last, Complete(fence=last.fence, outcome=Outcome.PARTIAL))
    whole = advance(db, running(db, plan=[Stage.FINALIZE]))

    told = [ask(job) for job in (cancelled, failed, partly, whole)]

    assert [each.code for each in told] == [Code.CANCELLED, Code.FAILED, Code.COMPLETED_PARTLY, Code.COMPLETED]
    assert told[0].facts["by"] == "cli:ann"
    assert (told[1].facts["stage"], told[1].facts["fail_code"]) == (Stage.RESOLVE, "FFMPEG_FAILED")
    assert (told[2].facts["outputs"], told[2].facts["outputs_failed"]) == (2, 1)


def test_a_job_that_runs_names_its_worker_and_how_it_does(db: Database, ask: Any):
    who = worker(db)
    job = running(db, by=str(who))

    reason = ask(job)

    assert reason.code is Code.RUNNING
    assert reason.facts["worker"] == "ironclip@a"
    assert reason.facts["stage"] is Stage.RESOLVE
    assert reason.facts["renewed_s"] < 30


def test_a_job_without_progress_is_told_of(db: Database, ask: Any):
    job = running(db)
    db.run(text("UPDATE jobs SET last_progress_update = clock_timestamp() - interval '90 s' WHERE id = :id"), id=job.id)

    reason = ask(job)

    assert reason.code is Code.NO_PROGRESS
    assert 90 <= reason.facts["no_progress_s"] < 120


def test_a_silent_worker_is_told_of_and_when_the_job_is_taken_from_it(db: Database, ask: Any, defaults: Settings):
    who = worker(db)
    job = running(db, by=str(who))
    let_pass(db, job, s(40))
    set_worker(db, who, status="busy", silent=40)

    reason = ask(job)

    assert reason.code is Code.WORKER_SILENT
    assert 40 <= reason.facts["renewed_s"] < 70
    # Its own silence ends it before the lease does.
    left = reason.facts["taken_away_at"] - store.facts(db, job.id, defaults.silence()).now
    assert s(20) < left <= s(50)


def test_a_lease_that_is_over_and_a_worker_that_left_are_told_of(db: Database, ask: Any):
    who = worker(db)
    left, late = running(db, by=str(who)), running(db)
    workers.goodbye(db, who)
    make_late(db, late)

    assert ask(left).code is Code.WORKER_GONE
    assert ask(late).code is Code.LEASE_OVER


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("open", Code.SERVICE_DOWN),
        ("half_open", Code.SERVICE_DOWN),
        ("closed", Code.DEFERRED),
        (None, Code.DEFERRED),
    ],
)
def test_a_job_that_waits_for_a_service_names_it_and_its_breaker(db: Database, ask: Any, state: str | None, code: Code):
    job = deferred(db)
    if state:
        breaker(db, state)

    reason = ask(job)

    assert reason.code is code
    assert reason.facts["service"] == "target:nas"
    assert reason.facts["breaker"] == state
    assert 270 < reason.facts["in_s"] <= 300
    assert ("probe" in reason.sentence) == (code is Code.SERVICE_DOWN)


def test_a_job_that_is_tried_again_says_when_and_after_what(db: Database, ask: Any):
    job = running(db)
    play(db, job, Retry(fence=job.fence, code="CLIP_TIMEOUT", reason="slow", delay=s(43)))

    reason = ask(job)

    assert reason.code is Code.BACKOFF
    assert (reason.facts["error"], reason.facts["attempt"], reason.facts["max_attempts"]) == ("CLIP_TIMEOUT", 2, 3)
    assert 10 < reason.facts["in_s"] <= 43


def test_a_queue_that_no_live_worker_serves_is_named(db: Database, ask: Any):
    worker(db, "media", "control")
    worker(db, silent=100)
    worker(db, status="offline")
    job = enqueue(db, published=True)

    reason = ask(job)

    assert reason.code is Code.NO_WORKER
    assert (reason.facts["queue"], reason.facts["elsewhere"]) == ("io", 1)


def test_workers_that_are_all_disabled_are_told_of(db: Database, ask: Any):
    worker(db, status="disabled")
    worker(db, status="disabled")
    worker(db, "media")
    job = enqueue(db, published=True)

    reason = ask(job)

    assert reason.code is Code.WORKERS_DISABLED
    assert reason.facts["disabled"] == 2


def test_a_due_job_without_a_message_tells_of_sweep(db: Database, ask: Any):
    worker(db)
    job = enqueue(db)

    never = ask(job)
    swept(db, ago=300)
    long_ago = ask(job)

    assert (never.code, never.facts["sweep_ended_at"]) == (Code.UPKEEP_OVERDUE, None)
    assert long_ago.code is Code.UPKEEP_OVERDUE
    assert "5 min ago" in long_ago.sentence


def test_a_due_job_that_sweep_could_not_publish_tells_of_the_broker(db: Database, ask: Any):
    worker(db)
    job = enqueue(db)
    make_due_for(db, job, 8)
    swept(db, ago=2)

    unsent = ask(job)
    breaker(db, "open", "broker")
    open_ = ask(job)

    assert (unsent.code, unsent.facts["broker"]) == (Code.BROKER_AWAY, None)
    assert (open_.code, open_.facts["broker"]) == (Code.BROKER_AWAY, "open")


def test_a_due_job_knows_who_is_published_before_it(db: Database, ask: Any):
    worker(db, slots=3)
    swept(db)
    first, job, _low = enqueue(db), enqueue(db), enqueue(db, priority="low")
    urgent, sent = enqueue(db, priority="high"), enqueue(db, published=True)
    enqueue(db, plan=[Stage.CLIP])  # of another queue
    play(db, claimed := running(db), Retry(fence=claimed.fence, code="X", reason="", delay=s(60)))  # not due

    reason = ask(job)

    assert reason.code is Code.BACKLOG
    assert (reason.facts["ahead"], reason.facts["published"], reason.facts["slots"]) == (2, 1, 3)
    assert [ask(each).facts["ahead"] for each in (urgent, first, sent)] == [0, 1, 0]


def test_a_due_job_tells_of_the_limit_that_it_meets(db: Database, defaults: Settings):
    who = worker(db, slots=3)
    swept(db)
    running(db, by=str(who))
    job = enqueue(db)

    limited = defaults.model_copy(update={"fleet_limits": "resolve=1"})
    reason = because(store.facts(db, job.id, limited.silence()), limited)

    assert reason.code is Code.LIMITED
    assert (reason.facts["limit"], reason.facts["under_way"]) == (1, 1)


def test_a_due_job_is_held_back_while_later_stages_are_far_behind(db: Database, ask: Any, defaults: Settings):
    worker(db, slots=1)
    swept(db)
    job = enqueue(db)
    for _ in range(defaults.window_min):
        enqueue(db, plan=[Stage.CLIP], published=True)

    reason = ask(job)

    assert reason.code is Code.HELD_BACK


def test_a_published_job_knows_its_place_in_its_queue(db: Database, ask: Any):
    who = worker(db, slots=2)
    running(db, by=str(who))
    ahead = [enqueue(db, published=True) for _ in range(2)]
    enqueue(db, published=True, plan=[Stage.CLIP])  # of another queue
    job = enqueue(db, published=True)
    enqueue(db, published=True)

    reason = ask(job)

    assert reason.code is Code.IN_QUEUE
    assert (reason.facts["position"], reason.facts["ahead"]) == (3, 2)
    assert (reason.facts["slots"], reason.facts["busy"]) == (2, 1)
    assert [ask(each).facts["position"] for each in ahead] == [1, 2]


def test_a_message_that_nobody_took_while_slots_are_free_counts_as_lost(db: Database, ask: Any):
    who = worker(db, slots=1)
    job = enqueue(db, published=True)
    let_pass(db, job, s(70))

    free = ask(job)
    claim(db, enqueue(db), by=str(who))
    busy = ask(job)

    assert free.code is Code.MESSAGE_LOST
    assert busy.code is Code.IN_QUEUE


def test_asking_writes_nothing(db: Database, ask: Any):
    jobs_ = [deferred(db), enqueue(db), running(db)]
    before = everything(db)

    for job in jobs_:
        ask(job)

    assert everything(db) == before
