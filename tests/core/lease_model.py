"""What can happen to one job between its workers, its reaper and its messages?

`Model.steps` answers for every state: workers that read, write and die between any two steps, a reaper and a sweep
that do so too, a person who cancels, messages that are lost or come twice, answers that never arrive, and time that
ends a lease whenever that is worst. What a move does is not modelled: the real `pipeline.core.machine.transition`
decides. Modelled is what stands around it: the snapshot and the compare-and-set of `store.jobs.apply`, the lock of
`store.leases`, the fenced writes of `store.fenced`, and the objects at a target. `lease_walk` tries all of it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from pipeline.core.job import Job, Lease, Stage, Status
from pipeline.core.machine import transition
from pipeline.core.moves import Cancel, Claim, Complete, Crash, Expire, Move, Proof, Refusal, Release, Retry, Settlement

T = TypeVar("T")

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SPAN = timedelta(minutes=5)
JOB = UUID(int=1)
PLAN = (Stage.CLIP, Stage.FINALIZE)
NOBODY = 0  # a fence that opens nothing
TWICE = -1  # stands for the record of a stage that was completed more than once


@dataclass(frozen=True)
class Guards:
    """What keeps it safe and going. Everything is on in the real code; each that is off must be found out."""

    version: bool = True  # a move is written only on the version that it was decided on ...
    fence: bool = True  # ... and only for the holder that it was decided on
    side_fence: bool = True  # a record is written only under the fence ...
    side_lock: bool = True  # ... which nobody can take away between the look and the write
    fresh_fence: bool = True  # each claim has a fence that was never used before
    reaper_clears: bool = True  # the reaper takes the fence out of the row
    reaper_guard: bool = True  # the reaper holds the row's lock from its look to its write, which is a compare-and-set
    content_keys: bool = True  # an object's key carries the hash of its content
    reaps: bool = True  # somebody takes expired leases away
    sends_again: bool = True  # a published row whose message is gone is published once more


@dataclass(frozen=True)
class World:
    """How large a world is walked, and with which guards."""

    workers: int = 2
    stages: int = 2
    max_attempts: int = 2
    cancels: bool = True
    affinity: bool = True  # who completes a stage may claim the next one in the same statement
    releases: int = 0  # how often a worker may be told to stop
    errors: bool = False  # a stage may meet an error that passes
    guards: Guards = Guards()


class Row(NamedTuple):
    """The columns of a job that its rules look at."""

    status: Status
    stage: Stage
    fence: int
    late: bool  # its lease is over
    attempts: int
    releases: int
    waits: bool  # its backoff is not over
    published: bool
    generation: int


class Worker(NamedTuple):
    """Where one execution is, and what it remembers."""

    at: str = "idle"
    stage: int = 0
    fence: int = NOBODY
    seen: Row | None = None  # what it read or claimed ...
    is_fresh: bool = False  # ... and whether the row's version is still that one


IDLE = Worker()


class State(NamedTuple):
    """The row, everything that lies beside it, and everybody who may act."""

    row: Row
    records: tuple[int, ...]  # by stage: whose file the fenced record names
    objects: tuple[frozenset[int], ...]  # by stage: whose bytes lie at the target
    done: tuple[int | None, ...]  # by stage: what its record said when the stage was completed; None: not completed
    messages: tuple[bool, ...]  # by stage: whether any are on their way
    workers: tuple[Worker, ...]
    reaper: Row | None  # what it has read and, with its guard, locked
    sweep: int | None  # the stage that it has marked as published and not sent yet
    starts: int  # executions begun at this stage, given back ones not counted
    settled: int  # how often the ledger was settled
    cancels: int  # how often a person may still cancel


class Step(NamedTuple):
    """Something that may happen next."""

    said: str
    after: State
    kind: str = "work"  # "fault": may never happen; "person": nobody can count on it
    fence: int = NOBODY  # the one that was presented


# -- the real rules on modelled rows ---------------------------------------------------------------------------------


def _uuid(fence: int) -> UUID:
    return UUID(int=fence)


@cache
def _job(row: Row, world: World) -> Job:
    lease = None
    if row.fence != NOBODY:
        over = NOW - timedelta(seconds=1) if row.late else NOW + SPAN
        lease = Lease(holder="w", fence=_uuid(row.fence), request_id="r", expires_at=over, deadline_at=NOW + 9 * SPAN)
    return Job(
        id=JOB,
        status=row.status,
        stage=row.stage,
        plan=PLAN[: world.stages],
        generation=row.generation,
        lease=lease,
        attempt_count=row.attempts,
        max_attempts=world.max_attempts,
        release_count=row.releases,
        next_earliest_run_at=NOW + SPAN if row.waits else None,
        published_at=NOW if row.published else None,
    )


def _row(job: Job) -> Row:
    return Row(
        status=job.status,
        stage=job.stage,
        fence=job.fence.int if job.fence else NOBODY,
        late=bool(job.lease and job.lease.expires_at <= NOW),
        attempts=job.attempt_count,
        releases=job.release_count,
        waits=not job.is_due(NOW),
        published=job.published_at is not None,
        generation=job.generation,
    )


Decided = tuple[Row, tuple[Settlement | None, ...]]
_decided: dict[tuple[Any, ...], tuple[Row, Settlement | None] | Refusal] = {}


def decide(row: Row, moves: tuple[Move, ...], world: World) -> Decided | Refusal:
    """What the real machine makes of the row."""
    settlements: list[Settlement | None] = []
    for move in moves:
        answer = _decide(row, move, world)
        if isinstance(answer, Refusal):
            return answer
        row = answer[0]
        settlements.append(answer[1])
    return row, tuple(settlements)


def _decide(row: Row, move: Move, world: World) -> tuple[Row, Settlement | None] | Refusal:
    told = tuple(getattr(move, name, None) for name in ("fence", "stage", "proof"))
    key = (row, type(move), told, world.stages, world.max_attempts)
    if key not in _decided:
        change = transition(_job(row, world), move, NOW)
        _decided[key] = change if isinstance(change, Refusal) else (_row(change.job), change.settlement)
    return _decided[key]


def _claim(stage: int, fence: int) -> Claim:
    return Claim(stage=PLAN[stage], holder="w", fence=_uuid(fence), lease=SPAN)


# -- one world -------------------------------------------------------------------------------------------------------


class Model:
    """Every step that is possible in a state."""

    def __init__(self, world: World) -> None:
        self.world, self.guards = world, world.guards

    def start(self) -> State:
        """A job that was just enqueued; its message is on its way."""
        n = self.world.stages
        row = _row(Job(id=JOB, stage=PLAN[0], plan=PLAN[:n], max_attempts=self.world.max_attempts, published_at=NOW))
        return State(
            row=row,
            records=(NOBODY,) * n,
            objects=(frozenset(),) * n,
            done=(None,) * n,
            messages=(True,) + (False,) * (n - 1),
            workers=(IDLE,) * self.world.workers,
            reaper=None,
            sweep=None,
            starts=0,
            settled=0,
            cancels=int(self.world.cancels),
        )

    def steps(self, state: State) -> Iterator[Step]:
        for n, worker in enumerate(state.workers):
            yield from _STEPS[worker.at](self, state, n, worker)
            if worker.at != "idle":
                yield from self._dies(state, n, worker)
        yield from self._reaper(state)
        yield from self._sweep(state)
        yield from self._messages(state)
        yield from self._people(state)
        yield from self._time(state)

    # -- writing the row ---------------------------------------------------------------------------------------------

    def _is_locked(self, state: State) -> bool:
        return state.reaper is not None and self.guards.reaper_guard

    def _written(self, state: State, seen: Row, is_fresh: bool, *moves: Move, by_reaper: bool = False) -> State | None:
        """The state after the guarded write of what was decided on `seen`; None: the guard did not let it through."""
        decided = decide(seen, moves, self.world)
        assert not isinstance(decided, Refusal)
        guarded = self.guards.reaper_guard or not by_reaper
        if guarded and self.guards.version and not is_fresh:
            return None
        if guarded and self.guards.fence and seen.fence != state.row.fence:
            return None
        after, settlements = decided
        changed: dict[str, Any] = {
            name: new for name, new, old in zip(Row._fields, after, seen, strict=True) if new != old
        }
        if by_reaper and not self.guards.reaper_clears:
            changed["fence"] = state.row.fence
        row = state.row._replace(**changed)
        if row.fence == NOBODY:
            row = row._replace(late=False)
        settled = min(2, state.settled + sum(each is not None for each in settlements))
        workers = tuple(w._replace(is_fresh=False) for w in state.workers)
        return self._counted(state._replace(row=row, settled=settled, workers=workers), seen.stage, moves)

    def _counted(self, state: State, stage: Stage, moves: tuple[Move, ...]) -> State:
        """With the executions that began or ended; what its record says belongs to a completed stage from then on."""
        starts, done = state.starts, state.done
        for move in moves:
            match move:
                case Claim():
                    starts += 1
                case Release():
                    starts -= 1
                case Complete():
                    n = PLAN.index(stage)
                    done = _at(done, n, TWICE if done[n] is not None else state.records[n])
                    starts = 0
        return state._replace(starts=starts, done=done)

    def _applied(self, state: State, move: Move) -> State | None:
        """The state after a whole `apply`: read, decided and written, as often as it takes."""
        if self._is_locked(state) or isinstance(decide(state.row, (move,), self.world), Refusal):
            return None
        return self._written(state, state.row, True, move)

    def _new_fence(self, state: State) -> int:
        """One that nobody and nothing remembers. Without the guard: the same for each claim of a stage."""
        if not self.guards.fresh_fence:
            return 1
        known = {state.row.fence, *state.records, *(w.fence for w in state.workers), *(d or NOBODY for d in state.done)}
        known |= {f for there in state.objects for f in there}
        return next(f for f in range(1, 99) if f not in known)

    # -- a worker ----------------------------------------------------------------------------------------------------

    def idle(self, state: State, n: int, worker: Worker) -> Iterator[Step]:
        for stage, is_there in enumerate(state.messages):
            if is_there:
                said, after = self._reads(state, n, stage)
                said = f"worker {n} gets a message for stage {stage}, {said}"
                yield Step(said, _sent(after, stage, False))
                yield Step(f"{said}; another copy is left", after, "fault")

    def _reads(self, state: State, n: int, stage: int) -> tuple[str, State]:
        """It reads the row and decides at once: to claim it, or that the message has done its work."""
        answer = decide(state.row, (_claim(stage, self._new_fence(state)),), self.world)
        if not isinstance(answer, Refusal):
            return "reads the row", _with(state, n, Worker("read", stage, seen=state.row, is_fresh=True))
        onward = answer is Refusal.ALREADY_DONE and stage + 1 < self.world.stages
        return f"is refused: {answer}", _with(state, n, Worker("tell", stage + 1) if onward else IDLE)

    def read(self, state: State, n: int, worker: Worker) -> Iterator[Step]:
        """It writes what it decided on what it read."""
        assert worker.seen is not None
        if self._is_locked(state):
            return
        fence = self._new_fence(state)
        claim = _claim(worker.stage, fence)
        won = self._written(state, worker.seen, worker.is_fresh, claim)
        if won is None:
            said, after = self._reads(state, n, worker.stage)
            yield Step(f"worker {n} lost the race for the claim, {said}", after)
            return
        yield from self._claimed(state, won, n, worker.stage, fence, f"worker {n} claims stage {worker.stage}")

    def _claimed(self, before: State, won: State, n: int, stage: int, fence: int, said: str) -> Iterator[Step]:
        """The claim is written; perhaps nobody hears so."""
        held = Worker("held", stage, fence, won.row, is_fresh=True)
        presented = before.workers[n].fence
        yield Step(f"{said} with fence {fence}", _with(won, n, held), fence=presented)
        unsure = _with(won, n, held._replace(at="unsure"))
        yield Step(f"{said} with fence {fence} and hears no answer", unsure, "fault", presented)

    def unsure(self, state: State, n: int, worker: Worker) -> Iterator[Step]:
        """The claim was sent once more and found the row moved, so the row is read: is that fence ours?"""
        if state.row.fence == worker.fence:
            held = worker._replace(at="held", seen=state.row, is_fresh=True)
            yield Step(f"worker {n} reads the row and finds its own claim", _with(state, n, held))
        else:
            said, after = self._reads(state, n, worker.stage)
            yield Step(f"worker {n} does not find its claim, {said}", after)

    def held(self, state: State, n: int, worker: Worker) -> Iterator[Step]:
        """It does the work. Nothing fences a target: the object gets there, whoever holds the job by now."""
        s, fence = worker.stage, worker.fence
        there = state.objects[s] | {fence} if self.guards.content_keys else frozenset({fence})
        put = state._replace(objects=_at(state.objects, s, there))
        yield Step(
            f"worker {n} (fence {fence}) puts its object of stage {s}",
            _with(put, n, worker._replace(at="put")),
            fence=fence,
        )
        if state.records[s] != NOBODY and state.records[s] in state.objects[s]:
            yield Step(f"worker {n} finds stage {s} recorded and whole", _with(state, n, worker._replace(at="ready")))
        yield from self._ends_badly(state, n, worker)

    def put(self, state: State, n: int, worker: Worker) -> Iterator[Step]:
        """It records its object under the fence: the look at the fence and the write are one statement."""
        if self._is_locked(state):
            return
        mine = state.row.status is Status.PROCESSING and state.row.fence == worker.fence
        if not mine and self.guards.side_fence:
            yield Step(f"worker {n} (fence {worker.fence}) may not record: it lost the job", _with(state, n, IDLE))
        elif self.guards.side_lock:
            yield self._records(state, n, worker)
        else:
            yield Step(f"worker {n} sees that it may record", _with(state, n, worker._replace(at="looked")))

    def looked(self, state: State, n: int, worker: Worker) -> Iterator[Step]:
        yield self._records(state, n, worker)

    def _records(self, state: State, n: int, worker: Worker) -> Step:
        noted = state._replace(records=_at(state.records, worker.stage, worker.fence))
        said = f"worker {n} (fence {worker.fence}) records its object of stage {worker.stage}"
        return Step(said, _with(noted, n, worker._replace(at="ready")), fence=worker.fence)

    def ready(self, state: State, n: int, worker: Worker) -> Iterator[Step]:
        """It completes on the snapshot of its claim; if that is old, only the row says why not."""
        if self._is_locked(state):
            return
        assert worker.seen is not None
        move = Complete(fence=_uuid(worker.fence))
        after = self._written(state, worker.seen, worker.is_fresh, move)
        if after is None:  # the row is read, and decides; nobody else moves it in between, or this comes again
            after = self._applied(state, move)
        if after is None:
            yield Step(f"worker {n} (fence {worker.fence}) may not complete: it lost the job", _with(state, n, IDLE))
            return
        said = f"worker {n} (fence {worker.fence}) completes stage {worker.stage}"
        onward = worker.stage + 1 < self.world.stages
        tell = _with(after, n, Worker("tell", worker.stage + 1) if onward else IDLE)
        yield Step(said, tell, fence=worker.fence)
        yield Step(f"{said} and hears no answer", _with(after, n, IDLE), "fault", worker.fence)
        if onward and self.world.affinity:
            yield from self._keeps(state, n, worker, move, said)
        yield from self._ends_badly(state, n, worker)

    def _keeps(self, state: State, n: int, worker: Worker, complete: Complete, said: str) -> Iterator[Step]:
        """It completes a stage and claims the next one, in one statement."""
        assert worker.seen is not None
        fence = self._new_fence(state)
        moves = (complete, _claim(worker.stage + 1, fence))
        if isinstance(decide(worker.seen, moves, self.world), Refusal):
            return
        won = self._written(state, worker.seen, worker.is_fresh, *moves)
        if won is not None:
            yield from self._claimed(state, won, n, worker.stage + 1, fence, f"{said} and claims the next one")

    def tell(self, state: State, n: int, worker: Worker) -> Iterator[Step]:
        sent = _sent(state, worker.stage)
        yield Step(f"worker {n} publishes the link for stage {worker.stage}", _with(sent, n, IDLE))

    def widow(self, state: State, n: int, worker: Worker) -> Iterator[Step]:
        """The main process saw the child die, or somebody proved that the whole worker is gone."""
        if self._is_locked(state):
            return
        fence = _uuid(worker.fence)
        for move in (Crash(fence=fence, evidence="signal 9"), Expire(proof=Proof.WORKER_DEAD, fence=fence)):
            after = self._applied(state, move)
            said = f"the parent of worker {n} reports its death ({type(move).__name__}, fence {worker.fence})"
            yield Step(said, _with(after or state, n, IDLE), fence=worker.fence)

    def _ends_badly(self, state: State, n: int, worker: Worker) -> Iterator[Step]:
        fence = _uuid(worker.fence)
        moves: list[Move] = []
        if self.world.errors:
            moves.append(Retry(fence=fence, code="X", reason="x", delay=SPAN))
        if state.row.releases < self.world.releases:
            moves.append(Release(fence=fence))
        for move in moves:
            after = self._applied(state, move)
            said = f"worker {n} (fence {worker.fence}) plays {type(move).__name__}"
            yield Step(said, _with(after or state, n, IDLE), "fault", worker.fence)

    def _dies(self, state: State, n: int, worker: Worker) -> Iterator[Step]:
        gone = _with(state, n, IDLE)
        yield Step(f"worker {n} dies ({worker.at}), its message is lost", gone, "fault")
        yield Step(
            f"worker {n} dies ({worker.at}), its message comes again",
            _sent(gone, worker.stage),
            "fault",
        )
        if worker.fence != NOBODY and worker.at != "widow":
            widow = _with(state, n, Worker("widow", worker.stage, worker.fence))
            yield Step(f"worker {n} dies ({worker.at}) and its parent sees it", widow, "fault")

    # -- everybody else ----------------------------------------------------------------------------------------------

    def _reaper(self, state: State) -> Iterator[Step]:
        if state.reaper is None:
            if self.guards.reaps and state.row.status is Status.PROCESSING and state.row.late:
                yield Step("the reaper finds an expired lease", state._replace(reaper=state.row))
            return
        yield Step("the reaper dies", state._replace(reaper=None), "fault")
        # Under the lock nothing moved since it looked; without it, the write goes wherever the row is by now.
        seen = state.reaper
        expire = Expire(fence=_uuid(seen.fence))
        after = self._written(state._replace(reaper=None), seen, True, expire, by_reaper=True)
        yield Step(f"the reaper takes fence {seen.fence} away", after or state._replace(reaper=None))

    def _sweep(self, state: State) -> Iterator[Step]:
        if state.sweep is not None:
            sent = _sent(state, state.sweep)
            yield Step(f"sweep publishes stage {state.sweep}", sent._replace(sweep=None))
            yield Step("sweep dies before it publishes", state._replace(sweep=None), "fault")
            return
        row, stage = state.row, PLAN.index(state.row.stage)
        if row.status is not Status.QUEUED or row.waits or self._is_locked(state):
            return
        if not row.published or (self.guards.sends_again and not state.messages[stage]):
            marked = state._replace(row=row._replace(published=True), sweep=stage)
            yield Step(f"sweep marks the row as published at stage {stage}", marked)

    def _messages(self, state: State) -> Iterator[Step]:
        for stage, is_there in enumerate(state.messages):
            if is_there:
                yield Step(f"the messages for stage {stage} are lost", _sent(state, stage, False), "fault")

    def _people(self, state: State) -> Iterator[Step]:
        if state.cancels:
            after = self._applied(state, Cancel(by="ann"))
            if after is not None:
                yield Step("a person cancels", after._replace(cancels=0), "person")

    def _time(self, state: State) -> Iterator[Step]:
        row = state.row
        if row.waits:
            yield Step("the backoff is over", state._replace(row=row._replace(waits=False)))
        if self._is_locked(state) or row.status is not Status.PROCESSING:
            return
        if not row.late:
            yield Step("the lease runs out", state._replace(row=row._replace(late=True)))
        elif any(w.at in ("held", "put", "looked", "ready", "unsure") for w in state.workers):
            # Whoever runs anything may push it out, a ghost too: safety must not hang on who renews.
            yield Step("the lease is renewed", state._replace(row=row._replace(late=False)))


_STEPS: dict[str, Callable[[Model, State, int, Worker], Iterator[Step]]] = {
    "idle": Model.idle,
    "read": Model.read,
    "unsure": Model.unsure,
    "held": Model.held,
    "put": Model.put,
    "looked": Model.looked,
    "ready": Model.ready,
    "tell": Model.tell,
    "widow": Model.widow,
}


def _at(values: tuple[T, ...], n: int, value: T) -> tuple[T, ...]:
    return (*values[:n], value, *values[n + 1 :])


def _with(state: State, n: int, worker: Worker) -> State:
    return state._replace(workers=_at(state.workers, n, worker))


def _sent(state: State, stage: int, is_there: bool = True) -> State:
    return state._replace(messages=_at(state.messages, stage, is_there))
