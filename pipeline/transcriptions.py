"""How does a transcription that belongs to no job get its message? Like a job: a few at a time, the row first."""

from __future__ import annotations

from uuid import UUID

from pipeline import dispatch, log
from pipeline.core import window
from pipeline.core.errors import BrokerUnavailable
from pipeline.core.routing import MEDIA
from pipeline.core.window import Sight
from pipeline.settings import Settings
from pipeline.store import asr
from pipeline.store.engine import Database

logger = log.get("transcriptions")


def publish(db: Database, sight: Sight, now: Settings, only: UUID | None = None) -> int:
    """Send a message for each that is due, while there is room, or for that one; how many were sent.

    Without a broker the rows wait, and nobody gets an error.
    """
    room = window.window(MEDIA, sight, now.shape())
    taken = asr.take_due(db, room, only)
    for n, job in enumerate(taken):
        try:
            dispatch.start_transcription(job)
        except BrokerUnavailable:
            asr.unpublish(db, [left.id for left in taken[n:]])
            logger.warning("message not sent", extra={"job_id": str(job.id)})
            return n
    return len(taken)
