"""What does Postgres hold of a job that is made anew? Two generations side by side, until one of them counts."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import pytest

from pipeline.core.errors import NoSuchJob
from pipeline.core.job import Job, Outcome, OutputStatus, Stage, Status
from pipeline.core.moves import Cancel, Complete, Refusal, Requeue, Rerender
from pipeline.core.output import File
from pipeline.store import checkpoints, jobs, outputs, reads
from pipeline.store.engine import Database
from tests.store.world import Another, Start, claim, enqueue, now_of, output, outputs_of, play, rows, value

FILE = File(name="a-final.mp4", sha256="0" * 64, size=1)
PLAN = [Stage.CLIP, Stage.FINALIZE]


def finish(db: Database, job: Job, *refusing: str, failing: str = "") -> Job:
    """Bring the job to its end; each output lies at nas, and at those targets that refuse it does not."""
    while not job.is_final:
        job = claim(db, job)
        for each in outputs.of(db, job.id, job.building):
            _make(db, job, each.id, refusing) if each.name != failing else _fail(db, job, each.id)
        partial_end = bool(refusing or failing)
        job = play(db, job, Complete(fence=job.fence, outcome=Outcome.PARTIAL if partial_end else Outcome.FULL))
    return job


def _make(db: Database, job: Job, each: int, refusing: tuple[str, ...]) -> None:
    outputs.record(db, job.id, job.fence, each, OutputStatus.COMPLETED, files=[FILE], facts={"mode": "copy"})
    outputs.delivered(db, job.id, job.fence, each, "nas", files=[{"key": f"g{job.building}/{each}"}])
    outputs.transcribed(db, job.id, job.fence, each, {"text": f"said in {job.building}"})
    for target in refusing:
        outputs.delivered(db, job.id, job.fence, each, target, error_code="TARGET_DISK_FULL")


def _fail(db: Database, job: Job, each: int) -> None:
    outputs.record(db, job.id, job.fence, each, OutputStatus.FAILED, error_code="X", error_message="y")


@pytest.fixture
def done(db: Database) -> Job:
    return finish(db, enqueue(db, plan=PLAN, outputs=[output("a"), output("b")]))


def generation(db: Database, job: Job, number: int) -> list[dict[str, Any]]:
    return rows(
        db,
        """SELECT o.name, o.status, o.carried, o.files, o.facts,
                  (SELECT jsonb_agg(d.files) FROM deliveries d WHERE d.output_id = o.id) AS lying,
                  (SELECT a.transcript->>'text' FROM asr_jobs a WHERE a.output_id = o.id) AS said
             FROM outputs o WHERE o.job_id = :id AND o.generation = :number ORDER BY o.id""",
        id=job.id,
        number=number,
    )


def test_a_new_generation_begins_at_nothing_beside_the_old_one(db: Database, done: Job):
    before = generation(db, done, 1)

    again = play(db, done, Rerender(by="ann"))

    assert (again.generation, again.building) == (1, 2)
    blank = {"status": "pending", "carried": False, "files": [], "facts": {}, "lying": None, "said": None}
    assert generation(db, done, 2) == [{"name": name, **blank} for name in ("a", "b")]
    assert generation(db, done, 1) == before


def test_what_is_not_made_anew_is_carried_over_with_its_keys_and_words(db: Database, done: Job):
    before = generation(db, done, 1)

    play(db, done, Rerender(by="ann", only=("a",)))

    anew, carried = generation(db, done, 2)
    assert (anew["status"], anew["lying"], anew["said"]) == ("pending", None, None)
    assert carried == {**before[1], "carried": True}


def test_a_failure_and_a_refusal_are_carried_over_too_and_are_not_paid_for(db: Database):
    job = finish(db, enqueue(db, plan=PLAN, outputs=[output("a"), output("b"), output("c")]), "full", failing="b")

    play(db, job, Rerender(by="ann", only=("c",)))

    a, b, _ = generation(db, job, 2)
    assert (a["status"], a["carried"], len(a["lying"])) == ("completed", True, 2)
    assert (b["status"], b["carried"]) == ("failed", False)


def test_a_second_generation_is_made_of_what_is_published_and_not_of_what_came_to_nothing(db: Database, done: Job):
    lost = claim(db, play(db, done, Rerender(by="ann")))
    outputs.record(db, lost.id, lost.fence, outputs.of(db, lost.id, 2)[1].id, OutputStatus.FAILED, error_code="X")
    play(db, lost, Cancel(by="ann"))

    play(db, now_of(db, done), Rerender(by="ann", only=("a",)))

    assert [o["status"] for o in generation(db, done, 3)] == ["pending", "completed"]
    assert generation(db, done, 3)[1]["lying"] == generation(db, done, 1)[1]["lying"]


def test_whoever_asks_for_the_newest_output_gets_the_published_one(db: Database, done: Job):
    def key() -> str:
        found = reads.newest_output(db, done.id, "b")
        assert found is not None
        return str(found["deliveries"][0]["files"][0]["key"])

    before, again = key(), play(db, done, Rerender(by="ann"))
    meanwhile = key()
    finish(db, again)

    assert meanwhile == before
    assert (before[:3], key()[:3]) == ("g1/", "g2/")
    assert reads.newest_output(db, done.id, "no such") is None


def test_before_the_first_generation_is_published_there_is_no_newest_output(db: Database):
    job = enqueue(db)

    assert reads.newest_outputs(db, job.id) == []
    with pytest.raises(NoSuchJob):
        reads.newest_outputs(db, UUID(int=7))


def test_units_belong_to_their_generation(db: Database, done: Job):
    job = claim(db, play(db, done, Rerender(by="ann")))
    checkpoints.put(db, job.id, job.fence, job.building, "unit", {"n": 2})

    assert checkpoints.of(db, job.id, 1) == {}
    assert checkpoints.of(db, job.id, 2) == {"unit": {"n": 2}}


def test_a_ghost_cannot_publish_a_generation_that_was_cancelled(db: Database, done: Job):
    ghost = claim(db, play(db, done, Rerender(by="ann")))
    play(db, ghost, Cancel(by="ann"))

    answer = jobs.apply(db, done.id, Complete(fence=ghost.fence), snapshot=ghost)

    assert answer is Refusal.LEASE_LOST
    assert not outputs.delivered(db, done.id, ghost.fence, outputs.of(db, done.id, 2)[0].id, "nas")
    after = now_of(db, done)
    assert (after.status, after.generation, after.outcome) == (Status.COMPLETED, 1, Outcome.FULL)


def test_of_eight_who_ask_at_once_one_makes_a_new_generation(db: Database, done: Job, another: Another):
    views = [another() for _ in range(8)]
    with Start(8) as start:
        answers = start.together(*(partial(jobs.apply, view, done.id, Rerender(by="ann")) for view in views))

    assert sum(isinstance(answer, Job) for answer in answers) == 1
    assert value(db, "SELECT count(*) FROM outputs WHERE generation > 1") == 2


@pytest.mark.parametrize("attempt", range(8))
def test_whoever_is_first_of_a_completion_and_a_cancel_decides_what_is_published(
    db: Database, done: Job, another: Another, attempt: int
):
    job = play(db, done, Rerender(by="ann"))
    while job.next_stage():
        held = claim(db, job)
        job = play(db, held, Complete(fence=held.fence))
    last = claim(db, job)
    views = another(), another()
    with Start(2) as start:
        start.together(
            partial(jobs.apply, views[0], done.id, Complete(fence=last.fence)),
            partial(jobs.apply, views[1], done.id, Cancel(by="ann")),
        )

    after = now_of(db, done)
    assert after.status is Status.COMPLETED
    assert (after.generation, after.building) in ((1, 1), (2, 2))


def test_a_requeue_of_what_failed_asks_only_its_own_generation_again(db: Database):
    job = finish(db, enqueue(db, plan=PLAN), "full")
    job = finish(db, play(db, job, Rerender(by="ann")), "full")

    play(db, job, Requeue(by="op", failed_only=True))

    refused = "SELECT o.generation FROM deliveries d JOIN outputs o ON o.id = d.output_id WHERE d.status = 'refused'"
    assert rows(db, refused) == [{"generation": 1}]
    assert len(outputs_of(db, job)) == 2
