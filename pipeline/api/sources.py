"""How does a video get here that lies nowhere else? It is sent as a raw body and written to disk as it comes.

It belongs to the account that sent it, under a name that nobody else can use: `upload:<id>`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated, Any
from uuid import UUID, uuid4

from fastapi import Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from pipeline import settings
from pipeline.api.access import Doors
from pipeline.api.caller import Asking, Caller
from pipeline.core.errors import BadRequest, BodyTooLarge, Forbidden, ScratchFull
from pipeline.media import source
from pipeline.store import uploads
from pipeline.store.engine import database

router = Doors(tags=["sources"])

MARK = "upload:"
STAFF = "_staff"  # no account can be called that
SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,10}")
WRITE_AT_ONCE = 1024 * 1024
BODY = {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


class Uploaded(BaseModel):
    source: str = Field(description="To be used as the source of a job.", examples=[f"{MARK}{uuid4()}"])
    size: int
    sha256: str


@router.post(
    "/api/sources", status_code=201, openapi_extra={"requestBody": BODY}, summary="Send a video (the body is the file)"
)
async def upload(
    asking: Asking, request: Request, name: Annotated[str, Query(max_length=200, description="For its suffix.")] = ""
) -> Uploaded:
    most = settings.current().upload_max_bytes
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > most:
        raise BodyTooLarge(f"A source has at most {most} bytes.")
    found = SUFFIX.fullmatch(Path(name).suffix)
    place = _folder(asking) / f"{uuid4()}{found.group().lower() if found else ''}"
    part = place.with_name(f".{place.name}.part")
    file = await run_in_threadpool(_begin, part, int(length) if length.isdigit() else 0)
    try:
        size, digest = await _receive(request, file, most)
        if size == 0:
            raise BadRequest("SOURCE_EMPTY", "The body is empty.", field="source")
        await run_in_threadpool(_finish, file, part, place)
    except ClientDisconnect:
        raise BadRequest("UPLOAD_BROKEN", "The body ended too early.") from None
    finally:
        file.close()
        with suppress(FileNotFoundError):
            part.unlink()
    return Uploaded(source=f"{MARK}{place.stem}", size=size, sha256=digest)


async def _receive(request: Request, file: IO[bytes], most: int) -> tuple[int, str]:
    size, digest, waiting = 0, hashlib.sha256(), bytearray()

    def write() -> None:
        try:
            file.write(waiting)
        except OSError as exc:
            raise ScratchFull("There is no room for this source.") from exc
        digest.update(waiting)
        waiting.clear()

    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise BodyTooLarge(f"A source has at most {most} bytes.")
        waiting += chunk
        if len(waiting) >= WRITE_AT_ONCE:
            await run_in_threadpool(write)
    await run_in_threadpool(write)
    return size, digest.hexdigest()


def _begin(part: Path, length: int) -> IO[bytes]:
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(part.parent).free - length < settings.current().min_free_disk_bytes:
            raise ScratchFull("There is no room for this source.")
        return part.open("xb")
    except OSError as exc:
        raise ScratchFull("There is no place for this source.") from exc


def _finish(file: IO[bytes], part: Path, place: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    at = uploads.now(database())  # its age is counted by that clock
    os.utime(part, (at, at))
    part.rename(place)


# -- in requests -----------------------------------------------------------------------------------------------------


def resolved(caller: Caller, request: Mapping[str, Any]) -> dict[str, Any]:
    """The request with the path of an upload in place of its name, if this caller may use its source."""
    given = request.get("source")
    if not isinstance(given, str):
        return dict(request)
    if given.startswith(MARK):
        return {**request, "source": str(_find(caller, given))}
    if not caller.is_staff and source.is_local(given):
        if not settings.current().source_roots:
            raise Forbidden("Clients use uploads and addresses; files of this machine only from SOURCE_ROOTS.")
        if Path(source.path_of(given)).resolve().is_relative_to(settings.current().uploads.resolve()):
            raise Forbidden("An upload is used by its name.")
    return dict(request)


def shown(path: str) -> str:
    """A source as it may be shown: no address with secrets, no path of ours."""
    place = Path(path)
    if place.is_absolute() and place.is_relative_to(settings.current().uploads):
        return f"{MARK}{place.stem}"
    return source.shown(path)


def _find(caller: Caller, given: str) -> Path:
    try:
        wanted = str(UUID(given.removeprefix(MARK)))
    except ValueError:
        wanted = "nothing"
    folders = settings.current().uploads.glob("*") if caller.is_staff else [_folder(caller)]
    for folder in folders:
        for place in folder.glob(f"{wanted}*"):
            return place
    raise BadRequest("SOURCE_MISSING", "There is no such upload.", field="source")


def _folder(caller: Caller) -> Path:
    return settings.current().uploads / (caller.account or STAFF)
