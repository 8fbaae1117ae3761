"""The pipeline at a glance over HTTP: what the dashboard draws at its top."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from pydantic import BaseModel, Field

from pipeline import settings
from pipeline.api.access import Doors
from pipeline.api.caller import Asking
from pipeline.core.job import Stage
from pipeline.store import overview as store
from pipeline.store.engine import database

router = Doors(tags=["overview"])


class Flow(BaseModel):
    """One stage."""

    stage: Stage
    queue: str
    queued: int
    processing: int
    failed: int = Field(description="Jobs that failed here in the last hour.")


class Minute(BaseModel):
    """What ended in one minute; minutes in which nothing did are left out."""

    at: datetime
    completed: int
    failed: int
    cancelled: int


class Overview(BaseModel):
    """How the pipeline flows; a client sees its own part of it."""

    flow: list[Flow]
    minutes: list[Minute] = Field(description="The last hour, oldest first.")
    this_minute: datetime
    oldest_due_s: dict[str, float] = Field(description="For each queue, how long the oldest due job has been waiting.")
    flower_url: str | None = Field(description="Where Flower is, for those who run the fleet.")


@router.get("/api/overview", summary="The pipeline at a glance")
def overview(asking: Asking) -> Overview:
    told = asdict(store.overview(database(), asking.account))
    return Overview(**told, flower_url=settings.current().flower_url or None if asking.is_staff else None)
