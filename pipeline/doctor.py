"""Is everything as it must be, and what can be done where it is not?

INVARIANTS is the whole list. Each says what must hold, how bad it is when it does not, and how it is put right. Looking
changes nothing. A repair only asks for what would have happened anyway: sweep, reap, a worker noted as offline, a
folder of nobody removed. What needs a decision is left to people, and the line says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from pipeline import delivery, dispatch, upkeep
from pipeline.core import window
from pipeline.core.errors import TargetError
from pipeline.core.routing import QUEUE_OF
from pipeline.delivery import Target
from pipeline.settings import Settings, current
from pipeline.stages.services import SOON
from pipeline.store import doctor as rows
from pipeline.store import due, jobs, workers
from pipeline.store.doctor import MOST, Found, Query
from pipeline.store.engine import Database
from pipeline.upkeep import leftovers

LONG_SILENCE = timedelta(days=1)
LATE = 3  # runs that did not come


class Severity(StrEnum):
    ERROR = "error"  # a promise is broken
    WARNING = "warning"  # something does not run, or was left behind


@dataclass(frozen=True, slots=True)
class Invariant:
    """Something that must always hold."""

    name: str
    means: str
    severity: Severity
    repair: str
    find: Query | Callable[[Database, Settings], Iterator[Found]]
    mend: Callable[[Database, list[Found]], object] | None = None
    deep: bool = False  # asks every target for every file


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that does not hold, and by which rows; `repaired`: it holds by now."""

    invariant: Invariant
    found: list[Found]
    more: bool = False  # than are listed
    repaired: bool = False


def examine(db: Database, *, deep: bool = False) -> list[Broken]:
    """Every invariant that does not hold. Writes nothing."""
    now = current()
    asked = [each for each in INVARIANTS if deep or not each.deep]
    queries = {each.name: each.find for each in asked if not callable(each.find)}
    found = rows.look(db, queries, _limits(now) | {"roomy": _roomy(db, now)})
    for each in asked:
        if callable(each.find):
            found[each.name] = [one for one, _ in zip(each.find(db, now), range(MOST + 1), strict=False)]
    seen = [(each, found[each.name]) for each in asked]
    return [Broken(each, broken[:MOST], more=len(broken) > MOST) for each, broken in seen if broken]


def repair(db: Database, *, deep: bool = False) -> list[Broken]:
    """What did not hold, after everything was done about it that is safe to do."""
    broken = examine(db, deep=deep)
    mended = [each for each in broken if each.invariant.mend is not None]
    for each in mended:
        assert each.invariant.mend is not None
        each.invariant.mend(db, each.found)
    if not mended:
        return broken
    left = {each.invariant.name: each for each in examine(db, deep=deep)}
    healed = [
        Broken(each.invariant, each.found, each.more, repaired=True)
        for each in broken
        if each.invariant.name not in left
    ]
    return [*left.values(), *healed]


def _roomy(db: Database, now: Settings) -> list[str]:
    """The stages of which more could be published."""
    rooms = window.rooms(due.sight(db, now.silence()), now.shape())
    return [str(stage) for stage, room in rooms.stages.items() if room > 0]


def _limits(now: Settings) -> dict[str, Any]:
    """From when on something counts as late."""
    return {
        "offline": timedelta(seconds=now.worker_offline_sec),
        "sweep_late": LATE * timedelta(seconds=now.sweep_interval_sec),
        "reap_late": LATE * timedelta(seconds=now.reaper_interval_sec) + timedelta(seconds=now.database_grace_sec),
        "claim_late": LATE * timedelta(seconds=now.republish_sec),
        "upkeep": list(upkeep.CHORES),
        "upkeep_s": [chore.every_s(now) for chore in upkeep.CHORES.values()],
        "long_silence": LONG_SILENCE,
        "probe_late": timedelta(minutes=5),
        "wake_late": timedelta(minutes=1),
        "soon": SOON,
    }


# -- outside of the database -----------------------------------------------------------------------------------------


def _orphan_scratch(db: Database, now: Settings) -> Iterator[Found]:
    """The folders on this machine of jobs that are over, or that nobody knows and nobody touched for a day."""
    return (Found(str(each.job), each.why) for each in leftovers.leftovers(db, now))


def _missing_files(db: Database, now: Settings) -> Iterator[Found]:
    """The delivered files of current generations that do not lie at their targets, whole."""
    targets = delivery.load(now)
    after = (0, "")
    while page := rows.delivered(db, after=after):
        for row in page:
            for file in row["files"]:
                wrong = _wrong(targets.get(row["target"]), file)
                if wrong:
                    yield Found(str(row["job_id"]), f"{row['target']}: {file['key']}: {wrong}")
        after = (page[-1]["output_id"], page[-1]["target"])


def _wrong(target: Target | None, file: dict[str, Any]) -> str | None:
    if target is None:
        return "no such target is configured here"
    try:
        there = target.head(file["key"])
    except TargetError as exc:
        return f"cannot be asked ({exc.code})"
    if there is None:
        return "is not there"
    return None if there.sha256 == file["sha256"] else "has other content"


# -- repairs ---------------------------------------------------------------------------------------------------------


def _sweep(_db: Database, _found: list[Found]) -> None:
    upkeep.sweep()


def _send_again(db: Database, _found: list[Found]) -> None:
    """What sweep does when a marker is missed, at once: where the broker holds nothing, whatever was sent is lost."""
    for queue in set(QUEUE_OF.values()):
        asked_at = due.now(db)
        if dispatch.is_empty(queue):
            due.forget_markers(db, queue)
            due.unpublish_all(db, queue, asked_at - timedelta(seconds=current().marker_grace_sec))
    upkeep.sweep()


def _reap(_db: Database, _found: list[Found]) -> None:
    upkeep.reap()


def _probe(_db: Database, _found: list[Found]) -> None:
    upkeep.probe()


def _run_chores(_db: Database, found: list[Found]) -> None:
    for each in found:
        upkeep.CHORES[each.id].run()


def _close_attempts(db: Database, found: list[Found]) -> None:
    rows.close_attempts(db, [each.id for each in found])


def _bury(db: Database, _found: list[Found]) -> None:
    workers.bury(db, [], LONG_SILENCE)


def _wake(db: Database, found: list[Found]) -> None:
    for each in found:
        jobs.wake(db, each.id)
    upkeep.sweep()


def _remove_scratch(db: Database, _found: list[Found]) -> None:
    leftovers.clear(db, current())  # as it is now: a job may have been asked for again


# -- the list --------------------------------------------------------------------------------------------------------

ERROR, WARNING = Severity.ERROR, Severity.WARNING

INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        "running_has_a_lease",
        "Whoever is processing has a holder, a fence, an end and a deadline.",
        ERROR,
        "Nobody can hold it: `ironclip cancel JOB`, then `ironclip requeue JOB`.",
        rows.RUNNING_WITHOUT_LEASE,
    ),
    Invariant(
        "queued_has_no_lease",
        "Whoever is queued is held by nobody.",
        ERROR,
        "Its next claim clears it; if none comes, `ironclip cancel JOB`, then `ironclip requeue JOB`.",
        rows.QUEUED_WITH_LEASE,
    ),
    Invariant(
        "ended_has_no_lease",
        "Whoever has ended is held by nobody.",
        ERROR,
        "Nobody can write under that lease; find out who wrote the row past `store.jobs.apply`, then clear it by hand.",
        rows.ENDED_WITH_LEASE,
    ),
    Invariant(
        "ended_has_a_time",
        "A job has an end exactly when it has ended.",
        ERROR,
        "Find out who wrote the row past `store.jobs.apply`; its last event has the time.",
        rows.ENDED_WITHOUT_TIME,
    ),
    Invariant(
        "attempts_are_bounded",
        "No stage runs more often than its job allows, and whoever queues has an attempt left.",
        ERROR,
        "`ironclip cancel JOB`, then `ironclip requeue JOB`: attempts begin anew.",
        rows.TOO_MANY_ATTEMPTS,
    ),
    Invariant(
        "running_has_an_attempt",
        "Whoever is processing has an open attempt under its fence.",
        ERROR,
        "The job goes on and ends as usual; only the record of this execution is missing.",
        rows.RUNNING_WITHOUT_ATTEMPT,
    ),
    Invariant(
        "attempts_end",
        "An attempt is open only while its job is processing.",
        ERROR,
        "--repair notes that it ended, and that nobody knows how.",
        rows.ATTEMPT_WITHOUT_RUN,
        _close_attempts,
    ),
    Invariant(
        "one_attempt_at_a_time",
        "A job that is processing has no open attempt but its holder's.",
        ERROR,
        "--repair notes that the other ended; its fence opens nothing any more.",
        rows.TWO_ATTEMPTS_AT_ONCE,
        _close_attempts,
    ),
    Invariant(
        "leases_are_reaped",
        "A lease that is over is taken away within three runs of the reaper.",
        ERROR,
        "--repair runs the reaper; see that beat or a worker runs it from now on.",
        rows.LEASE_NOT_REAPED,
        _reap,
    ),
    Invariant(
        "due_jobs_are_published",
        "A due job whose queue is idle, empty and has room gets its message within three sweeps.",
        WARNING,
        "--repair sweeps; if that does not help, the broker is away: look at BROKER_URL.",
        rows.DUE_WITHOUT_MESSAGE,
        _sweep,
    ),
    Invariant(
        "published_jobs_are_claimed",
        "While a worker of its queue is idle, nobody waits longer than three times REPUBLISH_SEC for a claim.",
        WARNING,
        "--repair sends again what the broker lost; if that does not help, restart the idle worker.",
        rows.SENT_AND_NOT_CLAIMED,
        _send_again,
    ),
    Invariant(
        "queues_are_served",
        "Every queue with due jobs has a live worker that is not disabled.",
        WARNING,
        "Start a worker for that queue (`celery -A tasks worker -Q QUEUE`), or enable the one that is disabled.",
        rows.QUEUE_WITHOUT_WORKER,
    ),
    Invariant(
        "upkeep_is_on_time",
        "While jobs are unfinished, each upkeep ran within three times its interval.",
        WARNING,
        "--repair runs it now; see that beat, or at least one worker, is alive.",
        rows.UPKEEP_OVERDUE,
        _run_chores,
    ),
    Invariant(
        "completed_has_an_output",
        "A completed job has at least one completed output in its generation.",
        ERROR,
        "Nothing was delivered: submit the job again, and find out how it came to complete.",
        rows.COMPLETED_WITHOUT_OUTPUT,
    ),
    Invariant(
        "full_means_all",
        "A job that completed in full has no output that failed or is undone.",
        ERROR,
        "Submit the job again for what is missing, and find out how it came to count as full.",
        rows.FULL_BUT_NOT_ALL,
    ),
    Invariant(
        "completed_outputs_are_delivered",
        "Each completed output of a completed job was taken by at least one target.",
        ERROR,
        "Submit the job again, and find out how the output came to count as completed.",
        rows.COMPLETED_BUT_NOWHERE,
    ),
    Invariant(
        "balances_add_up",
        "The balance of an account is the sum of its entries.",
        ERROR,
        "Decide which is right; correct it with a grant that says why, never by changing an entry.",
        rows.BALANCE_IS_NOT_THE_SUM,
    ),
    Invariant(
        "holds_end",
        "When a run is over, each of its holds was charged or given back.",
        ERROR,
        "Give the credits back with a grant that names the job, and find out who ended it past `store.jobs.apply`.",
        rows.HOLD_WITHOUT_END,
    ),
    Invariant(
        "holds_end_once",
        "No hold was ended twice: charged or given back, never both.",
        ERROR,
        "Correct the account with a grant that names the job; the index `a_hold_ends_once` must be there.",
        rows.HOLD_ENDED_TWICE,
    ),
    Invariant(
        "ends_match_their_hold",
        "What ends a hold has one: a charge moves nothing, a refund gives back exactly what was held.",
        ERROR,
        "Correct the account with a grant that names the job and the difference.",
        rows.END_WITHOUT_ITS_HOLD,
    ),
    Invariant(
        "nothing_is_settled_early",
        "No hold of a run that goes on was charged or given back.",
        ERROR,
        "Let the job end, then correct the account with a grant that names it.",
        rows.SETTLED_BEFORE_ITS_END,
    ),
    Invariant(
        "stories_begin_with_queued",
        "The first event of every job is `queued`.",
        ERROR,
        "The job itself is untouched; find out who wrote the row past `pipeline.enqueue`, or deleted events.",
        rows.STORY_WITHOUT_BEGINNING,
    ),
    Invariant(
        "claims_have_an_ending",
        "After each `claimed` another event tells how that execution ended, unless it still runs.",
        ERROR,
        "The job itself is untouched; find out who moved it past `store.jobs.apply`, or deleted events.",
        rows.CLAIM_WITHOUT_END,
    ),
    Invariant(
        "silent_workers_are_offline",
        "A worker that was not heard from for a day counts as offline.",
        WARNING,
        "--repair notes that it is; if it beats again, it is back.",
        rows.SILENT_BUT_NOT_OFFLINE,
        _bury,
    ),
    Invariant(
        "open_breakers_are_tried",
        "A breaker whose time has passed is tried within five minutes, if there is a way to ask.",
        WARNING,
        "--repair probes; if you know that the service is up, `ironclip breakers reset SERVICE`.",
        rows.OPEN_AND_NOT_TRIED,
        _probe,
    ),
    Invariant(
        "trials_are_answered",
        "A trial that never reported back is replaced within five minutes.",
        WARNING,
        "--repair probes; if you know that the service is up, `ironclip breakers reset SERVICE`.",
        rows.TRIAL_WITHOUT_ANSWER,
        _probe,
    ),
    Invariant(
        "nobody_waits_for_nothing",
        "When a breaker closes, whoever waits for its service is woken.",
        WARNING,
        "--repair wakes them, and sweeps.",
        rows.WAITING_FOR_NOTHING,
        _wake,
    ),
    Invariant(
        "scratch_has_an_owner",
        "Every folder in SCRATCH_DIR/jobs of this machine belongs to a job that has not ended.",
        WARNING,
        "--repair removes it: of jobs that ended 10 min ago, and of unknown ones that nobody touched for a day.",
        _orphan_scratch,
        _remove_scratch,
    ),
    Invariant(
        "delivered_files_are_there",
        "Every delivered file of a current generation lies at its target, whole (only with --deep: reads them all).",
        ERROR,
        "Bring the target back, or submit the job again: nothing else has the file.",
        _missing_files,
        deep=True,
    ),
)
