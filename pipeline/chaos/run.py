"""How does a chaos run go? Servers and workers of its own, jobs, faults by plan; then quiet, and the count.

Everything lives below one folder that is thrown away, and ends with this process. When the time is up the faults stop,
and whatever is left must come to its end by itself: nobody is helped.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from redis import RedisError

from pipeline import doctor, embedded, intake, processes, settings
from pipeline.chaos import checker, disk, faults, plan
from pipeline.chaos.checker import Violation
from pipeline.chaos.faults import Ground
from pipeline.chaos.history import (
    Attempt,
    Effect,
    Entry,
    EventRow,
    History,
    Incarnation,
    JobRow,
    OutputRow,
    Record,
    Struck,
)
from pipeline.chaos.keeper import Keeper
from pipeline.chaos.plan import Strike
from pipeline.chaos.stage import FAKE, NOTES, Notes
from pipeline.core.errors import DatabaseUnavailable, IronclipError
from pipeline.embedded import Services
from pipeline.media.sample import make_sample
from pipeline.store import chaos as store
from pipeline.store import workers as registry
from pipeline.store.engine import database

# Whatever takes minutes in production takes seconds here. A lease outlives several missed beats, as it does there.
SMALL = {
    "DEFAULT_LEASE_SEC": "4",
    "HEARTBEAT_SEC": "1",
    "PULSE_SEC": "0.3",
    "REAPER_INTERVAL_SEC": "1",
    "DATABASE_GRACE_SEC": "1",
    "SWEEP_INTERVAL_SEC": "1",
    "REPUBLISH_SEC": "3",
    "MARKER_GRACE_SEC": "1",
    "SHUTDOWN_GRACE_SEC": "1",
    "JOB_RETRY_BACKOFF_MS_BASE": "100",
    "JOB_RETRY_BACKOFF_MS_MAX": "500",
    "ASR_THREADS": "1",
}
PATIENT = {"JOB_MAX_ATTEMPTS": "50", "MIN_FREE_DISK_BYTES": str(4 * 1024**2)}  # a stage is not to blame here
ACCOUNTS = ("ann", "bob", "cid")
CREDITS = 1_000_000
FEED_SHARE = 0.9  # of the time: the last jobs come while there is still trouble
START_PATIENCE_S = 90.0
STILL_PATIENCE_S = 120.0  # nothing has moved for so long: it is stuck
PAUSE_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to run."""

    jobs: int = 500
    real: int = 3
    seconds: float = 60.0
    seed: int = 1
    every_s: float = 3.0
    lasts_s: float | None = None
    workers: int = 3
    slots: int = 2
    faults: tuple[str, ...] = tuple(plan.BY_NAME)
    keep: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it."""

    options: Options
    strikes: tuple[Strike, ...]
    skipped: Mapping[str, str]  # faults that could not be tried here, and why
    began_at: datetime
    quiet_at: datetime  # the faults were over
    ended_at: datetime
    struck: tuple[Struck, ...]
    history: History
    violations: list[Violation]
    notes: Mapping[str, int] = field(default_factory=dict)
    home: str | None = None  # where it can be looked at, if it was kept


Tell = Callable[[str], None]


def run(options: Options, tell: Tell) -> Outcome:
    """Do it all. Call it from a process that does nothing else: it is pointed at servers that will be gone."""
    with _home(options) as home:
        skipped = {}
        if "disk" in options.faults and (why_not := disk.mount(home / "scratch")):
            skipped["disk"] = why_not
        strikes = plan.schedule(
            options.seed,
            seconds=options.seconds,
            every_s=options.every_s,
            workers=options.workers,
            faults=[name for name in options.faults if name not in skipped],
            lasts_s=options.lasts_s,
        )
        tell(f"seed {options.seed}: {len(strikes)} faults in {options.seconds:g} s, {options.jobs} jobs")
        with embedded.services(home) as services, _ground(services, options) as ground:
            return _Run(options, ground, strikes, skipped, tell).play()


@contextmanager
def _home(options: Options) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="ironclip-chaos-"))
    try:
        yield home
    finally:
        disk.unmount(home / "scratch")
        if not options.keep:
            shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _ground(services: Services, options: Options) -> Iterator[Ground]:
    """Workers and beat that are ready, on servers with tables and accounts."""
    # Only here: loading Alembic takes longer than most commands.
    from pipeline.store import migrate

    home = services.home
    notes = Notes(home / "notes")
    notes.make()
    own = {"OUTPUT_DIR": str(home / "output"), "SCRATCH_DIR": str(home / "scratch"), NOTES: str(notes.folder)}
    env = {**services.env(), **SMALL, **PATIENT, **own}
    os.environ.update(env)
    settings.current.cache_clear()
    migrate.upgrade(services.database_url)
    db = database()
    for account in ACCOUNTS:
        store.grant(db, account, CREDITS)
    keeper = Keeper(home, env, options.workers, options.slots)
    ground = Ground(services, keeper, notes, home / "scratch", db, store.now(db), time.monotonic())
    try:
        keeper.start()
        if not processes.wait_until(lambda: len(registry.newest(db)) >= options.workers, START_PATIENCE_S):
            raise IronclipError(f"The workers did not start; their logs are in {home / 'log'}.")
        yield ground
    finally:
        ground.over.set()
        keeper.stop()
        db.dispose()


class _Run:
    """One run on ground that is ready."""

    def __init__(
        self, options: Options, ground: Ground, strikes: tuple[Strike, ...], skipped: Mapping[str, str], tell: Tell
    ) -> None:
        self.options, self.ground, self.strikes, self.skipped, self.tell = options, ground, strikes, skipped, tell
        self.troubles: list[Violation] = []
        self.struck: list[Struck] = []

    def play(self) -> Outcome:
        requests = _requests(self.options, self.ground.services.home)
        began, began_at = time.monotonic(), self.ground.now()
        with ThreadPoolExecutor(24, thread_name_prefix="chaos") as pool:
            try:
                feeder = pool.submit(self._feed, requests, began)
                hits = [self._begin(strike, began, pool) for strike in self.strikes]
                self.struck = [hit.result() for hit in hits]
                feeder.result()
            finally:
                self.ground.over.set()
        quiet_at = self.ground.now()
        self.tell(f"{quiet_at.timestamp() - began_at.timestamp():6.1f} s  quiet: what is left must end by itself")
        self._drain()
        ended_at = self.ground.now()
        broken = doctor.examine(self.ground.db, deep=True)
        self.ground.keeper.stop()
        history = gather(self.ground)
        return Outcome(
            options=self.options,
            strikes=self.strikes,
            skipped=self.skipped,
            began_at=began_at,
            quiet_at=quiet_at,
            ended_at=ended_at,
            struck=tuple(self.struck),
            history=history,
            violations=[*checker.check(history), *self.troubles, *_of_doctor(broken)],
            notes=_leftovers(self.ground.services.home),
            home=str(self.ground.services.home) if self.options.keep else None,
        )

    # -- jobs --------------------------------------------------------------------------------------------------------

    def _feed(self, requests: list[tuple[UUID, dict[str, Any]]], began: float) -> None:
        """Hand the jobs in, evenly; whoever cannot be written down now is asked for again, as a web app would."""
        span = self.options.seconds * FEED_SHARE
        for n, (job_id, request) in enumerate(requests):
            _wait_until(self.ground, began + span * n / len(requests))
            while not self.ground.over.is_set() and not self._handed_in(job_id, request):
                self.ground.wait(PAUSE_S)
            if self.ground.over.is_set():
                return
            self.ground.submitted.append(job_id)

    def _handed_in(self, job_id: UUID, request: dict[str, Any]) -> bool:
        try:
            intake.enqueue(request, job_id=job_id)
        except DatabaseUnavailable:
            return False
        return True

    def _drain(self) -> None:
        """Until every job has ended, or nothing moves any more."""
        seen, since = None, time.monotonic()
        while time.monotonic() - since < STILL_PATIENCE_S:
            now = store.progress(self.ground.db)
            if now[0] == self.options.jobs:
                return
            if now != seen:
                seen, since = now, time.monotonic()
            time.sleep(PAUSE_S)

    # -- faults ------------------------------------------------------------------------------------------------------

    def _begin(self, strike: Strike, began: float, pool: ThreadPoolExecutor) -> Future[Struck]:
        _wait_until(self.ground, began + strike.at_s)
        return pool.submit(self._strike, strike)

    def _strike(self, strike: Strike) -> Struck:
        """What came of it. One server is broken in one way at a time; everything else happens at once."""
        asked_at = self.ground.now()
        try:
            with self.ground.turns[strike.lane]:
                hit = faults.BY_NAME[strike.fault].strike(self.ground, strike)
        except (IronclipError, RedisError, OSError) as exc:  # it met another fault: told, and the run goes on
            self.tell(f"{strike.at_s:6.1f} s  {strike.fault}: {type(exc).__name__}: {exc}".rstrip())
            return Struck(
                strike=strike, began_at=asked_at, ended_at=self.ground.now(), what="", error=type(exc).__name__
            )
        self.tell(f"{strike.at_s:6.1f} s  {strike.fault:<17} {strike.lane:<11} {hit.what}")
        return Struck(
            strike=strike,
            began_at=hit.at,
            ended_at=self.ground.now(),
            what=hit.what,
            pids=hit.pids,
            fence=hit.fence,
        )


def _requests(options: Options, home: Path) -> list[tuple[UUID, dict[str, Any]]]:
    """Every job with its id; the real ones among the fake ones, not at the very beginning or end."""
    dice = random.Random(options.seed)  # noqa: S311 - it must be possible to repeat it
    fake = home / f"source{FAKE}"
    fake.write_bytes(b"never looked at")
    film = make_sample(home / "sample.mp4", seconds=12, size="640x360") if options.real else fake
    step = max(1, options.jobs // (options.real + 1))
    found = []
    for n in range(options.jobs):
        is_real = options.real > 0 and n % step == step - 1 and n // step < options.real
        clip = {"name": "clip", "start": 1.3, "end": 7.1} if is_real else {"name": "clip", "start": 0, "end": 1}
        request = {"source": str(film if is_real else fake), "clips": [clip], "account": ACCOUNTS[n % len(ACCOUNTS)]}
        found.append((UUID(int=dice.getrandbits(128), version=4), request))
    return found


def _wait_until(ground: Ground, moment: float) -> None:
    ground.wait(max(0.0, moment - time.monotonic()))


# -- afterwards ------------------------------------------------------------------------------------------------------


def gather(ground: Ground) -> History:
    """Everything that the checker looks at."""
    rows, output = store.history(ground.db), ground.services.home / "output"
    return History(
        submitted=tuple(str(job) for job in ground.submitted),
        jobs=tuple(
            JobRow(**row | {"plan": tuple(row["plan"]), "manifests": _keys(row["manifests"], output)})
            for row in rows["jobs"]
        ),
        events=tuple(EventRow(**row) for row in rows["events"]),
        attempts=tuple(Attempt(**row) for row in rows["attempts"]),
        effects=_effects(ground.notes),
        records=tuple(Record(**row) for row in rows["records"]),
        outputs=tuple(
            OutputRow(**row | {"files": tuple((file["key"], file["sha256"]) for file in row["files"])})
            for row in rows["outputs"]
        ),
        entries=tuple(Entry(**row) for row in rows["entries"]),
        objects=_objects(output),
        granted=dict.fromkeys(ACCOUNTS, CREDITS),
        balances={row["account"]: row["balance"] for row in rows["balances"]},
        workers=tuple(Incarnation(**row) for row in rows["workers"]),
    )


def _keys(urls: Mapping[str, str], output: Path) -> tuple[str, ...]:
    return tuple(url.removeprefix(f"{output.absolute().as_uri()}/") for url in urls.values())


def _effects(notes: Notes) -> tuple[Effect, ...]:
    lines = notes.effects.read_text().splitlines() if notes.effects.exists() else []
    told = (line.split() for line in lines)
    return tuple(Effect(job=job, run=int(run), stage=stage, fence=fence) for job, run, stage, fence in told)


def _objects(output: Path) -> dict[str, str]:
    """What lies at the target. A hidden part is what a killed sender left: nobody can take it for an object."""
    found = (path for path in output.rglob("*") if path.is_file() and not path.name.startswith(".part-"))
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def _leftovers(home: Path) -> dict[str, int]:
    """What the killed have left behind: no broken promise, but room that somebody must give back."""
    return {
        "unfinished parts at the target": sum(1 for _ in (home / "output").rglob(".part-*")),
        "scratch folders of ended jobs": sum(1 for _ in (home / "scratch" / "jobs").glob("*")),
    }


def _of_doctor(broken: list[doctor.Broken]) -> list[Violation]:
    return [Violation(f"doctor:{each.invariant.name}", one.id, one.detail) for each in broken for one in each.found]
