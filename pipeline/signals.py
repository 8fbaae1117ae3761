"""Who says that it is worth looking? Whoever moved a job, over Redis Pub/Sub, on the channels that dashboards know.

A signal is a hint, like a message: it may be lost, and nothing depends on it. Whoever waits looks by itself too. A
Redis that does not answer is left alone for a while, so that no job waits for it; a broker of another kind has no
channels, and then nobody is told.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pipeline import log, settings
from pipeline.core.job import Job

logger = log.get("signals")

PROGRESS = "transcode_progress:{}"
COMPLETE = "transcode_complete:{}"
WORKERS = "worker_status"
PATTERNS = ("transcode_progress:*", "transcode_complete:*", WORKERS)

PATIENCE_S = 0.5
REST_S = (1.0, 2.0, 5.0, 15.0, 30.0)  # after the first, second, ... failure in a row


class Sender:
    """Tells Redis, unless Redis has just failed."""

    def __init__(self, url: str) -> None:
        self._redis = _client(url, PATIENCE_S)
        self._failures = 0
        self._rests_until = 0.0

    def tell(self, channel: str, told: Mapping[str, Any]) -> bool:
        """Whether it was told."""
        if self._redis is None or time.monotonic() < self._rests_until:
            return False
        try:
            self._redis.publish(channel, json.dumps(told, default=str))
        except (redis.RedisError, OSError):
            self._rests_until = time.monotonic() + REST_S[min(self._failures, len(REST_S) - 1)]
            self._failures += 1
            return False
        self._failures = 0
        return True


def moved(job: Job) -> None:
    """A job is somewhere else now, or has ended."""
    channel = COMPLETE if job.is_final else PROGRESS
    _tell(channel.format(job.id), {"job_id": job.id, "status": job.status, "stage": job.stage})


def progressed(job: UUID, percent: float | None) -> None:
    """A job got on."""
    _tell(PROGRESS.format(job), {"job_id": job, "progress": percent})


def worker_is(worker: UUID, status: str) -> None:
    """A worker came, went, or changed."""
    _tell(WORKERS, {"worker_id": worker, "status": status})


def _tell(channel: str, told: Mapping[str, Any]) -> None:
    _sender(os.getpid(), settings.current().broker_url).tell(channel, told)


def is_reachable(url: str) -> bool | None:
    """Whether Redis answers; None if the broker is no Redis."""
    client = _client(url, PATIENCE_S)
    if client is None:
        return None
    try:
        return bool(client.ping())
    except (redis.RedisError, OSError):
        return False
    finally:
        client.close()


class Ear:
    """Calls `on_signal` whenever somebody tells something, from a thread of its own; goes on when Redis comes back."""

    def __init__(self, url: str, on_signal: Callable[[], None]) -> None:
        self._url = url
        self._on_signal = on_signal
        self._ends = threading.Event()
        self.hears = threading.Event()  # set while Redis is there
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()

    def _listen(self) -> None:
        failures = 0
        while not self._ends.is_set():
            client = _client(self._url, 5.0)
            if client is None:
                return
            try:
                with client.pubsub(ignore_subscribe_messages=True) as channels:  # type: ignore[no-untyped-call]
                    channels.psubscribe(*PATTERNS)
                    failures = 0
                    self._hear(channels)
            except (redis.RedisError, OSError) as exc:
                logger.warning("redis away", extra={"error": type(exc).__name__})
            finally:
                self.hears.clear()
                client.close()
            self._ends.wait(REST_S[min(failures, len(REST_S) - 1)])
            failures += 1

    def _hear(self, channels: Any) -> None:
        self.hears.set()
        self._on_signal()  # something may have been told while nobody heard
        while not self._ends.is_set():
            if channels.get_message(timeout=1.0) is not None:
                self._on_signal()


@lru_cache(maxsize=4)
def _sender(_pid: int, url: str) -> Sender:
    return Sender(url)


def _client(url: str, patience_s: float) -> redis.Redis | None:
    if not url.startswith(("redis://", "rediss://")):
        return None
    return redis.Redis.from_url(
        url, socket_timeout=patience_s, socket_connect_timeout=patience_s, retry=Retry(NoBackoff(), 0)
    )
