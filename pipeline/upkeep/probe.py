"""probe: is a service that was given up back again?

For each breaker whose time has come, one trial in the whole fleet does what a job would do: asks the host for a source
that a job waits for, brings a small file to the target and back, loads the engine, connects to the broker. Its success
closes the breaker and wakes every job that waits; its failure opens it again, for longer. A check that hangs counts as
failed and is left behind. No lock is held meanwhile: a trial is one by its ticket, however many probes run.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

from pipeline import breakers as acts
from pipeline import delivery, dispatch, log, settings
from pipeline.core.breaker import blamed
from pipeline.core.errors import SourceError, TargetDown, UploadFailed
from pipeline.core.verdict import classify
from pipeline.delivery.buckets import Buckets
from pipeline.media import asr as engines
from pipeline.media import source
from pipeline.settings import Settings
from pipeline.stages.services import SOON
from pipeline.store import breakers, jobs
from pipeline.store import upkeep as runs
from pipeline.store.engine import Database, database

logger = log.get("probe")

AT_ONCE = 16
PATIENCE_S = 40.0  # well within the life of a trial
SOURCE_S = 30.0
FOLDER = "ironclip-probe"  # no key may be hidden

Check = Callable[[], None]  # ends well, or says in an error what is wrong


@dataclass(frozen=True)
class Probed:
    """What the probes found."""

    up: list[str] = field(default_factory=list)
    down: list[str] = field(default_factory=list)


def probe() -> Probed:
    """Try each service whose breaker may be tried now."""
    db = database()
    runs.began(db, "probe")
    trials = [trial for service in breakers.triable(db, AT_ONCE) if (trial := _begun(db, service))]
    for trial in trials:
        trial.start()
    end = time.monotonic() + PATIENCE_S
    done = Probed()
    for trial in trials:
        (done.up if trial.found_up(end) else done.down).append(trial.service)
    # Whoever was just being deferred when his breaker closed, or whose prober died before it woke him.
    for service in breakers.closed_lately(db):
        jobs.wake(db, service, beyond=SOON)
    runs.ended(db, "probe", {"up": done.up, "down": done.down})
    return done


def _begun(db: Database, service: str) -> Trial | None:
    """The trial of a service, if there is a way to ask it and the trial is ours."""
    check = check_of(db, service, settings.current())
    ticket = uuid4()
    if check is None or not breakers.begin_trial(db, service, ticket):
        return None
    return Trial(db, service, ticket, check)


class Trial:
    """One check in a thread of its own, so that a mount that hangs holds nobody up."""

    def __init__(self, db: Database, service: str, ticket: UUID, check: Check) -> None:
        self.service = service
        self._db, self._ticket, self._check = db, ticket, check
        self._is_up = False
        self._thread = threading.Thread(target=self._run, name=f"probe {service}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def found_up(self, end: float) -> bool:
        """How it went, once it is written down; by `end` (monotonic) it has failed."""
        self._thread.join(max(0.0, end - time.monotonic()))
        if self._thread.is_alive():
            breakers.trial_failed(self._db, self.service, self._ticket, f"no answer within {PATIENCE_S:g} s")
            return False
        return self._is_up

    def _run(self) -> None:
        try:
            self._check()
        except Exception as exc:
            verdict = classify(exc)
            if not verdict.known:
                logger.exception("unclassified error", extra={"service": self.service})
            breakers.trial_failed(self._db, self.service, self._ticket, f"{verdict.code}: {verdict.reason}")
        else:
            self._is_up = acts.close(self._db, self.service, self._ticket)


# -- what each kind of service is asked ------------------------------------------------------------------------------


def check_of(db: Database, service: str, now: Settings) -> Check | None:
    """How this service is asked; None: only a job could say how, and none waits for it."""
    kind, _, name = service.partition(":")
    match kind:
        case "source":
            url = breakers.waiting_source(db, service)
            return None if url is None else lambda: ask_source(url, now)
        case "target":
            return lambda: ask_target(name, now)
        case "asr":
            return lambda: engines.engine(now.model_copy(update={"asr_engine": name})).ping()
        case "broker":
            return dispatch.ping
        case _:
            return None


def ask_source(url: str, now: Settings) -> None:
    """Ask for the source as a job would, and hang up when it comes; SourceError if the host is to blame that it does
    not. That there is nothing at the address, or nothing for us, is an answer too: then the host is up."""
    client_for = Buckets(delivery.load(now), now).client
    with tempfile.TemporaryDirectory(prefix="ironclip-probe-", ignore_cleanup_errors=True) as folder:
        try:
            source.knock(url, Path(folder), SOURCE_S, client_for)
        except SourceError as exc:
            if blamed(exc) is not None:
                raise


def ask_target(name: str, now: Settings) -> None:
    """Bring a small file there, see it, and take it away; whatever goes wrong with that, the target is not back."""
    target = delivery.load(now).get(name)
    if target is None:
        raise TargetDown(f"There is no target named {name!r} here.")
    content = f"{uuid4()}\n".encode()
    sha256 = hashlib.sha256(content).hexdigest()
    key = f"{FOLDER}/probe-{sha256[: delivery.HASH_LENGTH]}.txt"
    with tempfile.NamedTemporaryFile(prefix="ironclip-probe-") as file:
        file.write(content)
        file.flush()
        target.put(Path(file.name), key, sha256)
    there = target.head(key)
    if there is None or there.sha256 != sha256:
        raise UploadFailed(f"{name}: what was written cannot be read back.")
    target.delete(key)
