"""What does a message do that comes twice, late, or for nothing? Nothing, and it says so quietly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import uuid4

from celery import Celery

from pipeline import dispatch, enqueue
from pipeline.core.job import Job
from pipeline.core.routing import QUEUE_OF, SUBMIT, task_of
from pipeline.store import reads
from tests.cluster.flower import Watching
from tests.cluster.system import System, wait_for


def short(sample: Path, **more: object) -> dict[str, object]:
    """A job of a second."""
    return {"source": str(sample), "clips": [{"start": 2, "end": 4}], "captions": False, **more}


def send_each_link(job: Job, times: int) -> list[str]:
    """Every message of the chain, alone and out of order; the ids of the tasks."""
    sent = [
        dispatch.client.send_task(task_of(stage), args=(str(job.id),), queue=QUEUE_OF[stage])
        for _ in range(times)
        for stage in reversed(job.plan)
    ]
    return [message.id for message in sent]


def test_every_message_delivered_five_times_means_each_stage_worked_once(
    warm: System, flower: Watching, sample: Path
) -> None:
    before = warm.published()
    job = enqueue(short(sample))
    for _ in range(4):
        dispatch.start(job)
    send_each_link(job, 5)
    warm.finished(job.id)

    late = send_each_link(job, 5)
    dispatch.start(job)

    assert [flower.ended(task_id).state for task_id in late] == ["SUCCESS"] * len(late)
    once = {str(stage): 1 for stage in job.plan}
    assert Counter(warm.claims(job.id)) == once
    assert Counter(event["stage"] for event in warm.events(job.id, "stage_completed")) == once
    assert Counter(attempt["stage"] for attempt in reads.attempts(warm.db, job.id)) == once
    new = warm.published().keys() - before.keys()
    assert sorted(Path(name).suffix for name in new) == [".json", ".mp4"]
    assert all(str(job.id) in name for name in new)


def test_a_second_chain_for_a_finished_job_ends_at_its_first_link_as_success(
    warm: System, flower: Watching, sample: Path
) -> None:
    job = enqueue(short(sample))
    warm.finished(job.id)
    wait_for("the first chain to be seen", lambda: len(flower.of_job(job.id)) == len(job.plan))

    dispatch.start(job)

    wait_for("the second chain's link", lambda: len(flower.of_job(job.id)) > len(job.plan))
    link = flower.ended(flower.of_job(job.id)[-1].uuid)
    assert (link.state, link.name) == ("SUCCESS", "pipeline.resolve")
    assert "finished" in link.result
    sentinel = enqueue(short(sample))  # whatever the link had published would be served before this one
    warm.finished(sentinel.id)
    assert Counter(task.name for task in flower.of_job(job.id))["pipeline.clip"] == 1
    assert {task.state for task in flower.of_job(job.id)} == {"SUCCESS"}


def test_a_second_chain_for_a_held_job_ends_where_the_work_is_as_success(
    warm: System, flower: Watching, sample: Path
) -> None:
    job = enqueue(short(sample, clips=[{"start": 0.5, "end": 9.5}]))
    warm.encoding(job.id)

    dispatch.start(job)

    refused = wait_for("the refusal", lambda: [t for t in flower.of_job(job.id) if "held" in (t.result or "")])
    assert [(task.name, task.state) for task in refused] == [("pipeline.clip", "SUCCESS")]
    warm.finished(job.id)
    wait_for("the chain's end", lambda: "pipeline.finalize" in [t.name for t in flower.of_job(job.id) if t.succeeded])
    names = Counter(task.name for task in flower.of_job(job.id))
    assert names == {"pipeline.resolve": 2, "pipeline.clip": 2, "pipeline.upload": 1, "pipeline.finalize": 1}
    assert {task.state for task in flower.of_job(job.id)} == {"SUCCESS"}
    assert Counter(warm.claims(job.id)) == {str(stage): 1 for stage in job.plan}


def test_an_app_with_only_the_broker_sends_a_submission_and_its_task_id_is_the_jobs(
    warm: System, flower: Watching, sample: Path
) -> None:
    stranger = Celery(broker=warm.env["BROKER_URL"], set_as_current=False)
    task_id = str(uuid4())

    for _ in range(2):
        stranger.send_task(SUBMIT, kwargs=short(sample), task_id=task_id)

    wait_for("the row", lambda: str(task_id) in [str(job["id"]) for job in reads.page(warm.db)])
    assert warm.finished(task_id)["outcome"] == "full"
    assert len(warm.events(task_id, "queued")) == 1
    assert Counter(warm.claims(task_id)) == Counter(["resolve", "clip", "upload", "finalize"])


def test_a_bad_submission_fails_as_a_task_and_leaves_no_row_and_the_worker_goes_on(
    warm: System, flower: Watching, sample: Path
) -> None:
    stranger = Celery(broker=warm.env["BROKER_URL"], set_as_current=False)
    worker = warm.nodes[0].container.process.pid
    bad = stranger.send_task(SUBMIT, kwargs=short(sample, clips=[{"start": 4, "end": 2}]))

    task = flower.ended(bad.id)

    assert task.state == "FAILURE"
    assert "ends at 2 s, not after its start" in task.exception
    assert bad.id not in [str(job["id"]) for job in reads.page(warm.db)]
    assert warm.finished(enqueue(short(sample)).id)["outcome"] == "full"
    assert warm.nodes[0].container.process.pid == worker
    assert warm.nodes[0].container.status == "running"
