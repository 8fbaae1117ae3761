"""What stands on the pictures of the docs: an hour in which a lot happened, told in a moment."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sqlalchemy import text

from pipeline.store import credits as ledger
from tests.cluster.system import wait_for
from tests.web.visitor import Stack

WANTED = bool(os.environ.get("IRONCLIP_PICTURES"))

# The same job again and again, ended somewhere in the last hour: more of them in its middle.
AGAIN = text("""
    INSERT INTO jobs
    SELECT (jsonb_populate_record(j, jsonb_build_object(
               'id', gen_random_uuid(),
               'finished_at', clock_timestamp() - n * interval '21 s' - interval '1 min' * (n * n % 7),
               'created_at', j.created_at - interval '2 h' - n * interval '1 s'))).*
      FROM jobs j CROSS JOIN generate_series(1, :times) AS n WHERE j.id = :id AND n % 5 <> n % 3""")


def busy_hour(stack: Stack, folder: Path) -> None:
    """Jobs in every state, and many that ended lately."""
    for account in ("acme", "globex"):
        ledger.grant(stack.api.db, account, 500, reference=f"for {account}")
    done = [stack.submit(source=_film(stack, folder, name), account=who, captions=False) for name, who in DONE]
    broken = folder / "upload-0412.mp4"
    broken.write_bytes(b"not a film")
    failed = stack.submit(source=str(broken), account="globex")
    for job in done:
        stack.until(job, "completed")
    stack.until(failed, "failed")
    stack.api.db.run(AGAIN, id=done[0], times=165)
    stack.api.db.run(AGAIN, id=failed, times=9)
    away = stack.submit(source="https://media.nowhere.invalid/press-conference.mp4", account="acme")
    wait_for("it to wait", lambda: stack.show(away)["waiting_on"])
    long = [{"name": f"part{n}", "start": n + 0.5, "end": 19.5} for n in range(3)]
    for name, who in RUNNING:
        stack.submit(source=_film(stack, folder, name), account=who, clips=long, qualities=["source", "480p", "360p"])
    wait_for("some progress", lambda: sum(stack.show(job)["progress"] > 20 for job in _running(stack)) >= 2)


DONE = [("keynote-day-1.mp4", "acme"), ("board-meeting.mp4", "globex"), ("lecture-07.mp4", "acme")]
RUNNING = [
    ("interview-raw.mp4", "globex"),
    ("town-hall.mp4", "acme"),
    ("webinar-march.mp4", "acme"),
    ("podcast-12.mp4", "globex"),
]


def _running(stack: Stack) -> list[str]:
    with stack.http() as http:
        return [job["id"] for job in http.get("/api/jobs", params={"status": "processing"}).json()["jobs"]]


def _film(stack: Stack, folder: Path, name: str) -> str:
    return str(shutil.copy(stack.sample, folder / name))
