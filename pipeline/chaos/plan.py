"""What breaks, and when? The seed decides, and nothing else: the same seed breaks the same things again.

Faults are dealt like cards: each kind once, in a random order, then all of them again. So even a short run meets every
kind that fits into it, and a long one meets their combinations.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of trouble: whom it meets, how long it lasts (seconds, from and to), and what it does."""

    name: str
    lane: str
    lasts_s: Span
    does: str


WORKER, BEAT, SUPERVISOR, BROKER = "worker", "beat", "supervisor", "broker"
POSTGRES, MESSAGES, DISK = "postgres", "messages", "disk"
AT_ONCE: Span = (0.0, 0.0)

FAULTS: tuple[Fault, ...] = (
    Fault("child", WORKER, AT_ONCE, "kill -9 of one pool process, of a busy one if there is one"),
    Fault("worker", WORKER, AT_ONCE, "kill -9 of a whole worker tree; the supervisor starts it again"),
    Fault("main", WORKER, AT_ONCE, "kill -9 of a worker's main process alone"),
    Fault("ghost", WORKER, (5.0, 8.0), "a worker tree is frozen for longer than its leases, then goes on"),
    Fault("beat", BEAT, AT_ONCE, "kill -9 of beat"),
    Fault("supervisor", SUPERVISOR, (0.2, 1.0), "kill -9 of whoever keeps workers and beat running; then a new one"),
    Fault("broker-restart", BROKER, AT_ONCE, "Redis is stopped and started"),
    Fault("broker-lost", BROKER, (0.2, 1.5), "kill -9 of Redis, and its data is gone when it comes back"),
    Fault("broker-flush", BROKER, AT_ONCE, "FLUSHALL"),
    Fault("broker-freeze", BROKER, (1.0, 4.0), "Redis holds its connections open and does not answer"),
    Fault("broker-reset", BROKER, AT_ONCE, "Redis drops every connection"),
    Fault("postgres-restart", POSTGRES, AT_ONCE, "fast shutdown of Postgres, and a new start"),
    Fault("postgres-crash", POSTGRES, (0.0, 1.5), "kill -9 of Postgres, then crash recovery"),
    Fault("postgres-reset", POSTGRES, AT_ONCE, "Postgres drops half of its connections"),
    Fault("duplicates", MESSAGES, AT_ONCE, "messages of jobs, also of finished ones, are sent once more"),
    Fault("disk", DISK, (1.0, 3.0), "not a byte is free on the scratch disk"),
)
BY_NAME = {fault.name: fault for fault in FAULTS}
JITTER: Span = (0.4, 1.6)


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault at one moment. `victim` is a worker's number, `pick` chooses among what is found there then."""

    at_s: float
    fault: str
    victim: int
    lasts_s: float
    pick: float

    @property
    def lane(self) -> str:
        lane = BY_NAME[self.fault].lane
        return f"{lane}{self.victim}" if lane == WORKER else lane


def schedule(
    seed: int, *, seconds: float, every_s: float, workers: int, faults: Sequence[str], lasts_s: float | None = None
) -> tuple[Strike, ...]:
    """Every strike of a run, the first one first; the last one is over when the time is.

    `lasts_s`: how long each one lasts that lasts at all, instead of a time of its own kind.
    """
    dice = random.Random(seed)  # noqa: S311 - it must be possible to repeat it
    strikes = []
    at_s = every_s * dice.uniform(*JITTER)
    for name in _dealt(dice, sorted(faults)):
        own = BY_NAME[name].lasts_s
        low, high = own if lasts_s is None or own == AT_ONCE else (lasts_s, lasts_s)
        strike = Strike(
            at_s=round(at_s, 3),
            fault=name,
            victim=dice.randrange(workers) + 1,
            lasts_s=round(dice.uniform(low, high), 3),
            pick=dice.random(),
        )
        if strike.at_s > seconds:
            break
        if strike.at_s + strike.lasts_s <= seconds:
            strikes.append(strike)
        at_s += every_s * dice.uniform(*JITTER)
    return tuple(strikes)


def _dealt(dice: random.Random, names: Sequence[str]) -> Iterator[str]:
    while names:
        yield from dice.sample(names, len(names))
