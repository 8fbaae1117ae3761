"""Who may do what? One table, read by the code that lets people in and by the test that tries every door.

A route that is not in the table cannot be added: see `Doors`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Depends

from pipeline.api.caller import admit
from pipeline.store.keys import Role


@dataclass(frozen=True)
class Access:
    """Who may use a route; no role at all: everybody, without a key. `slow`: API_TIMEOUT_SEC does not bound it."""

    roles: frozenset[Role]
    slow: bool = False

    @property
    def is_public(self) -> bool:
        return not self.roles


PUBLIC = Access(frozenset())
PEOPLE = Access(frozenset({Role.CLIENT, Role.OPERATOR, Role.ADMIN}))
STAFF = Access(frozenset({Role.OPERATOR, Role.ADMIN}))
ADMIN = Access(frozenset({Role.ADMIN}))
ANYBODY = Access(frozenset(Role))
PEOPLE_SLOWLY = Access(PEOPLE.roles, slow=True)
ADMIN_SLOWLY = Access(ADMIN.roles, slow=True)

ROUTES: dict[str, Access] = {
    "GET /health": PUBLIC,
    "GET /api/health": STAFF,
    "GET /metrics": STAFF,
    "GET /api/overview": PEOPLE,
    "POST /api/session": PUBLIC,
    "GET /api/session": ANYBODY,
    "DELETE /api/session": ANYBODY,
    "GET /api/jobs": PEOPLE,
    "POST /api/jobs": PEOPLE,
    "GET /api/jobs/{job_id}": PEOPLE,
    "POST /api/jobs/{job_id}/cancel": PEOPLE,
    "POST /api/jobs/{job_id}/requeue": STAFF,
    "POST /api/jobs/{job_id}/rerender": PEOPLE,
    "GET /api/jobs/{job_id}/events": PEOPLE,
    "GET /api/jobs/{job_id}/outputs/{name}/newest": PEOPLE,
    "GET /api/files/{grant}/{job_id}/{path:path}": PUBLIC,  # the link itself is the credential
    "GET /api/events": PEOPLE,
    "POST /api/sources": PEOPLE_SLOWLY,
    "GET /api/recovery/status": ADMIN,
    "POST /api/recovery/trigger": ADMIN_SLOWLY,
    "GET /api/apps/pose-generator/recovery/status": ADMIN,
    "POST /api/apps/pose-generator/recovery/trigger": ADMIN_SLOWLY,
    "GET /api/breakers": STAFF,
    "POST /api/breakers/{service}/trip": STAFF,
    "POST /api/breakers/{service}/reset": STAFF,
    "GET /api/workers": STAFF,
    "POST /api/workers/{worker_id}/disable": STAFF,
    "POST /api/workers/{worker_id}/enable": STAFF,
    "GET /api/credits": PEOPLE,
    "POST /api/credits": ADMIN,
    "GET /api/webhooks/endpoints": PEOPLE,
    "POST /api/webhooks/endpoints": PEOPLE,
    "DELETE /api/webhooks/endpoints/{endpoint_id}": PEOPLE,
    "GET /api/webhooks/deliveries": PEOPLE,
    "POST /api/webhooks/deliveries/{delivery_id}/replay": PEOPLE,
    "GET /api/keys": ADMIN,
    "POST /api/keys": ADMIN,
    "DELETE /api/keys/{key}": ADMIN,
    "GET /api/audit": ADMIN,
}


class Doors(APIRouter):
    """A router whose routes ask for the roles that the table gives them; KeyError for one that is not in it."""

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        for method in options["methods"]:
            access = ROUTES[f"{method} {path}"]
            guard = [] if access.is_public else [Depends(admit(access.roles))]
            super().add_api_route(path, endpoint, **{**options, "dependencies": guard})
