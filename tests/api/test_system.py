"""Can operators look after services, workers, recovery, credits and health over HTTP?"""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from pipeline.store import workers
from tests.api.conftest import Api
from tests.cluster.system import wait_for
from tests.store.world import enqueue, let_pass, now_of, running, value


def test_a_breaker_is_tripped_seen_and_reset(api: Api) -> None:
    service = f"target:{uuid4().hex[:8]}"
    with api.client("operator") as http:
        tripped = http.post(f"/api/breakers/{service}/trip").json()
        (seen,) = [each for each in http.get("/api/breakers").json()["breakers"] if each["service"] == service]
        reset = http.post(f"/api/breakers/{service}/reset").json()
        unknown = http.post("/api/breakers/target:unheard-of/reset")

    assert tripped["state"] == seen["state"] == "open"
    assert seen["last_failure"].startswith("tripped by operator:")
    assert reset == {"service": service, "state": "closed", "woken": 0}
    assert (unknown.status_code, unknown.json()["code"]) == (422, "NO_SUCH_BREAKER")


def test_recovery_finds_what_is_stuck_and_says_so_in_the_words_of_its_users(api: Api) -> None:
    stuck, hopeless = running(api.db), running(api.db)
    let_pass(api.db, stuck, timedelta(minutes=45))
    let_pass(api.db, hopeless, timedelta(hours=3))

    with api.client("admin") as http:
        before = http.get("/api/recovery/status").json()
        done = http.post("/api/recovery/trigger").json()
        after = http.get("/api/apps/pose-generator/recovery/status").json()
        again = http.post("/api/apps/pose-generator/recovery/trigger").json()

    keys = {"stalledGenerations", "queuedGenerations", "processingGenerations", "lastRecoveryRun"}
    assert set(before) == set(after) == keys
    assert before["stalledGenerations"] >= 2
    assert done["success"] is True
    assert done["recovered"] >= 1
    assert done["failed"] >= 1
    assert after["stalledGenerations"] == 0
    assert after["lastRecoveryRun"] is not None
    assert again == {"success": True, "recovered": 0, "failed": 0}
    assert (now_of(api.db, stuck).status, now_of(api.db, hopeless).status) == ("queued", "failed")


def a_worker(api: Api) -> str:
    worker = uuid4()
    known = {"name": "w@h", "hostname": "h", "queues": ["media"], "slots": 2}
    workers.register(api.db, worker, **known, boot_id=None, pid=1, pid_started=None)
    return str(worker)


def test_a_worker_is_taken_out_of_service_and_back(api: Api) -> None:
    worker = a_worker(api)
    with api.client("operator") as http:
        disabled = http.post(f"/api/workers/{worker}/disable").json()
        workers.beat(api.db, worker, busy=True)
        seen = {each["id"]: each["status"] for each in http.get("/api/workers").json()["workers"]}
        enabled = http.post(f"/api/workers/{worker}/enable").json()
        unknown = http.post(f"/api/workers/{uuid4()}/disable")
    workers.goodbye(api.db, worker)

    assert disabled["status"] == seen[worker] == "disabled"
    assert enabled["status"] == "idle"
    assert (unknown.status_code, unknown.json()["code"]) == (404, "NO_SUCH_WORKER")


def test_health_says_what_is_there(api: Api) -> None:
    worker = a_worker(api)
    with api.client(None) as anybody, api.client("operator") as operator:
        well = wait_for("the worker to count", lambda: (h := anybody.get("/health").json())["active_workers"] and h)
        whole = operator.get("/api/health").json()
    workers.goodbye(api.db, worker)

    assert set(well) == {"status", "database", "redis", "active_workers", "pending_jobs"}
    assert (well["status"], well["database"], well["redis"]) == ("ok", True, True)
    assert set(whole) == {"storage", "database", "statistics"}
    assert whole["storage"]["scratch"]["free_bytes"] > 0
    assert whole["database"]["ok"] is True
    assert "oldest_due_s" in whole["statistics"]


def test_credits_are_granted_once_and_each_account_sees_its_own(api: Api) -> None:
    account = f"rich{uuid4().hex[:8]}"
    grant = {"account": account, "amount": 100, "reference": f"order {account}"}
    with api.client("admin") as admin, api.client("client", account) as mine, api.client("client") as other:
        given = [admin.post("/api/credits", json=grant).json()["granted"] for _ in range(2)]
        conflict = admin.post("/api/credits", json={**grant, "amount": 1})
        seen = mine.get("/api/credits").json()
        refused = other.get("/api/credits", params={"account": account})
        everybody = admin.get("/api/credits").json()["accounts"]

    assert given == [True, False]
    assert conflict.status_code == 409
    assert [(each["account"], each["balance"]) for each in seen["accounts"]] == [(account, 100)]
    assert [(each["kind"], each["amount"]) for each in seen["entries"]] == [("grant", 100)]
    assert refused.status_code == 403
    assert account in [each["account"] for each in everybody]


def test_prometheus_gets_its_figures(api: Api) -> None:
    enqueue(api.db)
    with api.client("operator") as http:
        answer = http.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain")
    assert "database_up 1.0" in answer.text
    assert value(api.db, "SELECT 1") == 1
