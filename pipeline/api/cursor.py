"""Where does the next page begin? A cursor says it: opaque to others, the place of the last row to us."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any
from uuid import UUID

from pipeline.core.errors import BadRequest


def write(row: dict[str, Any]) -> str:
    """The place of this job."""
    return base64.urlsafe_b64encode(f"{row['created_at'].isoformat()} {row['id']}".encode()).decode().rstrip("=")


def read(cursor: str) -> tuple[datetime, UUID]:
    """The place that a cursor stands for."""
    try:
        told = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        at, _, job = told.partition(" ")
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            raise ValueError("no time zone")
        return moment, UUID(job)
    except ValueError:
        raise BadRequest("BAD_CURSOR", "This cursor was not made by us.", field="cursor") from None
