"""Webhooks over HTTP: who is told, what was sent, and sending it again. An account has its own; operators see all."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from pipeline import endpoints as registry
from pipeline.api import cursor as cursors
from pipeline.api.access import Doors
from pipeline.api.caller import Asking
from pipeline.core.errors import Forbidden, NoSuchDelivery, NoSuchEndpoint, NotAllowedNow
from pipeline.core.request import NAME
from pipeline.store import endpoints
from pipeline.store.engine import database

router = Doors(tags=["webhooks"])

ID = "5d1f4c9a-7f2a-4b65-8a3e-52a4f1f2a0de"
DELIVERY = "0c0f3c51-8d43-4a52-9a07-6a7ce2ff0d37"
AT = "2026-11-18T13:05:49.121Z"


class Sent(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"  # given up


def _example(**told: Any) -> ConfigDict:
    return ConfigDict(extra="ignore", json_schema_extra={"example": told})


class NewEndpoint(BaseModel):
    """Where to send what."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"url": "https://ops.example.org/hook", "types": ["breaker_opened"]}},
    )

    url: str = Field(min_length=1, max_length=2000, description="http(s), without a password.")
    types: list[str] = Field(
        default=[], max_length=20, description="What it hears of; none: every alert, or the ends of the account's jobs."
    )
    account: str | None = Field(
        default=None,
        pattern=f"^{NAME.pattern}$",
        description="Only its jobs; a client's key says it already.",
    )


class Endpoint(BaseModel):
    """Somebody who is told."""

    model_config = _example(
        id=ID,
        url="https://ops.example.org/hook",
        types=["breaker_opened"],
        account_id=None,
        pending=0,
        created_at=AT,
    )

    id: UUID
    url: str = Field(description="Without its query, which may be secret.")
    types: list[str] = Field(description="Empty: every alert.")
    account_id: str | None
    pending: int = Field(description="Deliveries that are still to be sent.")
    created_at: datetime


class Endpoints(BaseModel):
    endpoints: list[Endpoint]


class MadeEndpoint(BaseModel):
    model_config = _example(id=ID, secret="8f6c" + "0" * 60)

    id: UUID
    secret: str = Field(description="Shown this once; the endpoint needs it to know that a webhook is ours.")


class Delivery(BaseModel):
    """One thing that was to be told to somebody. Neither what it says nor the whole address is shown."""

    model_config = _example(
        id=DELIVERY,
        endpoint_id=ID,
        type="job_completed",
        origin="https://shop.example.org",
        job_id=None,
        status="failed",
        attempt_count=8,
        last_status=500,
        last_error="HTTP 500",
        created_at=AT,
        next_attempt_at=AT,
        delivered_at=None,
    )

    id: UUID
    endpoint_id: UUID | None = Field(description="null: the address that a job's request named, or ALERT_WEBHOOK_URL")
    type: str
    origin: str = Field(description="Scheme and host; the path may be secret.")
    job_id: UUID | None
    status: Sent
    attempt_count: int
    last_status: int | None
    last_error: str | None
    created_at: datetime
    next_attempt_at: datetime
    delivered_at: datetime | None


class Deliveries(BaseModel):
    deliveries: list[Delivery]
    next: str | None = Field(description="Cursor of the next page; null: this was the last one.")


class Replayed(BaseModel):
    model_config = _example(id=DELIVERY, status="pending")

    id: UUID = Field(description="The same as before: whoever remembers it drops what it has had.")
    status: Sent


@router.get("/api/webhooks/endpoints", summary="Who is told of what")
def list_endpoints(asking: Asking) -> Endpoints:
    return Endpoints(endpoints=[Endpoint(**row) for row in registry.shown(database(), asking.account)])


@router.post("/api/webhooks/endpoints", status_code=201, summary="Tell somebody")
def add_endpoint(asking: Asking, wanted: NewEndpoint) -> MadeEndpoint:
    if asking.account is not None and wanted.account not in (None, asking.account):
        raise Forbidden("A client adds endpoints to its own account only.")
    asking.means(types=", ".join(wanted.types), account=wanted.account)
    made, secret = registry.add(database(), wanted.url, wanted.types, asking.account or wanted.account)
    return MadeEndpoint(id=made, secret=secret)


@router.delete("/api/webhooks/endpoints/{endpoint_id}", status_code=204, summary="Tell somebody nothing more")
def remove_endpoint(asking: Asking, endpoint_id: UUID) -> None:
    """What was still to be sent is given up; its history stays."""
    if not endpoints.remove(database(), endpoint_id, asking.account):
        raise NoSuchEndpoint(f"There is no endpoint {endpoint_id}.")


@router.get("/api/webhooks/deliveries", summary="What was sent, newest first")
def list_deliveries(
    asking: Asking,
    status: Sent | None = None,
    endpoint: UUID | None = None,
    job: UUID | None = None,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Deliveries:
    """Pages are stable: deliveries that come in meanwhile move nothing."""
    seen = None if cursor is None else cursors.read(cursor)
    rows = endpoints.history(
        database(), status=status, endpoint=endpoint, job=job, account=asking.account, seen=seen, limit=limit + 1
    )
    shown = [Delivery(**row) for row in rows[:limit]]
    return Deliveries(deliveries=shown, next=cursors.write(rows[limit - 1]) if len(rows) > limit else None)


@router.post("/api/webhooks/deliveries/{delivery_id}/replay", status_code=202, summary="Send a delivery again")
def replay(asking: Asking, delivery_id: UUID) -> Replayed:
    """Under the same id, with fresh tries."""
    if not endpoints.is_there(database(), delivery_id, asking.account):
        raise NoSuchDelivery(f"There is no delivery {delivery_id}.")
    if not endpoints.replay(database(), delivery=delivery_id):
        raise NotAllowedNow("It is being sent in this moment, or its endpoint was removed.")
    return Replayed(id=delivery_id, status=Sent.PENDING)
