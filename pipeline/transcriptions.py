"""How does a transcription that belongs to no job get its message? Like a job: a few at a time, the row first."""

from __future__ import annotations

from uuid import UUID

from pipeline import dispatch, log
from pipeline.core import window
from pipeline.core.errors import BrokerUnavailable
from pipeline.core.job import Stage
from pipeline.core.routing import MEDIA
from pipeline.core.window import Sight
from pipeline.settings import Settings
from pipeline.store import asr
from pipeline.store.engine import Database

logger = log.get("transcriptions")


def publish_older(db: Database, sight: Sight, now: Settings) -> int:
    """Where asr is limited, jobs and transcriptions share its places, and the oldest goes first: how many were sent."""
    if window.capacity(Stage.ASR, sight, now.shape()) is None or not asr.is_older(db):
        return 0
    return publish(db, sight, now)


def publish(db: Database, sight: Sight, now: Settings, only: UUID | None = None) -> int:
    """Send a message for each that is due, while there is room, or for that one; how many were sent.

    Without a broker the rows wait, and nobody gets an error.
    """
    size, room = window.window(MEDIA, sight, now.shape()), window.rooms_alone(sight, now.shape()).stages[Stage.ASR]
    taken = asr.take_due(db, size, room, only)
    for n, job in enumerate(taken):
        try:
            dispatch.start_transcription(job)
        except BrokerUnavailable:
            asr.unpublish(db, [left.id for left in taken[n:]])
            logger.warning("message not sent", extra={"job_id": str(job.id)})
            return n
    return len(taken)
