"""What does a caller get while Postgres is blocked, frozen or away? An answer, soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import text

from pipeline.embedded import Services
from pipeline.store.engine import Database
from tests.api.conftest import Api
from tests.cluster.system import wait_for

PATIENCE_S = 30  # of a caller; only whoever hangs needs more


@pytest.fixture(scope="module")
def hasty(make_api: Callable[..., Api]) -> Api:
    return make_api(API_TIMEOUT_SEC="1")


def is_busy(answer: httpx.Response) -> bool:
    told = answer.json()
    return (
        answer.status_code == 503
        and int(answer.headers["retry-after"]) >= 1
        and told["code"] in ("DATABASE_BUSY", "DATABASE_UNAVAILABLE")
        and told["request_id"] == answer.headers["x-request-id"]
    )


def test_a_locked_table_gives_503_and_a_time_to_come_again(hasty: Api) -> None:
    locker = Database(hasty.env["DATABASE_URL"])
    with hasty.client(
        "admin",
    ) as http:
        with locker.transaction() as conn:
            conn.execute(text("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"))
            blocked = [http.get("/api/jobs"), http.get("/api/recovery/status")]
        after = http.get("/api/jobs")
    locker.dispose()

    assert all(map(is_busy, blocked))
    assert after.status_code == 200


def test_a_frozen_postgres_hangs_nobody_however_many_ask(hasty: Api, services: Services) -> None:
    with hasty.client("admin") as http, ThreadPoolExecutor(60) as crowd:
        key = dict(http.headers)
        http.get("/api/jobs")
        services.postgres.pause()
        try:
            began = time.monotonic()
            asked = [
                crowd.submit(httpx.get, f"{hasty.url}/api/jobs", headers=key, timeout=PATIENCE_S) for _ in range(60)
            ]
            answers = [each.result() for each in asked]
            health = httpx.get(f"{hasty.url}/health", timeout=PATIENCE_S)
            took_s = time.monotonic() - began
        finally:
            services.postgres.resume()
        again = wait_for("Postgres to answer", lambda: http.get("/api/jobs").status_code == 200)

    assert all(map(is_busy, answers))
    assert health.status_code == 503
    assert took_s < PATIENCE_S
    assert again


def test_a_postgres_that_is_gone_gives_503_and_comes_back(hasty: Api, services: Services) -> None:
    with hasty.client("admin") as http:
        http.get("/api/jobs")
        services.postgres.stop()
        try:
            gone = http.get("/api/jobs")
            wait_for("it to notice", lambda: http.get("/health").status_code == 503)
            health = http.get("/health")
        finally:
            services.postgres.start()
        again = wait_for("Postgres to answer", lambda: http.get("/api/jobs").status_code == 200)

    assert is_busy(gone)
    assert (health.status_code, health.json()["database"]) == (503, False)
    assert again


def test_a_body_that_is_too_large_is_refused_whatever_its_headers_say(hasty: Api) -> None:
    def endless():
        while True:
            yield b"x" * 65536

    with hasty.client("operator") as http:
        told = http.post("/api/jobs", content=b"x" * 2_000_000)
        try:
            untold = http.post("/api/jobs", content=endless()).status_code
        except httpx.HTTPError:
            untold = 413  # it hung up on us before we had sent it all

    assert (told.status_code, told.json()["code"]) == (413, "BODY_TOO_LARGE")
    assert untold == 413


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/api/jobs", b"{", 400, "MALFORMED"),
        ("POST", "/api/jobs", b"[]", 422, "INVALID_REQUEST"),
        ("GET", "/api/nothing", None, 404, "NOT_FOUND"),
        ("PUT", "/api/jobs", None, 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/api/jobs?limit=0", None, 422, "INVALID_REQUEST"),
        ("GET", "/api/jobs?cursor=%F0", None, 422, "BAD_CURSOR"),
        ("GET", "/api/jobs/nonsense", None, 422, "INVALID_REQUEST"),
    ],
)
def test_every_error_has_the_same_envelope(
    api: Api, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    with api.client("operator") as http:
        answer = http.request(method, path, content=body, headers={"Content-Type": "application/json"})

    told = answer.json()
    assert (answer.status_code, told["code"]) == (status, code)
    assert set(told) == {"code", "message", "detail", "request_id"}
    assert told["request_id"] == answer.headers["x-request-id"]
