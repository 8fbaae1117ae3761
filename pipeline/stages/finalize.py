"""finalize: nothing counts before it was seen at its target; then the manifest says what there is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipeline import crashpoints
from pipeline.core.errors import (
    BreakerOpen,
    IronclipError,
    NothingSucceeded,
    RerenderIncomplete,
    ScratchLost,
    TargetError,
    TargetRefused,
)
from pipeline.core.job import Outcome, OutputStatus
from pipeline.core.output import File, Output, outcome
from pipeline.crashpoints import At
from pipeline.delivery import deliver
from pipeline.media.source import shown
from pipeline.scratch import full_disk_is_ours
from pipeline.stages.context import Context
from pipeline.stages.delivering import key_of, raise_soonest
from pipeline.stages.done import Done
from pipeline.stages.services import of_target


def finalize(ctx: Context) -> Done:
    """Verify every output where it was delivered, settle what each has become, and publish the manifest."""
    deliveries = ctx.deliveries()
    for n, output in enumerate(outputs := ctx.outputs()):
        ctx.check()
        if not output.is_out:
            _settle(ctx, output, [d for d in deliveries if d["output_id"] == output.id])
        ctx.progress(100 * (n + 1) / len(outputs), n + 1)
    outputs, deliveries = ctx.outputs(), ctx.deliveries()
    how = outcome(outputs)
    if how is None:
        failed = next((o for o in outputs if o.status is OutputStatus.FAILED), None)
        raise NothingSucceeded(f"No output succeeded{f': {failed.error_message}' if failed else ''}.")
    if worse := ctx.worse():
        raise RerenderIncomplete(
            f"The new generation lacks {worse[0]}{f' and {len(worse) - 1} more' * (len(worse) > 1)}."
        )
    if any(d["status"] == "refused" for d in deliveries):
        how = Outcome.PARTIAL
    return Done(_manifest(ctx, outputs, deliveries, how), outcome=how)


def _settle(ctx: Context, output: Output, deliveries: list[dict[str, Any]]) -> None:
    """Completed if at least one target has all of it, failed if every target refused it."""
    try:
        if len(deliveries) < len(ctx.request.targets) or not output.files:
            raise ScratchLost(f"{output.name} was not delivered everywhere.")
        taken = [d for d in deliveries if d["status"] == "delivered" and _sees(ctx, output, d)]
    except ScratchLost:
        ctx.missed(output)
        raise
    if taken:
        ctx.completed(output)
    else:
        first = next(d for d in ctx.deliveries() if d["output_id"] == output.id and d["status"] == "refused")
        ctx.failed(output, TargetRefused(f"{first['target']}: {first['error_code']}: {first['error_message']}"))


def _sees(ctx: Context, output: Output, delivery: Mapping[str, Any]) -> bool:
    """Every file must lie at the target, whole; False if the target does not answer for so long that it is left out."""
    target = ctx.targets[delivery["target"]]
    for file in delivery["files"]:
        try:
            with ctx.service(of_target(target.name)):
                there = target.head(file["key"], check=ctx.check)
        except (TargetError, BreakerOpen) as exc:
            if not ctx.gives_up(target.name, exc):
                raise
            ctx.refused(output, target.name, exc)
            return False
        if there is None or there.sha256 != file["sha256"]:
            ctx.undelivered(delivery)
            raise ScratchLost(f"{file['key']} is not whole at {target.name}.")
    return True


def _manifest(ctx: Context, outputs: list[Output], deliveries: list[dict[str, Any]], how: Outcome) -> dict[str, Any]:
    """Publish the manifest; where it lies at each target that took it, and under which key."""
    content = {
        "job": str(ctx.job.id),
        "generation": ctx.job.building,
        "outcome": how,
        "source": shown(ctx.request.source),
        "outputs": [_entry(o, [d for d in deliveries if d["output_id"] == o.id]) for o in outputs],
    }

    # Written anew each time: it must say what is true now, whatever an earlier run had found.
    work = ctx.scratch.path("manifest-work.json")
    with full_disk_is_ours():
        work.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
    made = ctx.scratch.publish(work, ctx.scratch.path("manifest-final.json"), check=ctx.check)
    crashpoints.reached(At.MANIFEST_MADE)
    key = key_of(ctx, "manifest", File(name=made.path.name, sha256=made.sha256, size=made.size))
    urls = {}
    troubles: list[IronclipError] = []
    for name in _takers(ctx, deliveries):
        try:
            with ctx.service(of_target(name)):
                urls[name] = deliver(ctx.targets[name], made.path, key, made.sha256, check=ctx.check).url
        except (TargetError, BreakerOpen) as exc:
            if not isinstance(exc, TargetRefused) and not ctx.gives_up(name, exc):
                troubles.append(exc)
    crashpoints.reached(At.MANIFEST_PUT)
    raise_soonest(troubles)
    if not urls:
        raise TargetRefused("No target took the manifest.")
    return {"manifest": urls, "key": key}


def _takers(ctx: Context, deliveries: list[dict[str, Any]]) -> list[str]:
    """The targets but those that took nothing: where no file lies, nobody looks for the manifest."""
    answers = {name: {d["status"] for d in deliveries if d["target"] == name} for name in ctx.request.targets}
    return [name for name, said in answers.items() if said != {"refused"}]


def _entry(output: Output, deliveries: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": output.name,
        "kind": output.kind,
        "clip": output.clip,
        "quality": output.quality,
        "status": output.status,
        "facts": output.facts,
        "error": {"code": output.error_code, "message": output.error_message} if output.error_code else None,
        "files": [
            {"target": d["target"], **{k: f[k] for k in ("key", "url", "sha256", "size")}}
            for d in deliveries
            if d["status"] == "delivered"
            for f in d["files"]
        ],
        "refused": [
            {"target": d["target"], "code": d["error_code"], "message": d["error_message"]}
            for d in deliveries
            if d["status"] == "refused"
        ],
    }
