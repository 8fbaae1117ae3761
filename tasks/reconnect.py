"""Why does a worker survive a restart of Redis with a task in flight?

With kombu 5.7 it does not, by itself: while the consumer clears away its broken connection, an unacknowledged message
makes the dead channel open a new client, and a channel whose connection is gone answers with an AttributeError. Celery
takes only connection errors for something to recover from, so the whole worker ends. Here the channel says what is
the matter: it has no connection. tests/cluster/test_broker_loss.py restarts Redis with a task in flight.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pipeline import log

logger = log.get("worker")

AFFECTED = ("5.7.",)  # kombu; looked at again with each new series


def install() -> None:
    """Mend the affected versions of kombu; leave every other one alone."""
    if not version("kombu").startswith(AFFECTED):
        logger.debug("reconnect shim not needed", extra={"kombu": version("kombu")})
        return
    try:
        from kombu.transport import redis as transport
        from redis.exceptions import ConnectionError as Disconnected
    except ImportError:
        return
    channel: Any = transport.Channel
    original = channel._connparams
    if getattr(original, "is_mended", False):
        return

    def _connparams(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.connection is None or self.connection.client is None:
            raise Disconnected("the connection of this channel is gone")
        return original(self, *args, **kwargs)

    _connparams.is_mended = True  # type: ignore[attr-defined]
    channel._connparams = _connparams
