"""How is the application served? By uvicorn, on one address, with its log as JSON."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable

import uvicorn

from pipeline import log, settings
from pipeline.api.app import create
from pipeline.core.errors import SettingInvalid

DRAIN_S = 5


def serve(host: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C. Port 0 takes a free one; `on_ready` hears the address."""
    settings.current().need("database_url")
    log.set_up(settings.current().log_level)
    config = uvicorn.Config(
        create(),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_S,
    )
    # uvicorn drains on SIGTERM and then hands the signal on: to us, to end well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _Server(config, on_ready).run(sockets=[_bound(host, port)])


class _Server(uvicorn.Server):
    """Tells when it listens, and lets those who watch events go before it waits for everybody to finish."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if sockets and self.started:
            name, port = sockets[0].getsockname()[:2]
            self._on_ready(f"http://{f'[{name}]' if ':' in name else name}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.hub.close()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def _bound(host: str, port: int) -> socket.socket:
    """A socket at this address, or SettingInvalid."""
    door = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((host, port))
    except OSError as exc:
        door.close()
        raise SettingInvalid(f"Nobody can listen on {host}, port {port}: {exc.strerror}.") from exc
    return door
