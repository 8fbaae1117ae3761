"""asr, alone: what is said in a file becomes captions at the targets that were named, without any clip or job.

It has its own lease, attempts and checkpoints, and so it is asked the same questions as a stage of a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from functools import cached_property
from typing import Any

from pipeline import crashpoints
from pipeline.core.errors import BreakerOpen, IronclipError, SourceUnreadable, TargetError, TargetRefused
from pipeline.core.job import Outcome
from pipeline.crashpoints import At
from pipeline.delivery import deliver
from pipeline.media import probe
from pipeline.stages.context import Context, Unit
from pipeline.stages.delivering import key_of, raise_soonest
from pipeline.stages.done import Done
from pipeline.stages.listening import listen, said_in, subtitles
from pipeline.stages.resolve import have_source
from pipeline.stages.services import of_target
from pipeline.store import asr


class Alone(Context):
    """A context whose row is in `asr_jobs`: what it remembers stands in that row."""

    @cached_property
    def _records(self) -> dict[str, dict[str, Any]]:
        return asr.records(self._db, self.job.id)

    def remember(self, key: str, record: Mapping[str, Any]) -> None:
        """A unit is done."""
        self._must_be_ours(asr.remember(self._db, self.job.id, self._fence, key, record))
        crashpoints.reached(At.UNIT_RECORDED)
        self._records[key] = dict(record)

    def said(self, transcript: Mapping[str, Any]) -> None:
        """Keep the words."""
        self._must_be_ours(asr.transcribed(self._db, self.job.id, self._fence, transcript))
        crashpoints.reached(At.WORDS_KEPT)


def transcribe(ctx: Alone) -> Done:
    """Hear the file, and bring its captions to each target; one that refuses them does not keep them from others."""
    name = ctx.request.clips[0].name
    path = have_source(ctx)
    facts = probe.probe(path)
    if not facts.has_audio:
        raise SourceUnreadable("The file has no sound.")

    def on_seconds(done_s: float, total_s: float) -> None:
        ctx.progress(100 * done_s / total_s if total_s else None, done_s)

    spoken = listen(ctx, name, path, facts, on_seconds)
    said = said_in(spoken)
    ctx.said({"text": said.text, "language": said.language, "engine": said.engine})
    places, refused = _deliver(ctx, name, [spoken, *subtitles(ctx, name, said)])
    found = {**spoken.facts, "duration_s": round(said.duration_s, 3), "files": places, "refused": refused}
    outcome = Outcome.PARTIAL if refused else Outcome.FULL
    return Done(found, expected_duration=timedelta(seconds=facts.duration_s), outcome=outcome)


def _deliver(ctx: Alone, name: str, units: list[Unit]) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Where the files lie at each target that took them, and why the others did not."""
    places: dict[str, list[dict[str, Any]]] = {}
    refused: dict[str, TargetRefused] = {}
    troubles: list[IronclipError] = []
    for target in ctx.request.targets:
        try:
            with ctx.service(of_target(target)):
                places[target] = [
                    asdict(
                        deliver(ctx.targets[target], u.path, key_of(ctx, name, u.file), u.file.sha256, check=ctx.check)
                    )
                    for u in units
                ]
        except TargetRefused as exc:
            refused[target] = exc
        except (TargetError, BreakerOpen) as exc:
            troubles.append(exc)
    raise_soonest(troubles)
    if not places:
        raise next(iter(refused.values()))
    return places, {target: f"{error.code}: {error.message}" for target, error in refused.items()}
