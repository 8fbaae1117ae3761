"""Finished files over HTTP: by a signed link, with byte ranges; and the newest of an output under a name that stays."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import Path, Query
from fastapi.responses import FileResponse, RedirectResponse
from starlette.responses import Response

from pipeline import delivery, settings
from pipeline.api import links
from pipeline.api.access import Doors
from pipeline.api.caller import Asking
from pipeline.api.jobs import check_owner
from pipeline.core.errors import NoSuchFile
from pipeline.delivery import Target
from pipeline.delivery.file import FileTarget
from pipeline.delivery.target import key_parts
from pipeline.store import outputs, reads
from pipeline.store.engine import database

router = Doors(tags=["files"])

# By suffix: what a browser must know to play it. Everything else is only downloaded.
TYPES = {
    "mp4": "video/mp4",
    "m4s": "video/iso.segment",
    "ts": "video/mp2t",
    "m3u8": "application/vnd.apple.mpegurl",
    "vtt": "text/vtt; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "json": "application/json",
    "jpg": "image/jpeg",
}
BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file", **BYTES},
    206: {"description": "The bytes that were asked for", **BYTES},
    307: {"description": "It lies at another server; there is its signed address"},
    416: {"description": "There are no such bytes"},
}


@router.get(
    "/api/files/{grant}/{job_id}/{path:path}",
    response_class=FileResponse,
    responses=ANSWERS,
    summary="A file, by a signed link",
)
def read(grant: Annotated[str, Path(max_length=100)], job_id: UUID, path: str) -> Response:
    left_s = links.check(grant, job_id)
    key = links.folder(job_id) + path
    known = delivery.load(settings.current())
    for name in outputs.targets_of(database(), job_id, key):
        if name in known and (answer := _from(known[name], key, left_s)):
            return answer
    raise NoSuchFile("There is no such file of this job any more.")


@router.get(
    "/api/jobs/{job_id}/outputs/{name}/newest",
    status_code=307,
    response_class=RedirectResponse,
    summary="The newest file of an output",
)
def newest(
    asking: Asking,
    job_id: UUID,
    name: Annotated[str, Path(max_length=200)],
    suffix: Annotated[str | None, Query(max_length=10, description="Which of its files: mp4, vtt ...")] = None,
) -> RedirectResponse:
    """Leads to a fresh signed link; while the job is rerendered, to what is published."""
    check_owner(asking, job_id)
    output = reads.newest_output(database(), job_id, name)
    keys = [file["key"] for each in output["deliveries"] for file in each["files"]] if output else []
    key = next((key for key in keys if suffix is None or key.endswith(f".{suffix}")), None)
    if key is None:
        raise NoSuchFile(f"The output {name!r} has no such file yet.")
    return RedirectResponse(links.to(job_id, key), 307, headers={"Cache-Control": "no-store"})


def _from(target: Target, key: str, left_s: float) -> Response | None:
    """The file as this target has it; None if it cannot give it to a browser."""
    if isinstance(target, FileTarget):
        path = target.root.joinpath(*key_parts(key))
        if not path.is_file() or path.is_symlink():
            return None
        kind = TYPES.get(path.suffix.removeprefix("."))
        kept = {"Cache-Control": f"private, max-age={int(left_s)}", "Content-Security-Policy": "sandbox"}
        shown = "inline" if kind else "attachment"
        return FileResponse(
            path,
            media_type=kind or "application/octet-stream",
            filename=path.name,
            content_disposition_type=shown,
            headers=kept,
        )
    address = getattr(target, "signed_url", None)
    return RedirectResponse(address(key, left_s), 307) if address else None
