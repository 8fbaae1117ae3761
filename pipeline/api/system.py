"""The system itself over HTTP: health, figures, recovery, breakers, workers."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path as Folder
from typing import Annotated, Any
from uuid import UUID

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from pipeline import breakers, gauges, metrics, settings, signals, upkeep
from pipeline.api.access import Doors
from pipeline.api.caller import Asking
from pipeline.core.errors import IronclipError, NoSuchWorker
from pipeline.store import breakers as known_breakers
from pipeline.store import glance, listing, workers
from pipeline.store import upkeep as runs
from pipeline.store.engine import TROUBLE, database

router = Doors(tags=["system"])

Service = Annotated[str, Path(max_length=300, description="source:<host>, target:<name>, asr:<engine> or broker")]


# -- health and figures ----------------------------------------------------------------------------------------------


class Health(BaseModel):
    """Whether it makes sense to send work here."""

    status: str = Field(examples=["ok"], description="ok, degraded (no Redis, or nobody works) or down")
    database: bool
    redis: bool | None = Field(description="null: the broker is no Redis")
    active_workers: int | None
    pending_jobs: int | None


class Space(BaseModel):
    total_bytes: int
    free_bytes: int


class WholeHealth(BaseModel):
    storage: dict[str, Space | None]
    database: dict[str, Any]
    statistics: dict[str, Any]


@router.get("/health", summary="Is it well?", responses={503: {"model": Health}})
def health(request: Request, response: Response) -> Health:
    told: Health = request.app.state.health.get(None, _health)
    response.status_code = 200 if told.database else 503
    response.headers["Cache-Control"] = "no-store"
    return told


def _health() -> Health:
    now = settings.current()
    reachable = signals.is_reachable(now.broker_url)
    try:
        seen = glance.health(database(), timedelta(seconds=now.worker_offline_sec))
    except (IronclipError, *TROUBLE):
        return Health(status="down", database=False, redis=reachable, active_workers=None, pending_jobs=None)
    well = reachable is not False and seen["active_workers"] > 0
    return Health(status="ok" if well else "degraded", database=True, redis=reachable, **seen)


@router.get("/api/health", summary="Storage, database and what is being done")
def whole_health(request: Request) -> WholeHealth:
    now = settings.current()
    told: WholeHealth = request.app.state.health.get(
        "whole",
        lambda: WholeHealth(
            storage={"scratch": _space(now.scratch_dir), "output": _space(now.output_dir)},
            database={"ok": True, **glance.of_database(database())},
            statistics={
                **listing.stats(database(), None),
                **glance.health(database(), timedelta(seconds=now.worker_offline_sec)),
                "upkeep_age_s": runs.ages_s(database()),
            },
        ),
    )
    return told


def _space(folder: Folder) -> Space | None:
    there = next((each for each in (folder, *folder.absolute().parents) if each.exists()), None)
    if there is None:
        return None
    seen = shutil.disk_usage(there)
    return Space(total_bytes=seen.total, free_bytes=seen.free)


@router.get("/metrics", response_class=Response, summary="For Prometheus")
def prometheus() -> Response:
    return Response(gauges.exposition(), media_type=metrics.CONTENT_TYPE)


# -- recovery, with the field names that its users know --------------------------------------------------------------


class RecoveryStatus(BaseModel):
    stalledGenerations: int  # noqa: N815
    queuedGenerations: int  # noqa: N815
    processingGenerations: int  # noqa: N815
    lastRecoveryRun: datetime | None  # noqa: N815


class RecoveryDone(BaseModel):
    success: bool
    recovered: int
    failed: int


@router.get("/api/apps/pose-generator/recovery/status", include_in_schema=False)
@router.get("/api/recovery/status", summary="What is stuck, and when that was last looked at")
def recovery_status() -> RecoveryStatus:
    seen = glance.recovery(database(), timedelta(seconds=settings.current().stuck_after_sec))
    return RecoveryStatus(
        stalledGenerations=seen["stalled"],
        queuedGenerations=seen["queued"],
        processingGenerations=seen["processing"],
        lastRecoveryRun=seen["last_run"],
    )


@router.post("/api/apps/pose-generator/recovery/trigger", include_in_schema=False)
@router.post("/api/recovery/trigger", summary="Find what is stuck and send it on its way again")
def recover() -> RecoveryDone:
    done = upkeep.recover()
    return RecoveryDone(success=True, recovered=len(done.recovered), failed=len(done.failed))


# -- services --------------------------------------------------------------------------------------------------------


class Breaker(BaseModel):
    model_config = ConfigDict(extra="ignore")

    service: str
    state: str
    failures: int
    openings: int
    opens_at: datetime | None
    waiting: int = Field(description="Jobs that wait for it.")
    last_failure: str | None


class Breakers(BaseModel):
    breakers: list[Breaker]


class Tripped(BaseModel):
    service: str
    state: str
    until: datetime | None


class Reset(BaseModel):
    service: str
    state: str
    woken: int = Field(description="Jobs that waited for it and are due now.")


@router.get("/api/breakers", summary="Which services are given up, and until when")
def list_breakers() -> Breakers:
    return Breakers(breakers=[Breaker(**row) for row in known_breakers.shown(database())])


@router.post("/api/breakers/{service}/trip", summary="Let nobody ask a service for a while")
def trip(asking: Asking, service: Service) -> Tripped:
    after = breakers.trip(service, asking.name)
    return Tripped(service=service, state=after.state, until=after.opens_at)


@router.post("/api/breakers/{service}/reset", summary="Say that a service is up, and wake who waits for it")
def reset(asking: Asking, service: Service) -> Reset:
    return Reset(service=service, state="closed", woken=breakers.reset(service, asking.name))


# -- workers ---------------------------------------------------------------------------------------------------------


class Worker(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: UUID
    name: str
    hostname: str
    status: str
    queues: list[str]
    slots: int
    registered_at: datetime
    last_heartbeat: datetime | None
    last_consumed_at: datetime | None
    stopped_at: datetime | None
    paused: str | None
    silent_s: float | None


class Workers(BaseModel):
    workers: list[Worker]


class WorkerIs(BaseModel):
    id: UUID
    status: str


@router.get("/api/workers", summary="Who works here, the one heard from last first")
def list_workers(limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> Workers:
    return Workers(workers=[Worker(**row) for row in workers.newest(database(), limit)])


@router.post("/api/workers/{worker_id}/disable", summary="Take a worker out of service; what it runs, it finishes")
def disable(worker_id: UUID) -> WorkerIs:
    return _set(worker_id, disabled=True)


@router.post("/api/workers/{worker_id}/enable", summary="Let a worker work again")
def enable(worker_id: UUID) -> WorkerIs:
    return _set(worker_id, disabled=False)


def _set(worker: UUID, *, disabled: bool) -> WorkerIs:
    status = glance.disable(database(), worker, disabled=disabled)
    if status is None:
        raise NoSuchWorker(f"There is no worker {worker}.")
    signals.worker_is(worker, status)
    return WorkerIs(id=worker, status=status)
