"""Do jobs flow through real queues: a window at a time, past those that nobody serves, and when all was forgotten?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import redis
from sqlalchemy import text

from pipeline import enqueue
from pipeline.core.job import Job, Stage, Status
from pipeline.core.routing import GPU, IO, MEDIA
from tests.cluster.system import System, wait_for

MakeSystem = Callable[..., System]
IDLE = "tests.cluster.idling"  # our own app, with stages that do nothing but take a moment

WAITING = text("SELECT count(*) AS n FROM jobs WHERE status = 'queued' AND published_at IS NOT NULL")


def asked(source: Path, count: int) -> list[Job]:
    return [
        enqueue({"source": str(source), "clips": [{"start": 0, "end": 1}], "captions": False}) for _ in range(count)
    ]


def published(system: System) -> int:
    return int(system.db.run(WAITING)[0].n)


def done(system: System, jobs: list[Job]) -> bool:
    return all(system.job(job.id).status is Status.COMPLETED for job in jobs)


def assert_each_stage_ran_once(system: System, jobs: list[Job]) -> None:
    for job in jobs:
        assert Counter(system.claims(job.id)) == {str(stage): 1 for stage in job.plan}


def broker(system: System) -> redis.Redis:
    return redis.Redis.from_url(system.env["BROKER_URL"])


def test_a_flushed_broker_costs_no_job_and_none_runs_twice(make_system: MakeSystem, sample: Path) -> None:
    system = make_system()
    system.beat(wait=False)
    system.worker(IDLE, IDLE_S="0.2")
    jobs = asked(sample, 30)
    wait_for("some to be done", lambda: sum(system.job(job.id).status is Status.COMPLETED for job in jobs) > 3)

    for _ in range(3):
        with broker(system) as client:
            client.flushall()
        before = [system.job(job.id).status for job in jobs].count(Status.COMPLETED)
        wait_for(
            "work to go on",
            lambda n=before: [system.job(job.id).status for job in jobs].count(Status.COMPLETED) > min(n + 1, 29),
        )

    wait_for("all to be done", lambda: done(system, jobs), 120)
    assert_each_stage_ran_once(system, jobs)


def test_a_redis_that_keeps_nothing_may_be_restarted(make_system: MakeSystem, sample: Path) -> None:
    system = make_system()
    with broker(system) as client:
        client.config_set("appendonly", "no")
        client.config_set("save", "")
    system.beat(wait=False)
    system.worker(IDLE, IDLE_S="0.2")
    jobs = asked(sample, 12)
    wait_for("a job to be done", lambda: any(system.job(job.id).status is Status.COMPLETED for job in jobs))

    server = system.broker.container.server
    server.kill()
    for file in (*server.data.rglob("*.aof"), *server.data.rglob("*.rdb")):
        file.unlink()
    server.start()

    wait_for("all to be done", lambda: done(system, jobs), 120)
    assert_each_stage_ran_once(system, jobs)


def test_a_queue_that_nobody_serves_stops_nobody_else(make_system: MakeSystem, sample: Path) -> None:
    system = make_system()
    system.beat(wait=False)
    system.worker(IDLE, queues=("control", IO, "celery"))
    stuck = asked(sample, 20)
    wait_for("some to wait for an encoder", lambda: system.job(stuck[0].id).stage is Stage.CLIP)
    flowing = asked(sample, 6)
    encoded = [job.id for job in flowing]
    system.db.run(
        text("UPDATE jobs SET stage = 'upload', published_at = NULL WHERE id = ANY (:ids) AND status = 'queued'"),
        ids=encoded,
    )

    wait_for("the others to be done", lambda: done(system, flowing))

    assert not any(system.job(job.id).is_final for job in stuck)
    system.worker(IDLE, queues=(MEDIA,))
    wait_for("all to be done", lambda: done(system, stuck), 120)
    assert_each_stage_ran_once(system, stuck)


def test_an_idle_gpu_worker_gets_the_heavy_stages_and_without_it_everything_flows(
    make_system: MakeSystem, sample: Path
) -> None:
    system = make_system()
    system.beat(wait=False)
    system.worker(IDLE)
    gpu = system.worker(IDLE, queues=(GPU,), slots=1)
    (first,) = asked(sample, 1)
    wait_for("it to be done", lambda: done(system, [first]))
    on_gpu = system.db.run(
        text("""SELECT a.stage FROM job_attempts a JOIN workers w ON w.id::text = a.worker
                 WHERE a.job_id = :id AND 'gpu' = ANY (w.queues) ORDER BY a.started_at"""),
        id=first.id,
    )

    gpu.kill()
    rest = asked(sample, 6)
    wait_for("all to be done", lambda: done(system, rest), 120)

    assert [row.stage for row in on_gpu] == ["clip"]
    assert_each_stage_ran_once(system, [first, *rest])


def test_a_long_backlog_is_published_a_window_at_a_time_and_without_waiting_for_the_clock(
    make_system: MakeSystem, sample: Path
) -> None:
    system = make_system(SWEEP_INTERVAL_SEC="600")  # nobody sweeps by the clock
    jobs = asked(sample, 60)
    before = published(system)
    system.worker(IDLE)
    seen = []

    def all_done() -> bool:
        seen.append(published(system))
        return done(system, jobs)

    wait_for("all to be done", all_done, 120)
    assert before == 2
    assert max(seen) <= 3 * 8
    assert_each_stage_ran_once(system, jobs)


def test_a_worker_runs_no_more_of_a_stage_than_it_may(make_system: MakeSystem, sample: Path) -> None:
    system = make_system(STAGE_LIMITS="clip=1")
    system.beat(wait=False)
    system.worker(IDLE, slots=4, IDLE_S="0.1")
    jobs = asked(sample, 12)

    most = most_at_once(system, jobs, Stage.CLIP)

    assert most == 1
    assert_each_stage_ran_once(system, jobs)


def test_a_fleet_runs_no_more_of_a_stage_than_it_may(make_system: MakeSystem, sample: Path) -> None:
    system = make_system(FLEET_LIMITS="clip=2,resolve=3", STAGE_LIMITS="")
    system.beat(wait=False)
    system.worker(IDLE, slots=3, wait=False, IDLE_S="0.1")
    system.worker(IDLE, slots=3, IDLE_S="0.1")
    jobs = asked(sample, 12)

    most = most_at_once(system, jobs, Stage.CLIP)

    assert most == 2
    assert_each_stage_ran_once(system, jobs)


# Two ran at once if one began before the other ended.
AT_ONCE = text("""
    SELECT max(n) AS n FROM (
        SELECT count(*) AS n FROM job_attempts a JOIN job_attempts b
            ON b.stage = a.stage AND b.started_at <= a.started_at AND b.ended_at > a.started_at
         WHERE a.stage = :stage GROUP BY a.fence) x""")


def most_at_once(system: System, jobs: list[Job], stage: Stage) -> int:
    """How many of a stage ran at the same time, when all jobs are done."""
    wait_for("all to be done", lambda: done(system, jobs), 120)
    return int(system.db.run(AT_ONCE, stage=stage)[0].n)
