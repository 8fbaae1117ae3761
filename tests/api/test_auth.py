"""Are keys, sessions and limits what they promise to be?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from pipeline.api.rate import Buckets
from pipeline.core.errors import RateLimited
from pipeline.store import keys
from tests.api.conftest import Api
from tests.store.world import rows, value


def test_of_a_key_only_its_hash_and_beginning_are_kept(api: Api) -> None:
    with api.client("admin") as http:
        made = http.post("/api/keys", json={"role": "client", "account": "ann", "name": "shop"}).json()
        listed = http.get("/api/keys").text

    (row,) = rows(api.db, "SELECT * FROM api_keys WHERE id = :id", id=made["id"])
    assert len(made["key"]) == 43  # 256 bits
    assert row["prefix"] == made["key"][:8]
    assert row["sha256"] == hashlib.sha256(made["key"].encode()).hexdigest()
    assert made["key"] not in str(row)
    assert made["key"] not in listed


def test_a_revoked_key_opens_nothing_at_once_and_neither_does_its_session(api: Api) -> None:
    key = api.key("operator")
    with api.client(None) as browser, api.client("admin") as admin:
        browser.post("/api/session", json={"key": key})
        before = browser.get("/api/jobs").status_code
        admin.delete(f"/api/keys/{key[:8]}")
        after = browser.get("/api/jobs")
        by_key = browser.get("/api/jobs", headers={"Authorization": f"Bearer {key}"})

    assert before == 200
    assert (after.status_code, by_key.status_code) == (401, 401)
    assert after.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("shown", ["x", "x" * 5000, "Bearer", "\u00e4\u00f6\u00fc".encode().decode("latin-1")])
def test_what_is_no_key_is_refused(api: Api, shown: str) -> None:
    with api.client(None) as http:
        answer = http.get("/api/jobs", headers={b"Authorization": f"Bearer {shown}".encode("latin-1")})

    assert (answer.status_code, answer.json()["code"]) == (401, "NOT_AUTHENTICATED")


def test_a_key_with_a_known_beginning_and_another_end_is_refused(api: Api) -> None:
    key = api.key("admin")
    with api.client(None) as http:
        answer = http.get("/api/keys", headers={"X-API-Key": key[:-1] + ("A" if key[-1] != "A" else "B")})
        right = http.get("/api/keys", headers={"X-API-Key": key})

    assert (answer.status_code, right.status_code) == (401, 200)


def test_when_a_key_was_used_is_noted_once_a_minute_and_waits_for_nobody(api: Api) -> None:
    key, shown = keys.create(api.db, "operator")
    when = "SELECT last_used_at FROM api_keys WHERE id = :id"

    keys.find(api.db, shown)
    first = value(api.db, when, id=key.id)
    keys.find(api.db, shown)
    second = value(api.db, when, id=key.id)
    with api.db.transaction() as conn:
        conn.exec_driver_sql(f"UPDATE api_keys SET last_used_at = NULL WHERE id = '{key.id}'")
        found = keys.find(api.db, shown)  # the row is locked

    assert first == second
    assert first is not None
    assert found == key


def test_a_login_needs_a_token_for_every_change(api: Api, request_body: dict[str, Any]) -> None:
    with api.client(None) as browser:
        logged_in = browser.post("/api/session", json={"key": api.key("operator")})
        read = browser.get("/api/jobs")
        bare = browser.post("/api/jobs", json=request_body)
        wrong = browser.post("/api/jobs", json=request_body, headers={"X-CSRF-Token": "0" * 64})
        token = browser.get("/api/session").json()["csrf"]
        right = browser.post("/api/jobs", json=request_body, headers={"X-CSRF-Token": token})

    cookie = logged_in.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie  # this is not https
    assert logged_in.json()["csrf"] == token
    assert read.status_code == 200
    assert {(a.status_code, a.json()["code"]) for a in (bare, wrong)} == {(403, "CSRF_FAILED")}
    assert right.status_code == 201


def test_logging_out_forgets_the_cookie_and_a_changed_one_is_worth_nothing(api: Api) -> None:
    with api.client(None) as browser:
        csrf = browser.post("/api/session", json={"key": api.key("operator")}).json()["csrf"]
        session = browser.cookies["ironclip_session"]
        out = browser.delete("/api/session", headers={"X-CSRF-Token": csrf})
        after = browser.get("/api/jobs")
        key, until, signature = session.split(".")
        forged = [
            f"{key}.{int(until) + 9999}.{signature}",
            f"{uuid4().hex}.{until}.{signature}",
            "a.b.c",
            "..",
            f"{key}.{until}.",
        ]
        answers = [browser.get("/api/jobs", headers={"Cookie": f"ironclip_session={each}"}) for each in forged]

    assert (out.status_code, after.status_code) == (204, 401)
    assert {answer.status_code for answer in answers} == {401}


def test_a_session_ends_by_itself(make_api: Callable[..., Api]) -> None:
    short = make_api(SESSION_SEC="1")
    with short.client(None) as browser:
        browser.post("/api/session", json={"key": short.key("operator")})
        cookie = {"Cookie": f"ironclip_session={browser.cookies.get('ironclip_session', '')}"}

    from tests.cluster.system import wait_for

    with short.client(None) as browser:
        ended = wait_for("the session to end", lambda: browser.get("/api/jobs", headers=cookie).status_code == 401)

    assert ended


def test_what_operators_do_is_written_down_before_it_happens(api: Api) -> None:
    good, bad = f"target:{uuid4()}", f"nonsense-{uuid4()}"
    with api.client("operator") as operator, api.client("admin") as admin, api.client("client") as client:
        asked = operator.post(f"/api/breakers/{good}/trip", headers={"X-Request-Id": "abc-1"})
        refused = operator.post(f"/api/breakers/{bad}/trip")
        operator.get("/api/breakers")
        client.post("/api/jobs", json={})
        acts = admin.get("/api/audit").json()["acts"]

    mine = [act for act in acts if act["data"].get("service") in (good, bad)]
    assert (asked.status_code, refused.status_code) == (200, 422)
    assert [act["data"]["service"] for act in mine] == [bad, good]
    assert mine[1]["act"] == "POST /api/breakers/{service}/trip"
    assert mine[1]["by"].startswith("operator:")
    assert mine[1]["request_id"] == "abc-1"
    assert not any(act["by"].startswith("client:") for act in acts)


def test_other_origins_are_told_nothing(api: Api) -> None:
    origin = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    with api.client("admin") as http:
        answers = [http.get("/api/jobs", headers=origin), http.options("/api/jobs", headers=origin)]

    assert not [name for answer in answers for name in answer.headers if name.startswith("access-control")]
    assert "frame-ancestors 'none'" in answers[0].headers["content-security-policy"]
    assert answers[0].headers["x-content-type-options"] == "nosniff"


def test_who_asks_too_often_waits_and_others_do_not(make_api: Callable[..., Api]) -> None:
    strict = make_api(API_RATE_PER_SEC="0.01", API_BURST="3")
    with strict.client("operator") as eager, strict.client("operator") as other:
        answers = [eager.get("/api/jobs") for _ in range(4)]
        calm = other.get("/api/jobs")

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[3].json()["code"] == "RATE_LIMITED"
    assert 90 <= int(answers[3].headers["retry-after"]) <= 100
    assert calm.status_code == 200


def test_a_bucket_fills_at_its_rate_and_never_above_its_brim() -> None:
    now = [0.0]
    buckets = Buckets(per_s=2, burst=2, clock=lambda: now[0])

    def taken() -> int:
        n = 0
        try:
            while True:
                buckets.take("ann")
                n += 1
        except RateLimited:
            return n

    counts = [taken()]
    for wait_s in (0.5, 1.0, 100.0):
        now[0] += wait_s
        counts.append(taken())

    assert counts == [2, 1, 2, 2]


def test_behind_a_proxy_with_tls_the_cookie_is_for_https_only(api: Api) -> None:
    with api.client(None) as browser:
        said = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"}
        cookie = browser.post("/api/session", json={"key": api.key("operator")}, headers=said).headers["set-cookie"]

    assert "secure" in cookie.lower()
