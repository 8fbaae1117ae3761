"""What may a stage use?

A stage gets one `Context`. It sees the job, its request and outputs, a scratch folder of its own, and the targets. It
says how far it is, asks whether it may go on, and wraps whatever is costly in `file_once`, so that nothing that is
done and still good is ever done again, and whatever needs others in `service`, so that nobody asks a service that is
down. It knows nothing of rows, leases or Celery.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from pipeline import crashpoints, log, metrics
from pipeline.core.errors import IronclipError, Kind, LeaseLost
from pipeline.core.job import Job, OutputStatus
from pipeline.core.output import File, Output
from pipeline.core.request import Request
from pipeline.crashpoints import At
from pipeline.delivery import Target
from pipeline.scratch import Scratch, full_disk_is_ours
from pipeline.settings import Settings
from pipeline.stages import services
from pipeline.store import checkpoints, outputs
from pipeline.store.engine import Database

logger = log.get("stage")


class Watch(Protocol):
    """What tells a stage whether it may go on, and others how far it is."""

    def check(self) -> None:
        """Raise LeaseLost when the stage must stop."""

    def progress(self, percent: float | None = None, value: float | None = None) -> None:
        """Say how far it is."""


@dataclass(frozen=True)
class Unit:
    """A finished file and what is known of it."""

    path: Path
    file: File
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Bundle:
    """Finished files that were made together, and what is known of them."""

    files: tuple[File, ...]
    facts: Mapping[str, Any]


@dataclass
class Context:
    """Everything that a stage may touch."""

    job: Job
    request: Request
    scratch: Scratch
    targets: Mapping[str, Target]
    settings: Settings
    watch: Watch
    _db: Database = field(repr=False)

    @property
    def check(self) -> Callable[[], None]:
        return self.watch.check

    @property
    def progress(self) -> Callable[..., None]:
        return self.watch.progress

    @property
    def allowed_s(self) -> float | None:
        """How long this execution may take in all: nothing it starts may run longer."""
        lease, began = self.job.lease, self.job.processing_started_at
        return (lease.deadline_at - began).total_seconds() if lease and began else None

    def gives_up(self, target: str, trouble: IronclipError) -> bool:
        """Whether the job ends without this target: it spoils the last attempt, or it is down for as long as a job may
        wait and another one has served the job."""
        if trouble.kind is Kind.RETRY:
            return self.job.attempt_count >= self.job.max_attempts
        since, began = self.job.first_deferred_at, self.job.processing_started_at
        if trouble.kind is not Kind.DEFER or since is None or began is None:
            return False
        has_waited = (began - since).total_seconds() >= self.settings.max_wait_sec
        return has_waited and any(d["status"] == "delivered" and d["target"] != target for d in self.deliveries())

    def service(self, name: str) -> AbstractContextManager[None]:
        """Around work that needs a service: BreakerOpen while it is given up; how it went is remembered."""
        return services.asking(self._db, self.job.id, name)

    def outputs(self) -> list[Output]:
        """The outputs of the generation that is being made, as they are now."""
        return outputs.of(self._db, self.job.id, self.job.building)

    def settled(self) -> set[int]:
        """The outputs that an earlier run has completed and to which every target has said something: nothing is left
        to do. A run that is to ask a target again begins without its answer."""
        answers = Counter(d["output_id"] for d in self.deliveries() if d["status"] != "expired")
        whole = len(self.request.targets)
        return {o.id for o in self.outputs() if o.status is OutputStatus.COMPLETED and answers[o.id] == whole}

    def worse(self) -> list[str]:
        """What the published generation has and the one that is being made does not: `output at target` each."""
        before, now = self.job.generation, self.job.building
        if before in (0, now):
            return []
        lost = outputs.held(self._db, self.job.id, before) - outputs.held(self._db, self.job.id, now)
        return sorted(f"{name} at {target}" for name, target in lost)

    @cached_property
    def _records(self) -> dict[str, dict[str, Any]]:
        return checkpoints.of(self._db, self.job.id, self.job.building)

    # -- costly units ------------------------------------------------------------------------------------------------

    def record(self, key: str) -> Mapping[str, Any] | None:
        """What is remembered of a unit that was done."""
        return self._records.get(key)

    def remember(self, key: str, record: Mapping[str, Any]) -> None:
        """A unit is done."""
        self._must_be_ours(checkpoints.put(self._db, self.job.id, self._fence, self.job.building, key, record))
        crashpoints.reached(At.UNIT_RECORDED)
        self._records[key] = dict(record)

    def reuse(self, key: str) -> Unit | None:
        """A finished file that was recorded and still has the same content; None otherwise."""
        record = self.record(key)
        if record is None:
            return None
        file = File(**record["file"])
        found = self.scratch.reuse(file.name, file.sha256, check=self.check)
        return None if found is None else Unit(found.path, file, record["facts"])

    def file_once(self, key: str, suffix: str, make: Callable[[Path], Mapping[str, Any]]) -> Unit:
        """The unit's file, made only if it is not there and good. `make` writes it and tells facts about it."""
        done = self.reuse(key)
        if done is not None:
            logger.info("unit reused", extra={"unit": key})
            metrics.count("checkpoint_resumes_total", stage=self.job.stage)
            return done
        work = self.scratch.path(f"{key}-work{suffix}")
        work.unlink(missing_ok=True)
        with full_disk_is_ours():
            facts = make(work)
        crashpoints.reached(At.UNIT_MADE)
        self.check()
        made = self.scratch.publish(work, self.scratch.path(f"{key}-final{suffix}"), check=self.check)
        crashpoints.reached(At.UNIT_NAMED)
        file = File(name=made.path.name, sha256=made.sha256, size=made.size)
        self.remember(
            key, {"file": {"name": file.name, "sha256": file.sha256, "size": file.size}, "facts": dict(facts)}
        )
        return Unit(made.path, file, facts)

    def files_once(self, key: str, make: Callable[[Path], Mapping[str, Any]]) -> Bundle:
        """The unit's files, made only if they are not all there and good.

        `make` writes each into a folder of theirs as `<name>-work.<suffix>`, and tells facts about them. At a target
        its path is `<name>.<suffix>`.
        """
        done = self._reuse_all(key)
        if done is not None:
            logger.info("unit reused", extra={"unit": key})
            metrics.count("checkpoint_resumes_total", stage=self.job.stage)
            return done
        folder = self.scratch.path(f"{key}/any").parent
        shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
        with full_disk_is_ours():
            facts = make(folder)
        crashpoints.reached(At.UNIT_MADE)
        self.check()
        files = []
        for work in sorted(folder.iterdir()):
            path = f"{work.stem.removesuffix('-work')}{work.suffix}"
            final = self.scratch.path(f"{key}/{Path(path).stem}-final{work.suffix}")
            made = self.scratch.publish(work, final, check=self.check)
            files.append(File(name=f"{key}/{final.name}", sha256=made.sha256, size=made.size, path=path))
        crashpoints.reached(At.UNIT_NAMED)
        self.remember(key, {"files": [asdict(file) for file in files], "facts": dict(facts)})
        return Bundle(tuple(files), facts)

    def _reuse_all(self, key: str) -> Bundle | None:
        record = self.record(key)
        if record is None:
            return None
        files = tuple(File(**file) for file in record["files"])
        there = (self.scratch.reuse(file.name, file.sha256, check=self.check) for file in files)
        return Bundle(files, record["facts"]) if all(there) else None

    # -- outputs -----------------------------------------------------------------------------------------------------

    def began(self, output: Output) -> None:
        self._note(output, OutputStatus.IN_PROGRESS)

    def made(self, output: Output, *units: Unit) -> None:
        """The output's files are made; it counts as completed when finalize has verified them at their targets."""
        facts = {name: value for unit in units for name, value in unit.facts.items()}
        self._note(output, OutputStatus.IN_PROGRESS, files=[unit.file for unit in units], facts=facts)

    def advanced(self, output: Output, percent: float, segments: tuple[int, int] | None = None) -> None:
        """Say how far one output is; of a rendition also how many of its segments are made, of how many."""
        told = {"segments_completed": segments[0], "segments_total": segments[1]} if segments else {}
        self._must_be_ours(outputs.progressed(self._db, self.job.id, self._fence, output.id, percent, **told))

    def bundled(self, output: Output, bundle: Bundle) -> None:
        """As `made`, for files that belong together."""
        self._note(output, OutputStatus.IN_PROGRESS, files=bundle.files, facts=bundle.facts)

    def missed(self, output: Output) -> None:
        """The output does not lie where it was delivered: it must come there once more."""
        self._note(output, OutputStatus.IN_PROGRESS, files=output.files)

    def completed(self, output: Output) -> None:
        self._note(output, OutputStatus.COMPLETED, files=output.files)

    def skipped(self, output: Output, why: str) -> None:
        self._note(output, OutputStatus.SKIPPED, facts={"skipped": why})

    def failed(self, output: Output, error: IronclipError) -> None:
        """This output cannot be made; the others go on."""
        logger.warning("output failed", extra={"output": output.name, "code": error.code, "reason": error.message})
        told = error.message + (f"\n{error.evidence}" if error.evidence else "")
        self._note(output, OutputStatus.FAILED, error_code=error.code, error_message=told[:4000])

    def delivered(self, output: Output, target: str, files: list[dict[str, Any]]) -> None:
        self._must_be_ours(outputs.delivered(self._db, self.job.id, self._fence, output.id, target, files=files))
        crashpoints.reached(At.DELIVERY_RECORDED)

    def refused(self, output: Output, target: str, error: IronclipError) -> None:
        """This target does not take this output; the others go on."""
        logger.warning("target refused", extra={"output": output.name, "target": target, "code": error.code})
        self._must_be_ours(
            outputs.delivered(
                self._db,
                self.job.id,
                self._fence,
                output.id,
                target,
                error_code=error.code,
                error_message=error.message[:4000],
            )
        )

    def undelivered(self, delivery: Mapping[str, Any]) -> None:
        """What this target has taken does not lie there: it must be asked again."""
        self._must_be_ours(
            outputs.undelivered(self._db, self.job.id, self._fence, delivery["output_id"], delivery["target"])
        )

    def deliveries(self) -> list[dict[str, Any]]:
        return outputs.deliveries(self._db, self.job.id, self.job.building)

    def transcribed(self, output: Output, transcript: Mapping[str, Any]) -> None:
        self._must_be_ours(outputs.transcribed(self._db, self.job.id, self._fence, output.id, transcript))
        crashpoints.reached(At.WORDS_KEPT)

    def _note(self, output: Output, status: OutputStatus, **told: Any) -> None:
        self._must_be_ours(outputs.record(self._db, self.job.id, self._fence, output.id, status, **told))
        crashpoints.reached(At.OUTPUT_NOTED)

    # -- the fence ---------------------------------------------------------------------------------------------------

    @property
    def _fence(self) -> Any:
        return self.job.fence

    def _must_be_ours(self, written: bool) -> None:
        if not written:
            raise LeaseLost
