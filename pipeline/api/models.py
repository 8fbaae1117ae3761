"""What do answers look like? These classes are the OpenAPI document, and what is sent is checked against them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from pipeline.core.job import Outcome, OutputStatus, Priority, Stage, Status

TIME = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 86400}, {"type": "string"}]}
EXAMPLE = {
    "source": "https://media.example.org/talk.mp4",
    "clips": [{"name": "intro", "start": 12.5, "end": "00:01:03"}],
    "qualities": ["source", "720p"],
    "captions": True,
    "targets": ["local"],
    "priority": "normal",
}

# What `core.request.parse` reads; it has the last word, and its own code for everything that it refuses.
Submission = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "title": "Submission",
            "required": ["source", "clips"],
            "properties": {
                "source": {"type": "string", "description": "http(s) address, or `upload:<id>` from POST /api/sources"},
                "clips": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 200,
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
                            "start": {
                                "anyOf": [{"type": "number", "minimum": 0, "maximum": 86400}, {"type": "string"}]
                            },
                            "end": TIME,
                        },
                    },
                },
                "qualities": {"type": "array", "items": {"type": "string"}, "description": "source, 1080p, 720p ..."},
                "precise": {"type": "boolean"},
                "captions": {"description": "whether captions are made"},
                "language": {"type": "string"},
                "targets": {"type": "array", "items": {"type": "string"}},
                "priority": {"type": "string", "enum": ["high", "normal", "low"]},
                "account": {"type": "string", "description": "who pays; a client's key says it already"},
                "max_attempts": {"type": "integer", "minimum": 1, "maximum": 100},
                "deadline_s": {"type": "number", "minimum": 1, "maximum": 604800},
            },
            "description": "Further fields as in the reference of requests; an unknown one is refused.",
            "example": EXAMPLE,
        }
    ),
]


class Accepted(BaseModel):
    """A job as it stands after an act."""

    id: UUID
    status: Status
    stage: Stage
    run: int
    generation: int = Field(description="What is published; 0: nothing yet.")


class Job(BaseModel):
    """A job in a list."""

    model_config = ConfigDict(extra="ignore")

    id: UUID
    account_id: str | None
    status: Status
    stage: Stage
    plan: list[Stage]
    outcome: Outcome | None
    priority: Priority
    recovery: bool
    run: int
    generation: int
    building: int
    progress: float
    attempt_count: int
    max_attempts: int
    crash_count: int
    locked_by: str | None
    lease_expires_at: datetime | None
    deadline_at: datetime | None
    processing_started_at: datetime | None
    next_earliest_run_at: datetime | None
    skip_until: datetime | None
    waiting_on: str | None
    fail_code: str | None
    fail_reason: str | None
    last_error: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    request: dict[str, Any]


class Page(BaseModel):
    """Some jobs, newest first."""

    jobs: list[Job]
    next: str | None = Field(description="Cursor of the next page; null: this was the last one.")


class File(BaseModel):
    """One file of an output, at one target."""

    target: str
    key: str
    size: int
    sha256: str
    link: str = Field(description="Signed and expiring; whoever has it can read the file, with byte ranges.")


class Output(BaseModel):
    """One thing that the job makes."""

    model_config = ConfigDict(extra="ignore")

    name: str
    kind: str
    clip: str
    quality: str | None
    status: OutputStatus
    facts: dict[str, Any]
    error_code: str | None
    error_message: str | None
    files: list[File]
    refused: list[dict[str, Any]] = Field(description="Targets that would not take it, and why.")
    newest: str = Field(description="Stays the same over generations; leads to a fresh signed link.")


class Attempt(BaseModel):
    """One execution of a stage."""

    run: int
    stage: str
    attempt: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    ended_by: str | None


class Event(BaseModel):
    """Something that happened to a job."""

    id: int
    job_id: UUID
    type: str
    stage: str | None
    attempt: int | None
    data: dict[str, Any]
    at: datetime


class Why(BaseModel):
    """Why the job is not running now, or that it is."""

    code: str
    sentence: str
    facts: dict[str, Any]


class WholeJob(Job):
    """A job with all that is known of it."""

    outputs: list[Output]
    attempts: list[Attempt]
    events: list[Event] = Field(description="The last 500.")
    error_history: list[dict[str, Any]]
    why: Why


class Requeue(BaseModel):
    """From where, and for what."""

    model_config = ConfigDict(extra="forbid")

    stage: Stage | None = Field(default=None, description="Where to begin; else where it stopped.")
    failed_only: bool = Field(default=False, description="Only the outputs that failed.")


class Rerender(BaseModel):
    """What is made anew; nothing said: all of it."""

    model_config = ConfigDict(extra="forbid")

    qualities: list[str] = Field(default=[], max_length=20, description="Only these.")
    transcription: bool = Field(default=False, description="The captions (too).")
