"""What does Ironclip do? A real video becomes a real clip with captions here, on servers of our own, from nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from pipeline import intake
from pipeline.cli import say, stack, summary, words
from pipeline.cli.failing import CommandFailed
from pipeline.cli.following import Screen, Silence, screen, watch
from pipeline.cli.stack import Stack
from pipeline.cli.up import describe
from pipeline.core.job import Status
from pipeline.media.sample import make_sample
from pipeline.store import reads
from pipeline.store.engine import database
from pipeline.supervisor import Event, Happening, until_told_to_stop

# Whole sentences of the sample's speech; the first is the main job's. None begins at a keyframe.
SPANS = ((10.8, 23.1), (7.7, 19.3), (16.5, 23.1), (10.8, 19.3))
PATIENCE_S = 180.0  # without any change in any job


def demo(
    jobs: Annotated[int, typer.Option(min=1, max=500, help="How many jobs to run.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running afterwards, until Ctrl-C.")] = False,
    as_json: say.Json = False,
) -> None:
    """A real video becomes a real clip with captions, from nothing."""
    began = time.monotonic()
    shown: Screen = Silence() if as_json else screen(jobs)
    with stack.stopped_by_signals(), shown:
        shown.note("starting Postgres and Redis")
        with stack.servers(share=True) as running, ThreadPoolExecutor(1) as aside:
            source = aside.submit(_sample, running.home, shown)
            with stack.everything(running, _teller(shown)) as it:
                ids = [intake.enqueue(_request(source.result(), n)).id for n in range(jobs)]
                done = _carried_through(it, ids, shown)
                shown.end()
                summary.demo(done, time.monotonic() - began, as_json=as_json)
                if not running.is_owner:
                    return  # they stay as they are
                if keep:
                    describe(it, as_json=as_json)
                    until_told_to_stop()
                shown.note("stopping the services")


def _sample(home: Path, shown: Screen) -> Path:
    """The demo's source, made once for each home."""
    path = home / "sample.mp4"
    if not path.exists():
        shown.note("making a video of 30 s with speech")
        make_sample(draft := home / "sample.making.mp4")
        draft.replace(path)
    return path


def _request(source: Path, n: int) -> dict[str, Any]:
    start, end = SPANS[n % len(SPANS)]
    return {"source": str(source), "clips": [{"name": "demo", "start": start, "end": end}], "captions": True}


def _carried_through(it: Stack, ids: Sequence[UUID], shown: Screen) -> list[dict[str, Any]]:
    """The jobs as they ended; CommandFailed if one of them did not complete."""
    watch(database(), ids, shown, _Patience(it))
    done = [reads.one(database(), job_id) for job_id in ids]
    lost = [job for job in done if job["status"] != Status.COMPLETED]
    if lost:
        first = lost[0]
        who = (
            f"Job {first['id']}" if len(ids) == 1 else f"{len(lost)} of {len(ids)} jobs did not complete: {first['id']}"
        )
        why = (
            f"{first['fail_code']}: {words.first_line(first['fail_reason'])}" if first["fail_code"] else first["status"]
        )
        raise CommandFailed(f"{who} ended as {first['status']} ({why}).", evidence=_evidence(it, first["last_error"]))
    return done


class _Patience:
    """Ends when nothing can be expected any more: no worker stays up, or nothing changes for too long."""

    def __init__(self, it: Stack) -> None:
        self._it = it
        self._seen: object = None
        self._since = self._looked = time.monotonic()

    def __call__(self) -> None:
        if self._it.keeps_dying("worker"):
            raise CommandFailed("The worker dies again and again.", evidence=_evidence(self._it, None))
        now = time.monotonic()
        if now - self._looked < 1:
            return
        self._looked = now
        running = reads.page(database(), status=Status.PROCESSING)
        seen = [reads.counts(database()), *((job["id"], job["stage"], job["progress"]) for job in running)]
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif now - self._since > PATIENCE_S:
            raise CommandFailed(f"Nothing has moved for {PATIENCE_S:g} s.", evidence=_evidence(self._it, None))


def _evidence(it: Stack, last_error: str | None) -> str:
    parts = [f"last error: {last_error}"] if last_error else []
    if tail := it.log_tail("worker"):
        parts += [f"--- {it.logs / 'worker.log'} ends with", tail]
    return "\n".join(parts)


def _teller(shown: Screen) -> Any:
    def tell(event: Event) -> None:
        if event.what in (Happening.DIED, Happening.KILLED):
            shown.note(str(event))
        elif event.what is Happening.STARTED:
            shown.note(f"{event.child} is starting")

    return tell
