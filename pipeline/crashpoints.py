"""Where may a process die? Anywhere; these are the moments when it would hurt most.

Each stands at a commit or at an effect outside of Postgres. `reached` does nothing, unless IRONCLIP_CRASH_AT names the
point (`claimed`, or `claimed#3` for the third time that a process comes there): then the process is killed on the spot.
IRONCLIP_CRASH_OF=tree takes the whole process group along, as in a power cut. IRONCLIP_CRASH_NOTE names a file that is
made at the death; while it exists nobody dies again. tests/stages/test_crash_points.py dies at each of them.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from enum import Enum
from functools import cache


class At(Enum):
    """Every point: its name, and what is done and what is not when a process dies there."""

    def __init__(self, said: str, meaning: str) -> None:
        self.said = said
        self.meaning = meaning

    ROW_INSERTED = "row-inserted", "a new job's row is written and not committed"
    ROW_COMMITTED = "row-committed", "a new job's row is there, its message is not sent"
    ROW_SENT = "row-sent", "a new job's message is sent, and who asked has no answer"
    ASKED = "asked", "a person asked to cancel or requeue, nothing is written"
    ANSWERED = "answered", "a person's move is committed, and nobody was told"
    HINT_MARKED = "hint-marked", "a job is marked as published, its message is not sent"

    CLAIMING = "claiming", "a message is here, the job is not claimed"
    CLAIMED = "claimed", "the job is claimed, nothing is begun"
    UNIT_MADE = "unit-made", "a file is whole under its working name"
    UNIT_NAMED = "unit-named", "a file has its final name and no record"
    UNIT_RECORDED = "unit-recorded", "a file is recorded, its output does not know of it"
    UNIT_ADOPTED = "unit-adopted", "a dead holder's file is linked and does not have its name yet"
    OUTPUT_NOTED = "output-noted", "what became of an output is written down"
    WORDS_KEPT = "words-kept", "a transcript is committed, its captions are not delivered"
    PUTTING = "putting", "a target does not have the file yet"
    PUT_HIDDEN = "put-hidden", "a target has the whole file under a hidden name"
    PUT = "put", "a target has the file, no record says so"
    DELIVERY_RECORDED = "delivery-recorded", "a delivery is recorded, the stage goes on"
    MANIFEST_MADE = "manifest-made", "the manifest is written in scratch, no target has it"
    MANIFEST_PUT = "manifest-put", "a target has the manifest, the job is not completed"
    SETTLING = "settling", "a stage's work is done, the row does not say so"
    SETTLED = "settled", "the row says how the stage ended, scratch is as it was"
    CLEARING = "clearing", "a job is final, its scratch is still there"
    LINK_DUE = "link-due", "a stage is completed, the next link of its chain is not published"

    REAP_FOUND = "reap-found", "expired leases are locked, none is taken away"
    REAP_WRITTEN = "reap-written", "expired leases are taken away and not committed"
    REAPED = "reaped", "expired leases are taken away, nobody was told"
    SWEEP_MARKED = "sweep-marked", "a due row is marked as published, its message is not sent"
    SWEEP_SENT = "sweep-sent", "a due row's message is sent, the sweep goes on"


@dataclass
class _Plan:
    """Where this process is to die, and how often it still passes there before."""

    at: str
    left: int

    def count(self) -> bool:
        self.left -= 1
        return self.left == 0


@cache
def _plan() -> _Plan | None:
    at, _, nth = os.environ.get("IRONCLIP_CRASH_AT", "").partition("#")
    return _Plan(at, int(nth or 1)) if at else None


def reached(point: At) -> None:
    """Go on; or die here, if that is what the environment asks for."""
    plan = _plan()
    if plan is None or plan.at != point.said or not plan.count() or not _is_first():
        return
    if os.environ.get("IRONCLIP_CRASH_OF") == "tree":
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _is_first() -> bool:
    """Whether nobody has died before us; asked and answered in one step, so that no two of us do."""
    note = os.environ.get("IRONCLIP_CRASH_NOTE")
    if not note:
        return True
    try:
        os.close(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True
