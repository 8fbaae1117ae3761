"""Can a web app submit, find, follow and cancel jobs, and does it see only its own?"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from pipeline.core.moves import Fail
from pipeline.store import jobs
from tests.api.conftest import Api
from tests.store.world import claim, play


def test_a_job_is_submitted_listed_shown_and_cancelled(api: Api, request_body: dict[str, Any]) -> None:
    with api.client("operator") as http:
        made = http.post("/api/jobs", json=request_body)
        job = made.json()["id"]
        shown = http.get(made.headers["location"]).json()
        listed = http.get("/api/jobs", params={"search": job}).json()
        cancelled = http.post(f"/api/jobs/{job}/cancel")
        again = http.post(f"/api/jobs/{job}/cancel")

    assert made.status_code == 201
    assert (shown["id"], shown["status"], shown["stage"]) == (job, "queued", "resolve")
    assert [output["name"] for output in shown["outputs"]] == ["clip1-source"]
    assert [event["type"] for event in shown["events"]] == ["queued"]
    assert shown["why"]["code"] == "no_worker"
    assert [each["id"] for each in listed["jobs"]] == [job]
    assert cancelled.json()["status"] == "cancelled"
    assert (again.status_code, again.json()["code"]) == (409, "NOT_ALLOWED_NOW")


def test_the_same_idempotency_key_is_the_same_job_and_another_body_a_conflict(
    api: Api, request_body: dict[str, Any]
) -> None:
    key = {"Idempotency-Key": "once"}
    other = {**request_body, "priority": "high"}

    with api.client("operator") as http:
        first, second = (http.post("/api/jobs", json=request_body, headers=key).json()["id"] for _ in range(2))
        conflict = http.post("/api/jobs", json=other, headers=key)

    assert first == second
    assert (conflict.status_code, conflict.json()["code"]) == (409, "IDEMPOTENCY_CONFLICT")


def test_pages_are_stable_while_jobs_come_in(api: Api, request_body: dict[str, Any]) -> None:
    body = {"source": "https://media.example.org/a.mp4", "clips": [{"start": 0, "end": 1}]}
    with api.client("client") as http:
        made = [http.post("/api/jobs", json=body).json()["id"] for _ in range(5)]
        first = http.get("/api/jobs", params={"limit": 2}).json()
        http.post("/api/jobs", json=body)
        second = http.get("/api/jobs", params={"limit": 2, "cursor": first["next"]}).json()
        third = http.get("/api/jobs", params={"limit": 2, "cursor": second["next"]}).json()

    seen = [job["id"] for page in (first, second, third) for job in page["jobs"]]
    assert seen == made[::-1]
    assert third["next"] is None


def test_a_failed_job_is_found_by_its_status_and_run_again(api: Api, request_body: dict[str, Any]) -> None:
    with api.client("operator") as http:
        job_id = http.post("/api/jobs", json=request_body).json()["id"]
        job = claim(api.db, jobs.read(api.db, job_id)[0])
        play(api.db, job, Fail(fence=job.fence, code="SOURCE_UNREADABLE", reason="no video"))
        failed = http.get("/api/jobs", params={"status": "failed", "search": job_id}).json()["jobs"]
        shown = http.get(f"/api/jobs/{job_id}").json()
        requeued = http.post(f"/api/jobs/{job_id}/requeue", json={"stage": "resolve"})

    assert [each["fail_code"] for each in failed] == ["SOURCE_UNREADABLE"]
    assert shown["attempts"][0]["ended_by"] == "failed"
    assert shown["why"]["code"] == "failed"
    assert requeued.json()["status"] == "queued"


def test_an_account_sees_and_touches_only_its_own_jobs(api: Api) -> None:
    body = {"source": "https://media.example.org/a.mp4", "clips": [{"start": 0, "end": 1}]}
    with api.client("client") as ann, api.client("client") as bob:
        job = ann.post("/api/jobs", json=body).json()["id"]
        seen = [
            bob.get(f"/api/jobs/{job}"),
            bob.post(f"/api/jobs/{job}/cancel"),
            bob.get(f"/api/jobs/{job}/events"),
            bob.get(f"/api/jobs/{job}/outputs/clip1-source/newest"),
            bob.get(f"/api/jobs/{uuid4()}"),
        ]
        listed = bob.get("/api/jobs").json()["jobs"]
        mine = ann.get("/api/jobs").json()["jobs"]

    assert {(answer.status_code, answer.json()["code"]) for answer in seen} == {(404, "NO_SUCH_JOB")}
    assert listed == []
    assert [each["id"] for each in mine] == [job]


def test_a_client_cannot_submit_for_somebody_else(api: Api) -> None:
    body = {"source": "https://media.example.org/a.mp4", "clips": [{"start": 0, "end": 1}], "account": "other"}

    with api.client("client") as http:
        answer = http.post("/api/jobs", json=body)

    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, "SOURCE_REQUIRED", "source"),
        ({"source": "/nowhere.mp4", "clips": [{}]}, "SOURCE_MISSING", "source"),
        ({"source": "https://a.example/x", "clips": [{"start": 2, "end": 1}]}, "CLIP_END_BEFORE_START", "clips[0].end"),
        ({"source": "https://a.example/x", "clips": [{}], "size": 1}, "UNKNOWN_FIELD", "size"),
    ],
)
def test_a_bad_request_is_told_its_reason_and_field(api: Api, body: dict[str, Any], code: str, field: str) -> None:
    with api.client("operator") as http:
        answer = http.post("/api/jobs", json=body)

    told = answer.json()
    assert (answer.status_code, told["code"], told["detail"]) == (422, code, {"field": field})
    assert set(told) == {"code", "message", "detail", "request_id"}
    assert told["request_id"] == answer.headers["x-request-id"]
