"""sweep: whatever is due gets a message, while its queue has room.

A row that was published and never claimed is either in a backlog or has lost its message. Numbered markers tell: they
go through the same queues, and when one comes back, everything that was sent before it has been delivered. What nobody
claimed then is lost, and waits again. A marker goes ahead of what is published with it, so when it comes back there is
still something left in the queue, and the worker that got it sweeps at once: a long backlog never waits for the clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from pipeline import breakers, crashpoints, dispatch, log, settings, transcriptions
from pipeline.core import window
from pipeline.core.errors import BrokerUnavailable
from pipeline.core.job import Job, Stage
from pipeline.core.routing import MEDIA, ON_GPU, QUEUE_OF
from pipeline.core.window import Rooms, Sight
from pipeline.crashpoints import At
from pipeline.settings import Settings
from pipeline.store import asr, due, gpu, workers
from pipeline.store.due import Marker
from pipeline.store.engine import Database, database
from pipeline.upkeep.alone import alone

logger = log.get("sweep")


@dataclass(frozen=True)
class Swept:
    """What sweep did."""

    published: int = 0
    lost: int = 0


def sweep() -> Swept:
    """Publish a fresh chain for every row that is due and has no message on its way, while there is room."""
    return alone("sweep", _sweep, Swept())


def marker_came_back(queue: str, number: int, sent_at: str, worker: UUID) -> Swept:
    """A worker got a marker: note it, and fill the queue again before it runs dry."""
    db = database()
    due.marker_seen(db, queue, number, sent_at, _grace(settings.current()))
    workers.consumed(db, worker)
    with due.in_turn(db) as mine:
        return _sweep(db) if mine else Swept()


def _sweep(db: Database) -> Swept:
    now = settings.current()
    sight = _look(db, now)
    markers = due.markers(db, _grace(now))
    lost = [*due.unpublish_lost(db, _grace(now)), *asr.unpublish_lost(db, _grace(now))]
    gpu.take_back(db, now.silence().fresh)
    missed: set[str] = set()
    for queue, marker in markers.items():
        if not sight.slots(queue) or not _is_late(marker, now):
            continue
        asked_at = due.now(db)
        if dispatch.is_empty(queue):  # the broker lost the marker, and with it all that was sent before
            missed.add(queue)
            due.forget_markers(db, queue)
            lost += due.unpublish_all(db, queue, asked_at - _grace(now))
            lost += asr.unpublish_all(db, asked_at - _grace(now)) if queue == MEDIA else []
        elif _is_missed(marker, now):
            missed.add(queue)
    if lost:
        logger.warning("messages lost", extra={"jobs": len(lost)})
        sight = _look(db, now)
    published = transcriptions.publish_older(db, sight, now)
    if published:
        sight = _look(db, now)
    rooms = window.rooms(sight, now.shape())
    taken = _to_gpu(db, due.take_due(db, rooms, now.sweep_batch, timedelta(seconds=now.ageing_sec)), sight.idle_gpu)
    for queue, marker in markers.items():
        if queue in missed or (sight.slots(queue) and _wants_marker(marker, sight, rooms, taken, now)):
            _mark(db, queue)
    published += _publish(db, taken)
    asr_taken = any(job.stage is Stage.ASR for job in taken)
    published += transcriptions.publish(db, _look(db, now) if asr_taken else sight, now)
    if published and sight.broker_is_away:
        breakers.broker_is_back(db)
    return Swept(published, len(lost))


def _to_gpu(db: Database, taken: Sequence[Job], slots: int) -> list[Job]:
    """The first that may go to a GPU worker go there, as many as have nothing to do."""
    chosen = [job for job in taken if job.stage in ON_GPU and job.queue is None][:slots]
    sent = {job.id: job for job in gpu.send(db, chosen)} if chosen else {}
    return [sent.get(job.id, job) for job in taken]


def _look(db: Database, now: Settings) -> Sight:
    return due.sight(db, now.silence())


def _grace(now: Settings) -> timedelta:
    return timedelta(seconds=now.marker_grace_sec)


def _is_late(marker: Marker, now: Settings) -> bool:
    """Whether it is time to ask the broker for it."""
    return marker.unanswered > 0 and marker.sent_s > now.republish_sec


def _is_missed(marker: Marker, now: Settings) -> bool:
    """Whether another one is sent: each is waited for twice as long as the one before, so that none pile up."""
    return marker.sent_s > now.republish_sec * (1 << min(marker.unanswered - 1, 10))


def _wants_marker(marker: Marker, sight: Sight, rooms: Rooms, taken: Sequence[Job], now: Settings) -> bool:
    """Whether something must be told from a backlog, or somebody must be woken when there is room again."""
    if marker.unanswered:
        return False
    here = Counter(QUEUE_OF[job.stage] for job in taken)[marker.queue]
    is_full = here > 0 and (here == rooms.queues[marker.queue] or len(taken) == now.sweep_batch)
    # Whoever waits for another queue may do so because of this one. If the last marker came back after all that is on
    # its way was sent, another one would come back at once and prove nothing: then time tells whether that was lost.
    was_full = bool(sight.waiting) and rooms.queues[marker.queue] == 0 and marker.is_useful
    return marker.is_needed or is_full or was_full


def _mark(db: Database, queue: str) -> None:
    try:
        dispatch.mark(queue, *due.next_marker(db, queue))
    except BrokerUnavailable:
        due.forget_markers(db, queue)


def _publish(db: Database, taken: Sequence[Job]) -> int:
    for n, job in enumerate(taken):
        crashpoints.reached(At.SWEEP_MARKED)
        try:
            dispatch.start(job)
            crashpoints.reached(At.SWEEP_SENT)
        except BrokerUnavailable as exc:
            # Those that were not sent, and this one that perhaps was: the next sweep tries again.
            due.unpublish(db, [left.id for left in taken[n:]])
            breakers.broker_failed(db, uuid4(), exc.message)  # once for each sweep, whoever is first in line
            logger.warning("broker away", extra={"waiting": len(taken) - n})
            return n
    return len(taken)
