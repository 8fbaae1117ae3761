"""Can an account and its operators look after webhooks over HTTP, each after their own?"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import text

from pipeline.store import endpoints
from tests.api.conftest import Api

HOOK = "https://hooks.example.org/secret-path?token=hidden"
DELIVER = text("""
    INSERT INTO webhook_deliveries (id, endpoint_id, account_id, type, payload, url, status, attempt_count, last_error)
    VALUES (:id, :endpoint, :account, 'job_failed', '{"job": "told"}', :url, :status, 8, 'HTTP 500')""")


def delivery(api: Api, *, endpoint: str | None = None, account: str | None = None, status: str = "failed") -> str:
    made = str(uuid4())
    api.db.run(DELIVER, id=made, endpoint=endpoint, account=account, url=HOOK, status=status)
    return made


def listed(http: httpx.Client, **params: Any) -> list[str]:
    return [each["id"] for each in http.get("/api/webhooks/deliveries", params=params).json()["deliveries"]]


@pytest.fixture
def ann() -> str:
    return f"ann{uuid4().hex[:8]}"


def test_an_account_adds_sees_and_removes_its_own_endpoints_and_nobody_elses(api: Api, ann: str) -> None:
    with api.client("client", ann) as mine, api.client("client") as other, api.client("operator") as staff:
        made = mine.post("/api/webhooks/endpoints", json={"url": HOOK}).json()
        alerts = staff.post("/api/webhooks/endpoints", json={"url": HOOK, "types": ["job_stalled"]}).json()
        seen = mine.get("/api/webhooks/endpoints")
        everything = {each["id"] for each in staff.get("/api/webhooks/endpoints").json()["endpoints"]}
        theirs = other.get("/api/webhooks/endpoints").json()["endpoints"]
        refused = [http.delete(f"/api/webhooks/endpoints/{made['id']}") for http in (other, mine, mine)]
        hers = mine.delete(f"/api/webhooks/endpoints/{alerts['id']}")

    (one,) = seen.json()["endpoints"]
    assert (one["id"], one["account_id"]) == (made["id"], ann)
    assert one["types"] == ["job_completed", "job_failed", "job_cancelled"]
    assert len(made["secret"]) == 64
    assert made["secret"] not in seen.text
    assert "hidden" not in seen.text
    assert {made["id"], alerts["id"]} <= everything
    assert theirs == []
    assert [answer.status_code for answer in refused] == [404, 204, 404]
    assert (hers.status_code, hers.json()["code"]) == (404, "NO_SUCH_ENDPOINT")


def test_what_cannot_be_an_endpoint_is_refused(api: Api, ann: str) -> None:
    asked = [
        {"url": "ftp://example.org"},
        {"url": "https://me:word@example.org"},
        {"url": HOOK, "types": ["everything"]},
        {"url": HOOK, "types": ["job_stalled"]},
        {"url": HOOK, "account": "bob"},
    ]
    with api.client("client", ann) as mine, api.client("operator") as staff:
        answers = [mine.post("/api/webhooks/endpoints", json=each) for each in asked]
        unknown = staff.post("/api/webhooks/endpoints", json={"url": HOOK, "account": "nobody-at-all"})
        many = [mine.post("/api/webhooks/endpoints", json={"url": HOOK}).status_code for _ in range(endpoints.MOST)]
        one_more = mine.post("/api/webhooks/endpoints", json={"url": HOOK})

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [
        (422, "BAD_WEBHOOK_URL"),
        (422, "BAD_WEBHOOK_URL"),
        (422, "UNKNOWN_WEBHOOK_TYPE"),
        (422, "UNKNOWN_WEBHOOK_TYPE"),
        (403, "FORBIDDEN"),
    ]
    assert (unknown.status_code, unknown.json()["code"]) == (422, "UNKNOWN_ACCOUNT")
    assert set(many) == {201}
    assert (one_more.status_code, one_more.json()["code"]) == (422, "TOO_MANY_ENDPOINTS")


def test_history_comes_in_pages_by_status_without_secrets_and_each_account_sees_its_own(api: Api, ann: str) -> None:
    with api.client("client", ann) as mine, api.client("client") as other, api.client("operator") as staff:
        own = mine.post("/api/webhooks/endpoints", json={"url": HOOK}).json()["id"]
        operators = staff.post("/api/webhooks/endpoints", json={"url": HOOK, "types": ["job_failed"]}).json()["id"]
        sent = delivery(api, endpoint=own, account=ann, status="delivered")
        mines = [sent, *(delivery(api, endpoint=own, account=ann) for _ in range(2)), delivery(api, account=ann)]
        about_me = delivery(api, endpoint=operators, account=ann)
        alert = delivery(api, endpoint=operators)
        whole = mine.get("/api/webhooks/deliveries")
        first = mine.get("/api/webhooks/deliveries", params={"limit": 3}).json()
        meanwhile = delivery(api, account=ann)
        second = mine.get("/api/webhooks/deliveries", params={"limit": 3, "cursor": first["next"]}).json()
        failed, of_endpoint = listed(mine, status="failed"), listed(mine, endpoint=own)
        elsewhere, all_of_them = listed(other), listed(staff, limit=200)

    pages = [each["id"] for page in (first, second) for each in page["deliveries"]]
    assert pages == list(reversed(mines))
    assert second["next"] is None
    assert failed == [meanwhile, *reversed(mines[1:])]
    assert of_endpoint == list(reversed(mines[:3]))
    assert elsewhere == []
    assert {*mines, about_me, alert} <= set(all_of_them)
    assert "hooks.example.org" in whole.text
    assert not any(word in whole.text for word in ("secret-path", "hidden", "told"))


def test_a_delivery_is_sent_again_by_whom_it_belongs_to_and_operators_are_written_down(api: Api, ann: str) -> None:
    one, gone = delivery(api, account=ann), delivery(api, account=ann)
    busy = delivery(api, account=ann, status="pending")
    api.db.run(text("UPDATE webhook_deliveries SET claimed_until = now() + interval '1 h' WHERE id = :id"), id=busy)
    with api.client("client", ann) as mine, api.client("client") as other, api.client("operator") as staff:
        endpoint = mine.post("/api/webhooks/endpoints", json={"url": HOOK}).json()["id"]
        mine.delete(f"/api/webhooks/endpoints/{endpoint}")
        api.db.run(text("UPDATE webhook_deliveries SET endpoint_id = :e WHERE id = :id"), e=endpoint, id=gone)
        stranger = other.post(f"/api/webhooks/deliveries/{one}/replay")
        before = listed(mine, status="pending")
        again = mine.post(f"/api/webhooks/deliveries/{one}/replay")
        after = listed(mine, status="pending")
        not_now = [mine.post(f"/api/webhooks/deliveries/{each}/replay") for each in (busy, gone)]
        by_staff = staff.post(f"/api/webhooks/deliveries/{one}/replay")
        unknown = staff.post(f"/api/webhooks/deliveries/{uuid4()}/replay")
    with api.client("admin") as admin:
        acts = [act for act in admin.get("/api/audit").json()["acts"] if act["data"].get("delivery_id") == one]

    assert (stranger.status_code, stranger.json()["code"]) == (404, "NO_SUCH_DELIVERY")
    assert (before, set(after)) == ([busy], {busy, one})
    assert (again.status_code, again.json()) == (202, {"id": one, "status": "pending"})
    assert {(answer.status_code, answer.json()["code"]) for answer in not_now} == {(409, "NOT_ALLOWED_NOW")}
    assert (by_staff.status_code, unknown.status_code) == (202, 404)
    assert [act["by"].split(":")[0] for act in acts] == ["operator"]
