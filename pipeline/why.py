"""Why does a job not run now? One true sentence, or that it does run, and how it is doing.

`because` is pure: it turns the facts of one moment into a code, a sentence and the numbers in it. It asks in the order
in which things keep a job from running: is it over, does somebody have it, must it wait, is anybody there to take it,
was its message sent, who comes first?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, assert_never
from uuid import UUID

from pipeline.core import window
from pipeline.core.breaker import State
from pipeline.core.job import Outcome, Status
from pipeline.settings import Settings, current
from pipeline.store import why as store
from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from pipeline.store.why import Facts

MISSED = 2  # beats or runs that did not come: one may just be late
QUIET = timedelta(minutes=1)  # without progress; less is normal
LINE = 200  # characters of an error in a sentence


class Code(StrEnum):
    """What the sentence is about. Stable: programs look at it."""

    COMPLETED = "completed"
    COMPLETED_PARTLY = "completed_partly"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RUNNING = "running"
    NO_PROGRESS = "no_progress"
    WORKER_SILENT = "worker_silent"
    WORKER_GONE = "worker_gone"
    LEASE_OVER = "lease_over"
    SERVICE_DOWN = "service_down"
    DEFERRED = "deferred"
    BACKOFF = "backoff"
    WORKERS_DISABLED = "workers_disabled"
    NO_WORKER = "no_worker"
    BROKER_AWAY = "broker_away"
    UPKEEP_OVERDUE = "upkeep_overdue"
    LIMITED = "limited"
    HELD_BACK = "held_back"
    BACKLOG = "backlog"
    MESSAGE_LOST = "message_lost"
    IN_QUEUE = "in_queue"


@dataclass(frozen=True, slots=True)
class Reason:
    code: Code
    sentence: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def why(db: Database, job_id: UUID, table: Table = Table.JOBS) -> Reason:
    """Why this job (or transcription) does not run now, or that it does. NoSuchJob if there is none."""
    now = current()
    return because(store.facts(db, job_id, now.silence(), table), now)


def because(it: Facts, settings: Settings) -> Reason:
    """The reason that these facts give."""
    match it.status:
        case Status.COMPLETED | Status.FAILED | Status.CANCELLED:
            return _ended(it)
        case Status.PROCESSING:
            return _held(it, settings)
        case Status.QUEUED:
            waits = _waits(it, settings)
            return waits or _unserved(it, settings) or _on_its_way(it, settings)
        case _:
            assert_never(it.status)


# -- it is over ------------------------------------------------------------------------------------------------------


def _ended(it: Facts) -> Reason:
    at = _at(it.finished_at, it.now)
    told: dict[str, Any] = {"finished_at": it.finished_at}
    if it.status is Status.CANCELLED:
        by = it.cancelled_by or "somebody"
        return Reason(Code.CANCELLED, f"It was cancelled by {by} {at}.", {**told, "by": it.cancelled_by})
    if it.status is Status.FAILED:
        told |= {"stage": it.stage, "fail_code": it.fail_code, "fail_reason": it.fail_reason}
        return Reason(Code.FAILED, f"It failed at {it.stage} {at}: {it.fail_code}: {_line(it.fail_reason)}.", told)
    if it.outcome is Outcome.PARTIAL:
        told |= {"outputs": it.outputs, "outputs_failed": it.outputs_failed}
        lacks = f"{it.outputs_failed} of {_n(it.outputs, 'output')} failed" if it.outputs_failed else "a target refused"
        return Reason(Code.COMPLETED_PARTLY, f"It completed in part {at}: {lacks}.", told)
    return Reason(Code.COMPLETED, f"It completed in full {at}.", told)


# -- somebody has it -------------------------------------------------------------------------------------------------


def _held(it: Facts, settings: Settings) -> Reason:
    who = it.worker_name or it.holder or "nobody"
    silent = _since(it.renewed_at, it.now)
    told: dict[str, Any] = {
        "stage": it.stage,
        "worker": who,
        "attempt": it.attempt_count,
        "max_attempts": it.max_attempts,
        "running_s": _s(_since(it.processing_started_at, it.now)),
        "progress": it.progress,
        "renewed_s": _s(silent),
        "lease_expires_at": it.lease_expires_at,
    }
    if it.lease_expires_at is None or it.lease_expires_at <= it.now:
        told |= {"reap_ended_at": it.reap_ended_at}
        over = "It has no lease" if it.lease_expires_at is None else f"Its lease on {it.stage} ended"
        when = "" if it.lease_expires_at is None else f" {_ago(it.lease_expires_at, it.now)}"
        return Reason(
            Code.LEASE_OVER,
            f"{over}{when}; the reaper, which takes it from {who}, {_last_ran(it.reap_ended_at, it.now)}.",
            told,
        )
    if it.worker_stopped:
        return Reason(
            Code.WORKER_GONE,
            f"Its worker {who} has stopped in the middle of {it.stage}; the reaper takes it away at its next run, and"
            f" {_last_ran(it.reap_ended_at, it.now)}.",
            told,
        )
    if silent > MISSED * timedelta(seconds=settings.heartbeat_sec):
        taken_at = _taken_at(it, settings)
        return Reason(
            Code.WORKER_SILENT,
            f"Its worker {who} has been silent for {_span(silent)} at {it.stage}; unless it speaks again, the"
            f" {it.table.noun} is taken from it from {_clock(taken_at, it.now)} on.",
            {**told, "taken_away_at": taken_at},
        )
    still = _since(it.last_progress_update, it.now)
    if still >= QUIET:
        return Reason(
            Code.NO_PROGRESS,
            f"It runs {it.stage} on {who}, without progress for {_span(still)} at {it.progress:.0f} %;"
            f" its lease was renewed {_span(silent)} ago.",
            {**told, "no_progress_s": _s(still)},
        )
    running = _span(_since(it.processing_started_at, it.now))
    return Reason(
        Code.RUNNING,
        f"It runs {it.stage} on {who} for {running} now, {it.progress:.0f} % done;"
        f" its lease was renewed {_span(silent)} ago.",
        told,
    )


def _taken_at(it: Facts, settings: Settings) -> datetime:
    """When others may stop waiting for its worker."""
    assert it.lease_expires_at is not None
    if it.worker_heard_at is None:
        return it.lease_expires_at
    return min(it.lease_expires_at, it.worker_heard_at + timedelta(seconds=settings.worker_offline_sec))


# -- it must wait ----------------------------------------------------------------------------------------------------


def _waits(it: Facts, settings: Settings) -> Reason | None:
    if it.skip_until is not None and it.skip_until > it.now:
        return _for_a_service(it, settings)
    if it.next_earliest_run_at is not None and it.next_earliest_run_at > it.now:
        error = (it.last_error or "").partition(":")[0] or "an error"
        told = {
            "stage": it.stage,
            "until": it.next_earliest_run_at,
            "in_s": _s(it.next_earliest_run_at - it.now),
            "error": error,
            "attempt": it.attempt_count + 1,
            "max_attempts": it.max_attempts,
        }
        return Reason(
            Code.BACKOFF,
            f"It tries {it.stage} again in {_span(it.next_earliest_run_at - it.now)} after {error},"
            f" attempt {it.attempt_count + 1} of {it.max_attempts}.",
            told,
        )
    return None


def _for_a_service(it: Facts, settings: Settings) -> Reason:
    assert it.skip_until is not None
    told: dict[str, Any] = {
        "service": it.waiting_on,
        "until": it.skip_until,
        "in_s": _s(it.skip_until - it.now),
        "since": it.first_deferred_at,
        "breaker": it.breaker,
        "last_error": it.last_error,
    }
    if it.first_deferred_at is not None:
        told["gives_up_at"] = it.first_deferred_at + timedelta(seconds=settings.max_wait_sec)
    mine = f"the {it.table.noun} waits until {_clock(it.skip_until, it.now)}"
    match it.breaker:
        case State.OPEN:
            told["breaker_until"] = it.breaker_opens_at
            assert it.breaker_opens_at is not None
            tried = it.breaker_opens_at <= it.now
            until = _clock(it.breaker_opens_at, it.now)
            word = f"a probe may ask it since {until}" if tried else f"open until {until}, then a probe asks it again"
            return Reason(Code.SERVICE_DOWN, f"{it.waiting_on} is down: {word}; {mine}.", told)
        case State.HALF_OPEN:
            told["trial_expires_at"] = it.trial_expires_at
            return Reason(Code.SERVICE_DOWN, f"{it.waiting_on} is down: a probe is asking it just now; {mine}.", told)
        case _:
            return Reason(
                Code.DEFERRED,
                f"It waits for {it.waiting_on} until {_clock(it.skip_until, it.now)}"
                f" (in {_span(it.skip_until - it.now)}), after {_line(it.last_error) or 'it was away'}.",
                told,
            )


# -- nobody is there to take it --------------------------------------------------------------------------------------


def _unserved(it: Facts, settings: Settings) -> Reason | None:
    if it.workers:
        return None
    told = {"queue": it.queue, "stage": it.stage, "disabled": it.workers_disabled, "elsewhere": it.workers_elsewhere}
    if it.workers_disabled:
        all_of = "The only worker" if it.workers_disabled == 1 else f"All {it.workers_disabled} workers"
        verb = "is" if it.workers_disabled == 1 else "are"
        return Reason(Code.WORKERS_DISABLED, f"{all_of} of its queue {it.queue} for {it.stage} {verb} disabled.", told)
    others = f" (other queues have {_n(it.workers_elsewhere, 'worker')})" if it.workers_elsewhere else ""
    return Reason(
        Code.NO_WORKER,
        f"No live worker serves its queue {it.queue} for {it.stage}{others}: none was heard from within"
        f" {settings.worker_offline_sec:g} s.",
        told,
    )


# -- its message -----------------------------------------------------------------------------------------------------


def _on_its_way(it: Facts, settings: Settings) -> Reason:
    return _unpublished(it, settings) if it.published_at is None else _published(it, settings)


def _unpublished(it: Facts, settings: Settings) -> Reason:
    due = _since(it.due_since, it.now)
    every = timedelta(seconds=settings.sweep_interval_sec)
    told = {
        "queue": it.queue,
        "due_s": _s(due),
        "ahead": it.ahead,
        "sweep_ended_at": it.sweep_ended_at,
        "broker": it.broker,
    }
    if it.broker not in (None, State.CLOSED):
        return Reason(
            Code.BROKER_AWAY, f"The broker is away; sweep sends its message when it is back, {_every(every)}.", told
        )
    if it.sweep_ended_at is None or _since(it.sweep_ended_at, it.now) > every * (MISSED + 1):
        return Reason(
            Code.UPKEEP_OVERDUE,
            f"It is due for {_span(due)} and has no message: sweep, which sends it every {_span(every)},"
            f" {_last_ran(it.sweep_ended_at, it.now)}; neither beat nor a worker runs it.",
            told,
        )
    shape = settings.shape()
    rooms = (window.rooms if it.table is Table.JOBS else window.rooms_alone)(it.sight, shape)
    if rooms.stages[it.stage] > 0:
        seen = it.sweep_began_at is not None and it.due_since is not None and it.due_since < it.sweep_began_at
        if seen and it.published == 0 and it.sweep_published < settings.sweep_batch:
            ran = _ago(it.sweep_ended_at, it.now)
            return Reason(
                Code.BROKER_AWAY,
                f"The broker did not take its message when sweep ran {ran}; it tries {_every(every)}.",
                told,
            )
    elif rooms.queues.get(it.queue, 0) > 0:
        return _kept_back(it, window.capacity(it.stage, it.sight, shape), told)
    return Reason(
        Code.BACKLOG,
        f"It is due for {_span(due)} and {_behind(it)}; queue {it.queue} has {_n(it.published, 'message')} on the"
        f" way to {_n(it.slots, 'live slot')}, and sweep adds to them {_every(every)}.",
        told | {"published": it.published, "slots": it.slots},
    )


def _kept_back(it: Facts, most: int | None, told: dict[str, Any]) -> Reason:
    """Its queue has room, its stage has not."""
    under_way = it.sight.under_way(it.stage)
    if most is not None and under_way >= most:
        return Reason(
            Code.LIMITED,
            f"{under_way} run {it.stage} or are on their way to it, and {most} may at once (STAGE_LIMITS,"
            f" FLEET_LIMITS); it {_behind(it)}.",
            told | {"limit": most, "under_way": under_way},
        )
    return Reason(
        Code.HELD_BACK,
        f"It is held back at {it.stage}: the stages after it are so far behind that their queue is full.",
        told,
    )


def _published(it: Facts, settings: Settings) -> Reason:
    sent = _since(it.published_at, it.now)
    told = {
        "queue": it.queue,
        "published_s": _s(sent),
        "position": it.ahead + 1,
        "ahead": it.ahead,
        "workers": it.workers,
        "slots": it.slots,
        "busy": it.busy,
    }
    free = it.slots - it.busy
    if sent > timedelta(seconds=settings.republish_sec) and free > it.ahead:
        return Reason(
            Code.MESSAGE_LOST,
            f"Nobody claimed it in {_span(sent)} though queue {it.queue} has {_n(free, 'free slot')}: its message is"
            " lost or stuck; sweep sends another when it knows.",
            told,
        )
    return Reason(
        Code.IN_QUEUE,
        f"It is number {it.ahead + 1} in queue {it.queue}, behind {_n(it.ahead, 'other')},"
        f" with {it.busy} of {_n(it.slots, 'live slot')} busy.",
        told,
    )


# -- words -----------------------------------------------------------------------------------------------------------


def _behind(it: Facts) -> str:
    ahead = _n(it.ahead, it.table.noun)
    return f"comes after {ahead} by priority and age" if it.ahead else "is the next one by priority and age"


def _n(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _every(span: timedelta) -> str:
    return f"every {_span(span)}"


def _since(moment: datetime | None, now: datetime) -> timedelta:
    return timedelta(0) if moment is None else max(now - moment, timedelta(0))


def _s(span: timedelta) -> float:
    return round(span.total_seconds(), 1)


def _span(span: timedelta) -> str:
    """A duration as people say it: exact while it is short."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{seconds:.1f} s"
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


def _ago(moment: datetime | None, now: datetime) -> str:
    return f"{_span(_since(moment, now))} ago"


def _last_ran(moment: datetime | None, now: datetime) -> str:
    return "never ran" if moment is None else f"last ran {_ago(moment, now)}"


def _clock(moment: datetime, now: datetime) -> str:
    """The time of day here, with the day if it is another one."""
    local = moment.astimezone()
    return f"{local:%H:%M:%S}" if local.date() == now.astimezone().date() else f"{local:%Y-%m-%d %H:%M:%S}"


def _at(moment: datetime | None, now: datetime) -> str:
    return "at an unknown time" if moment is None else f"at {_clock(moment, now)}"


def _line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0][:LINE].rstrip(".")
