"""What may a test of the stages count on? Small real videos, and a runner in this process on a real Postgres."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline import intake, settings
from pipeline.core.job import Job, Stage, Status
from pipeline.media import ffmpeg
from pipeline.runner import Answer, Delivery, run_stage
from pipeline.store import jobs, reads
from pipeline.store.engine import database

MOST_STEPS = 20  # a job that needs more goes round in circles


@dataclass(frozen=True)
class Runner:
    """Hands in jobs and runs their stages here and now, one after another, as workers would."""

    output: Path
    scratch: Path

    def submit(self, source: Path | str, **more: Any) -> UUID:
        request = {"source": str(source), "clips": [{"start": 0, "end": 2}], "captions": False, **more}
        return intake.enqueue(request).id

    def job(self, job_id: UUID) -> Job:
        return jobs.read(database(), job_id)[0]

    def show(self, job_id: UUID) -> dict[str, Any]:
        return reads.one(database(), job_id)

    def step(self, job_id: UUID) -> Answer:
        """Run the stage that is due."""
        return run_stage(self.job(job_id).stage, job_id, Delivery(worker="here", request_id=str(uuid4())))

    def until(self, job_id: UUID, stage: Stage) -> None:
        """Run everything before that stage."""
        for _ in range(MOST_STEPS):
            if self.job(job_id).stage is stage:
                return
            self.step(job_id)
        pytest.fail(f"the job never came to {stage}")

    def finish(self, job_id: UUID) -> dict[str, Any]:
        """Run stage after stage to the job's end."""
        for _ in range(MOST_STEPS):
            if self.job(job_id).status is not Status.QUEUED:
                return self.show(job_id)
            self.step(job_id)
        pytest.fail("the job never ended")

    def outputs(self, job_id: UUID) -> dict[str, dict[str, Any]]:
        return {output["name"]: output for output in self.show(job_id)["outputs"]}

    def objects(self) -> list[Path]:
        return sorted(path for path in self.output.rglob("*") if path.is_file())

    def units(self, job_id: UUID) -> dict[str, Any]:
        """When each unit was made."""
        rows = database().run(text("SELECT key, made_at FROM checkpoints WHERE job_id = :job"), job=job_id)
        return {row.key: row.made_at for row in rows}

    def claims(self, job_id: UUID) -> list[str]:
        return [event["stage"] for event in reads.events(database(), job_id) if event["type"] == "claimed"]

    def events(self, job_id: UUID, kind: str) -> list[dict[str, Any]]:
        return [event["data"] for event in reads.events(database(), job_id) if event["type"] == kind]


@pytest.fixture
def runner(env: dict[str, str]) -> Runner:
    return Runner(Path(env["OUTPUT_DIR"]), Path(env["SCRATCH_DIR"]))


@pytest.fixture
def use(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change settings by their environment names, for one test."""

    def change(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        settings.current.cache_clear()

    return change


@pytest.fixture(scope="session")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stages")


def _made(path: Path, *arguments: str) -> Path:
    subprocess.run([ffmpeg.locate(), "-v", "error", "-y", *arguments, "-t", "4", str(path)], check=True)
    return path


PICTURE = ("-f", "lavfi", "-i", "testsrc2=size=320x240:rate=25")
ENCODED = ("-c:v", "libx264", "-preset", "ultrafast", "-g", "25", "-keyint_min", "25", "-bf", "0")


@pytest.fixture(scope="session")
def talkie(media: Path) -> Path:
    """4 s of 320x240 with a tone, a keyframe every second."""
    return _made(media / "talkie.mp4", *PICTURE, "-f", "lavfi", "-i", "sine", *ENCODED, "-c:a", "aac")


@pytest.fixture(scope="session")
def silent(media: Path) -> Path:
    """4 s of 320x240 without sound."""
    return _made(media / "silent.mp4", *PICTURE, *ENCODED)
