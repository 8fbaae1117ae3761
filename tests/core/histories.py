"""Any history that a job could have: acts in any order, by anybody, at any time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from hypothesis import strategies as st

from pipeline.core.job import Job, Outcome, Stage
from pipeline.core.moves import Cancel, Expire, Move, Proof, Requeue, Rerender
from tests.core.lives import claim, complete, crash, defer, fail, release, retry, rewind, stall

OUTSIDE = ("cancel", "requeue", "requeue failed", "rerender")
HOLDING = ("complete", "complete partly", "retry", "defer", "rewind", "fail", "release", "crash", "stall")
OTHERS = ("claim", "claim another", "expire", "worker dead")


@dataclass(frozen=True)
class Act:
    """Something that somebody does, whatever the job's state is."""

    kind: str
    wait: timedelta  # how long after the last one
    whose: int  # 0: the fence of the row; n: the n-th fence before it
    stage: Stage

    def move(self, job: Job, fences: list[UUID]) -> Move:
        """The move, for a job that has handed out these fences (the newest last)."""
        fence = fences[-1 - self.whose] if self.whose < len(fences) else uuid4()
        match self.kind:
            case "claim":
                return claim(job)
            case "claim another":
                return claim(job, stage=self.stage)
            case "complete":
                return complete(fence, found={"n": 1})
            case "complete partly":
                return complete(fence, outcome=Outcome.PARTIAL)
            case "retry":
                return retry(fence)
            case "defer":
                return defer(fence, delay=timedelta(minutes=20), max_wait=timedelta(hours=2))
            case "rewind":
                return rewind(fence, to=self.stage)
            case "fail":
                return fail(fence)
            case "release":
                return release(fence)
            case "crash":
                return crash(fence)
            case "stall":
                return stall(fence)
            case "expire":
                return Expire()
            case "worker dead":
                return Expire(proof=Proof.WORKER_DEAD, fence=fence)
            case "cancel":
                return Cancel(by="ann")
            case "requeue":
                return Requeue(by="op", stage=self.stage if self.whose else None)
            case "requeue failed":
                return Requeue(by="op", failed_only=True)
            case "rerender":
                return Rerender(by="ann")
        raise AssertionError(self.kind)


# Claims and completions come often, or no history would ever get far.
kinds = st.one_of(
    st.just("claim"),
    st.sampled_from(("complete", "claim")),
    st.sampled_from(HOLDING + OTHERS),
    st.sampled_from(OUTSIDE),
)
waits = st.sampled_from([timedelta(0), timedelta(seconds=1), timedelta(minutes=6), timedelta(minutes=30)])
acts = st.builds(
    Act,
    kind=kinds,
    wait=waits,
    whose=st.sampled_from([0, 0, 0, 0, 1, 2, 99]),
    stage=st.sampled_from(Stage),
)


def plans() -> st.SearchStrategy[tuple[Stage, ...]]:
    """Plans in order, with or without each stage; never empty."""
    return st.sets(st.sampled_from(Stage), min_size=1).map(lambda chosen: tuple(s for s in Stage if s in chosen))


@dataclass
class Clock:
    now: datetime

    def pass_by(self, span: timedelta) -> datetime:
        self.now += span
        return self.now
