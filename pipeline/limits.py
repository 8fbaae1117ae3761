"""How many of a stage may run at once?

In one worker: each place is a byte of a file without a name that its processes share. Whoever locks the byte has the
place; the kernel gives it back however its holder ends, so nothing is left to clear away after a crash. Made for pool
processes: a process that runs several stages at once (threads) does not lock itself out.

In the whole fleet: sweep alone publishes such a stage, and counts. So a job that comes to one is handed back to sweep.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar
from uuid import UUID

from pipeline import dispatch, settings
from pipeline.core.job import Stage
from pipeline.core.routing import GPU
from pipeline.store import due, gpu, workers
from pipeline.store.engine import database
from pipeline.store.jobs import Table

T = TypeVar("T")

SPAN = 4096  # bytes of each stage: its places, and last of all the note that there are fewer of them than slots
ASK_AGAIN_S = 5.0


class Gpu(NamedTuple):
    there: bool
    asked_again_at: float


_gpu = Gpu(False, 0.0)
_file = tempfile.TemporaryFile()  # noqa: SIM115 - opened before the pool is forked, closed with the worker


def in_turn(stage: Stage, job_id: UUID, run: Callable[[], T], table: Table = Table.JOBS) -> T | None:
    """What `run` answers; None if this worker may run no more of the stage now: then the job waits for a message again.

    A message for a stage that the job has left, or not reached, needs no place: the row refuses it.
    """
    shape = settings.current().shape()
    with place(stage, shape.per_worker.get(stage)) as ours:
        if not ours and due.put_back(database(), job_id, stage, table):
            return None
        answer = run()
    if stage in shape.fleet or _is_narrow(stage):
        dispatch.nudge()
    return answer


def left_to_sweep(job_id: UUID) -> bool:
    """Whether only sweep may publish the job: the whole fleet is limited in its stage, or a GPU worker is idle."""
    db, now = database(), settings.current()
    kept = any(due.put_back(db, job_id, stage) for stage in now.shape().fleet)
    if not kept and not (_has_gpu() and gpu.keep(db, job_id, now.silence().fresh)):
        return False
    dispatch.nudge()
    return True


def _has_gpu() -> bool:
    """Whether the fleet has GPU workers at all. They do not come and go by the second, so it is asked now and then."""
    global _gpu
    if time.monotonic() > _gpu.asked_again_at:
        _gpu = Gpu(workers.serve(database(), GPU), time.monotonic() + ASK_AGAIN_S)
    return _gpu.there


@contextmanager
def place(stage: Stage, most: int | None) -> Iterator[bool]:
    """Whether one of the worker's places for this stage is ours until the block ends. None: there is no limit."""
    if most is None:
        yield True
        return
    ours = next((n for n in _places(stage, most) if _lock(n)), None)
    try:
        yield ours is not None
    finally:
        if ours is not None:
            fcntl.lockf(_file, fcntl.LOCK_UN, 1, ours)


def tell_slots(slots: int) -> None:
    """Note which stages this worker has fewer places for than slots: whoever leaves one makes room for a message."""
    for stage, most in settings.current().shape().per_worker.items():
        os.pwrite(_file.fileno(), b"\1" if most < slots else b"\0", _note(stage))


def _is_narrow(stage: Stage) -> bool:
    return os.pread(_file.fileno(), 1, _note(stage)) == b"\1"


def _places(stage: Stage, most: int) -> range:
    first = list(Stage).index(stage) * SPAN
    return range(first, first + min(most, SPAN - 1))


def _note(stage: Stage) -> int:
    return list(Stage).index(stage) * SPAN + SPAN - 1


def _lock(byte: int) -> bool:
    try:
        fcntl.lockf(_file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except OSError:
        return False
    return True
