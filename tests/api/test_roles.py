"""May everybody do what the table says, and nothing else? Every route with every role, and without a key."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fastapi.routing import APIRoute

from pipeline.api.access import ROUTES, Access
from pipeline.store.keys import Role
from tests.api.conftest import ROOT, Api

ROLES: list[Role | None] = [*Role, None]

# What a route needs to be found; it need not succeed, only be let in or kept out.
VALUES = {
    "{job_id}": str(uuid4()),
    "{worker_id}": str(uuid4()),
    "{key}": "nobody",
    "{service}": "nonsense",
    "{endpoint_id}": str(uuid4()),
    "{delivery_id}": str(uuid4()),
    "{name}": "clip1-source",
    "{grant}": "1.nobody",
    "{path:path}": "g1/a.mp4",
}
BODIES: dict[str, Any] = {
    "POST /api/session": {"key": "wrong"},
    "POST /api/keys": {"role": "client"},
    "POST /api/credits": {"account": "nobody", "amount": 0, "reference": "none"},
    "POST /api/jobs": {},
    "POST /api/webhooks/endpoints": {"url": "nowhere"},
}
KEPT_OUT = {(401, "NOT_AUTHENTICATED"), (403, "FORBIDDEN")}


@pytest.fixture(scope="module")
def doors(api: Api) -> dict[Role | None, httpx.Client]:
    return {role: api.client(role) for role in ROLES}


def tried(http: httpx.Client, route: str) -> tuple[int, str]:
    method, _, path = route.partition(" ")
    for name, value in VALUES.items():
        path = path.replace(name, value)
    with http.stream(method, path, json=BODIES.get(route)) as answer:
        if answer.headers.get("content-type") != "application/json":
            return answer.status_code, ""  # a stream of events: it has begun, so it was let in
        answer.read()
        told = answer.json() if answer.content else None
    return answer.status_code, told.get("code", "") if isinstance(told, dict) else ""


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("route", ROUTES)
def test_a_route_lets_in_whom_the_table_names(
    doors: dict[Role | None, httpx.Client], route: str, role: Role | None
) -> None:
    access = ROUTES[route]

    answer = tried(doors[role], route)

    if role is None and not access.is_public:
        assert answer == (401, "NOT_AUTHENTICATED")
    elif role is not None and not access.is_public and role not in access.roles:
        assert answer == (403, "FORBIDDEN")
    else:
        assert answer not in KEPT_OUT or route == "POST /api/session"
        assert answer[0] < 500


def test_the_table_has_every_route_and_no_other(monkeypatch: pytest.MonkeyPatch, api: Api) -> None:
    from pipeline.api import app

    monkeypatch.setattr(app.engine, "answer_people", lambda *_: None)
    made = [route for router in app.ROUTERS for route in router.routes if isinstance(route, APIRoute)]

    served = {f"{method} {route.path}" for route in made for method in route.methods}

    assert served == set(ROUTES)


def test_a_route_that_is_not_in_the_table_cannot_be_added() -> None:
    from pipeline.api.access import Doors

    with pytest.raises(KeyError, match="GET /api/secret"):
        Doors().get("/api/secret")(lambda: None)


def test_the_documents_of_the_api_name_every_route_but_the_aliases(api: Api) -> None:
    with api.client(None) as http:
        told = http.get("/api/openapi.json").json()["paths"]

    documented = {f"{method.upper()} {path}" for path, methods in told.items() for method in methods}
    known = {route.replace("{path:path}", "{path}") for route in ROUTES if "pose-generator" not in route}
    assert documented == known


def test_the_page_on_http_says_who_may_use_each_route() -> None:
    page = (ROOT / "docs" / "reference" / "http.md").read_text()
    told = dict(re.findall(r"^\| `([A-Z]+ /\S*)` \| ([\w, ]+) \|", page, re.MULTILINE))

    def words(access: Access) -> str:
        if access.is_public:
            return "everybody"
        return "every key" if access.roles == set(Role) else ", ".join(role for role in Role if role in access.roles)

    assert told == {route.replace(":path", ""): words(access) for route, access in ROUTES.items()}
