"""Put one file at the target `there`; at the given call of check(), say "waiting" and wait for a line on stdin."""

import sys
from pathlib import Path

from pipeline import delivery
from pipeline.core.errors import LeaseLost
from pipeline.settings import Settings

path, key, sha256, wait_at, then = sys.argv[1:]
calls = 0


def wait() -> None:
    print("waiting", flush=True)
    sys.stdin.readline()


def check() -> None:
    global calls
    calls += 1
    if calls == int(wait_at):
        wait()
        if then == "lease lost":
            raise LeaseLost


target = delivery.load(Settings())["there"]
if wait_at == "0":
    wait()
try:
    print(target.put(Path(path), key, sha256, check=check).sha256)
except LeaseLost:
    print("lease lost")
