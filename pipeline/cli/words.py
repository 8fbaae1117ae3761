"""How is what happened to a job told in words?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.core.job import Job, Status
from pipeline.core.moves import Proof

Data = Mapping[str, Any]

LINE = 300  # characters of an error that a line shows; `show` and the row have all of it


def event(row: Data) -> str:
    """One event as a sentence without its end."""
    stage, data = row["stage"] or "-", row["data"]
    tell = EVENTS.get(row["type"])
    return tell(stage, {"attempt": row["attempt"], **data}) if tell else f"{stage}: {row['type']}"


def state(job: Job) -> str:
    """What a job is doing, in a few words."""
    if job.is_final:
        return f"{job.status} ({job.outcome})" if job.outcome else str(job.status)
    if job.status is Status.PROCESSING:
        return str(job.stage)
    if job.waiting_on:
        return f"{job.stage}: waits for {job.waiting_on}"
    return f"{job.stage}: waits to try again" if job.next_earliest_run_at else f"{job.stage}: queued"


def share(job: Job) -> float:
    """How much of a job is behind it, in percent: each stage counts the same."""
    if job.status is Status.COMPLETED:
        return 100.0
    return (100 * job.plan.index(job.stage) + job.progress) / len(job.plan)


def short(job_id: object) -> str:
    """As much of an id as one needs to type."""
    return str(job_id)[:8]


def first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0][:LINE]


def _done(stage: str, data: Data) -> str:
    found = data.get("found", {})
    if stage == "resolve" and "video" in found:
        return f"resolve: done ({found['video']}, {found['duration_s']:g} s)"
    if stage == "clip" and found.get("made"):
        made = ", ".join(f"{name} by {mode}" for name, mode in found["made"].items())
        return f"clip: done ({made})"
    if stage == "asr" and found.get("first_words"):
        return f'asr: done ("{next(iter(found["first_words"].values()))} ...")'
    return f"{stage}: done"


def _why(data: Data) -> str:
    return f"{data.get('code', '?')}: {first_line(data.get('reason'))}"


def _claimed(stage: str, data: Data) -> str:
    again = f" (attempt {data['attempt']})" if data["attempt"] > 1 else ""
    return f"{stage}: started{again}{', after a worker was lost' if data.get('recovery') else ''}"


TAKEN = {
    Proof.WORKER_DEAD: "taken from a worker that is gone",
    Proof.LEASE_EXPIRED: "taken from a worker that let its lease run out",
}

EVENTS: dict[str, Callable[[str, Data], str]] = {
    "queued": lambda _stage, data: f"queued ({data.get('priority', 'normal')} priority)",
    "claimed": _claimed,
    "stage_completed": _done,
    "completed": lambda _stage, data: f"completed ({data.get('outcome')})",
    "retry_scheduled": lambda s, d: f"{s}: {_why(d)}; again in {d.get('delay_s', 0):.0f} s",
    "deferred": lambda s, d: f"{s}: waits {d.get('delay_s', 0):.0f} s for {d.get('service')} ({_why(d)})",
    "rewound": lambda s, d: f"{s}: back to {d.get('to')} ({first_line(d.get('reason'))})",
    "failed": lambda s, d: f"{s}: failed, {_why(d)}",
    "aborted:shutdown": lambda s, _d: f"{s}: given back, its worker is stopping",
    "worker_lost": lambda s, d: f"{s}: its process died ({first_line(d.get('evidence'))})",
    "requeued:stale": lambda s, d: f"{s}: {TAKEN[d['details']['reason']]}",
    "stalled": lambda s, d: f"{s}: stalled, {first_line(d.get('reason'))}",
    "cancelled": lambda _stage, data: f"cancelled by {data.get('by')}",
    "requeued:manual": lambda _s, d: f"requeued by {d.get('by')} at {d.get('stage')}",
    "rerender": lambda _s, d: f"made anew by {d.get('by')} (generation {d.get('generation')})",
}
