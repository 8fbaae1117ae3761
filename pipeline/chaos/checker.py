"""Was every promise kept? `check` reads the history of a run and names each one that was not.

It is pure, and it believes nobody: neither the row where the events say otherwise, nor a record whose object is not at
the target. What is charged must have been delivered, and what a holder wrote must lie within its own lease.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from pipeline.chaos.history import COMPLETED, Attempt, EventRow, History, JobRow, by_job

FINAL = ("completed", "failed", "cancelled")
CLAIMED, REWOUND = "claimed", "rewound"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was not kept, by which job, and how that shows."""

    promise: str
    job: str | None
    detail: str


def check(history: History) -> list[Violation]:
    """Every violation, by promise."""
    found = ((promise.__name__, one) for promise in PROMISES for one in sorted(set(promise(history))))
    return [Violation(promise, job, detail) for promise, (job, detail) in found]


Found = Iterator[tuple[str, str]]  # a job and a detail; what belongs to no job names its account or key


# -- nothing is lost or stuck ----------------------------------------------------------------------------------------


def nothing_is_lost(history: History) -> Found:
    """Every job that was asked for has a row."""
    for job in set(history.submitted) - {row.job for row in history.jobs}:
        yield job, "was asked for and has no row"


def nothing_appears(history: History) -> Found:
    """Every row was asked for."""
    for job in {row.job for row in history.jobs} - set(history.submitted):
        yield job, "has a row and nobody asked for it"


def nothing_is_stuck(history: History) -> Found:
    for row in history.jobs:
        if row.status not in FINAL:
            yield row.job, f"is {row.status} at {row.stage}"


def everything_completes(history: History) -> Found:
    for row in history.jobs:
        if row.status in FINAL and (row.status, row.outcome) != ("completed", "full"):
            yield row.job, f"ended as {row.status} {row.outcome or ''}at {row.stage}: {row.fail_code} {row.fail_reason}"


# -- nothing is done twice -------------------------------------------------------------------------------------------


def stories_make_sense(history: History) -> Found:
    """Each job's events, told again from the beginning, pass through its plan: every stage is completed once."""
    for row in history.jobs:
        detail = _nonsense(row, history.events_of.get(row.job, []))
        if detail:
            yield row.job, detail


def _nonsense(row: JobRow, events: list[EventRow]) -> str | None:  # noqa: C901 - one story, told in one place
    at, held = 0, False
    for event in events:
        if at == len(row.plan) and event.type != "completed":
            return f"{event.type} at {event.stage} after its last stage was completed"
        if event.type == CLAIMED:
            if held:
                return f"{event.stage} was claimed while somebody held it"
            if event.stage != row.plan[at]:
                return f"{event.stage} was claimed when {row.plan[at]} was next"
            held = True
        elif event.type == COMPLETED:
            if not held or event.stage != row.plan[at]:
                return f"{event.stage} was completed when {row.plan[at]} was {'held' if held else 'held by nobody'}"
            at, held = at + 1, False
        elif event.type == REWOUND:
            at, held = row.plan.index(event.back_to or event.stage), False
        elif event.type not in ("queued", "completed"):
            held = False
    if row.status == "completed" and at != len(row.plan):
        return f"is completed, and {row.plan[at]} never was"
    return None


def leases_never_overlap(history: History) -> Found:
    for job, attempts in history.attempts_of.items():
        for earlier, later in pairwise(attempts):
            if earlier.ended_at is None or earlier.ended_at > later.started_at:
                yield job, f"{later.stage} by {later.worker} began before {earlier.stage} by {earlier.worker} was over"


def every_attempt_ends(history: History) -> Found:
    ended = {row.job for row in history.jobs if row.status in FINAL}
    for attempt in history.attempts:
        if attempt.ended_at is None and attempt.job in ended:
            yield attempt.job, f"{attempt.stage} by {attempt.worker} is still open"


def attempts_stay_within_the_limit(history: History) -> Found:
    most = {row.job: row.max_attempts for row in history.jobs}
    for attempt in history.attempts:
        if attempt.attempt > most.get(attempt.job, 0):
            yield attempt.job, f"{attempt.stage} ran as attempt {attempt.attempt} of {most.get(attempt.job)}"


def effects_count_once(history: History) -> Found:
    """What a stage did counts once: of all executions that came to their end, one in each completion of the stage."""
    attempts = {attempt.fence: attempt for attempt in history.attempts}
    effective: Counter[tuple[str, str]] = Counter()
    for effect in history.effects:
        attempt = attempts.get(effect.fence)
        if attempt is None or (attempt.job, attempt.stage, attempt.run) != (effect.job, effect.stage, effect.run):
            yield effect.job, f"{effect.stage} ran under a lease that nobody gave: {effect.fence}"
        elif attempt.completed:
            effective[effect.job, effect.stage] += 1
    told = Counter((event.job, event.stage) for event in history.events if event.type == COMPLETED)
    for job, stage in effective.keys() | told.keys():
        if effective[job, stage] != told[job, stage]:
            yield job, f"{stage} took effect {effective[job, stage]} times and was completed {told[job, stage]} times"


# -- whoever lost its lease writes nothing ---------------------------------------------------------------------------


def ghosts_write_nothing(history: History) -> Found:
    """Whatever was written beside a row was written within the lease that it names, or within some lease of its job."""
    for record in history.records:
        leases = history.attempts_of.get(record.job, [])
        own = [each for each in leases if record.fence is None or each.fence == record.fence]
        if not any(_covers(each, record.at) for each in own):
            yield record.job, f"{record.what} was written when its writer held no lease"


def _covers(lease: Attempt, moment: datetime) -> bool:
    return lease.started_at <= moment and (lease.ended_at is None or moment <= lease.ended_at)


# -- what was published ----------------------------------------------------------------------------------------------


def outputs_are_published(history: History) -> Found:
    """Each output of a completed job lies at the target with the content that its record says; so does the manifest."""
    completed = {row.job: row for row in history.jobs if row.status == "completed"}
    for output in history.outputs:
        if output.job in completed and output.status != "completed":
            yield output.job, f"{output.name} is {output.status}"
        for key, sha256 in output.files:
            if history.objects.get(key) != sha256:
                yield output.job, f"{key} {'has other content' if key in history.objects else 'is not at the target'}"
        if output.status == "completed" and not output.files:
            yield output.job, f"{output.name} was delivered nowhere"
    for row in completed.values():
        if not row.manifests:
            yield row.job, "has no manifest"
        for key in row.manifests:
            if key not in history.objects:
                yield row.job, f"{key} is not at the target"


def nothing_is_published_twice(history: History) -> Found:
    """Nothing lies at the target that no record names, and no output has two deliveries of one file."""
    named = [key for output in history.outputs for key, _ in output.files]
    named += [key for row in history.jobs for key in row.manifests]
    for key, times in Counter(named).items():
        if times > 1:
            yield key, f"is named by {times} records"
    for key in history.objects.keys() - set(named):
        yield key, "lies at the target, and no record names it"


# -- who pays --------------------------------------------------------------------------------------------------------


def each_output_is_paid_once(history: History) -> Found:
    """A completed output was held and charged once; any other was held and given back."""
    entries = by_job(history.entries)
    accounts = {row.job: row.account for row in history.jobs if row.status in FINAL}
    for output in history.outputs:
        if not output.price or accounts.get(output.job) is None:
            continue
        own = [each for each in entries.get(output.job, []) if each.output == output.output]
        end = ("charge", 0) if output.status == "completed" else ("refund", output.price)
        if sorted((each.kind, each.amount) for each in own) != sorted([("hold", -output.price), end]):
            yield output.job, f"{output.name}: {', '.join(f'{e.kind} {e.amount}' for e in own) or 'nothing'}"


def balances_are_right(history: History) -> Found:
    """What is left of an account is what was granted, less the price of what was completed."""
    account_of = {row.job: row.account for row in history.jobs}
    spent: Counter[str | None] = Counter()
    for output in history.outputs:
        if output.status == "completed":
            spent[account_of.get(output.job)] += output.price
    for account, granted in history.granted.items():
        left = history.balances.get(account)
        if left != granted - spent[account]:
            yield account, f"has {left}, and should have {granted - spent[account]}"


PROMISES: tuple[Callable[[History], Found], ...] = (
    nothing_is_lost,
    nothing_appears,
    nothing_is_stuck,
    everything_completes,
    stories_make_sense,
    leases_never_overlap,
    every_attempt_ends,
    attempts_stay_within_the_limit,
    effects_count_once,
    ghosts_write_nothing,
    outputs_are_published,
    nothing_is_published_twice,
    each_output_is_paid_once,
    balances_are_right,
)
