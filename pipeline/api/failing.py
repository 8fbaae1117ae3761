"""What does somebody get who cannot get what was asked for?

One envelope, `{code, message, detail, request_id}`, under a stable code and the status that fits it. What nobody
foresaw is logged with its traceback, and the answer says only where to look for it: the request's id.
"""

from __future__ import annotations

import math
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from pipeline import log
from pipeline.core import errors
from pipeline.core.errors import BadRequest, DatabaseBusy, IronclipError, RateLimited
from pipeline.store.engine import TROUBLE, is_busy

logger = log.get("api")

RETRY_AFTER_S = 2
REQUEST_ID = "x-request-id"

STATUSES: dict[type[IronclipError], int] = {
    BadRequest: 422,
    errors.SourceForbidden: 422,
    errors.NotAuthenticated: 401,
    errors.InsufficientCredits: 402,
    errors.Forbidden: 403,
    errors.CsrfFailed: 403,
    errors.LinkInvalid: 403,
    errors.NoSuchJob: 404,
    errors.NoSuchKey: 404,
    errors.NoSuchFile: 404,
    errors.NoSuchWorker: 404,
    errors.NoSuchEndpoint: 404,
    errors.NoSuchDelivery: 404,
    errors.IdempotencyConflict: 409,
    errors.NotAllowedNow: 409,
    errors.BodyTooLarge: 413,
    errors.RateLimited: 429,
    errors.DatabaseUnavailable: 503,
    errors.DatabaseBusy: 503,
    errors.BrokerUnavailable: 503,
    errors.TargetDown: 503,
    errors.TooManyListeners: 503,
    errors.ScratchFull: 507,
}
OF_HTTP = {400: "MALFORMED", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "BODY_TOO_LARGE"}


class Problem(BaseModel):
    """What went wrong."""

    code: str = Field(examples=["NO_SUCH_JOB"])
    message: str = Field(examples=["There is no job 6f1c0a52-9a0e-4a63-8f5b-1d0f6c5e9a11."])
    detail: Any = Field(default=None, description="What the code leaves open: a field, a list of fields, or nothing.")
    request_id: str


def set_up(app: FastAPI) -> None:
    """Give every error its answer."""
    app.add_exception_handler(IronclipError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    for trouble in TROUBLE:
        app.add_exception_handler(trouble, _database)
    app.add_exception_handler(Exception, _unforeseen)


def problem(
    request_id: str, status: int, code: str, message: str, detail: Any = None, retry_s: float | None = None
) -> JSONResponse:
    """The envelope."""
    headers = {} if retry_s is None else {"Retry-After": str(max(1, math.ceil(retry_s)))}
    if status == 413:
        headers["Connection"] = "close"  # what is still on its way is not read
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    told = {"code": code, "message": message, "detail": detail, "request_id": request_id}
    return JSONResponse(told, status, headers)


def status_of(exc: IronclipError) -> int:
    return next((status for kind, status in STATUSES.items() if isinstance(exc, kind)), 500)


def id_of(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


def _ours(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, IronclipError)
    status = status_of(exc)
    if status == 500:
        return _unforeseen(request, exc)
    code = exc.reason if isinstance(exc, BadRequest) else exc.code
    field = getattr(exc, "field", None)
    wait_s = exc.wait_s if isinstance(exc, RateLimited) else RETRY_AFTER_S if status == 503 else None
    return problem(id_of(request), status, code, exc.message, {"field": field} if field else None, wait_s)


def _invalid(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, RequestValidationError)
    found = [{"field": ".".join(map(str, each["loc"])), "message": each["msg"]} for each in exc.errors()]
    if any(each["type"] == "json_invalid" for each in exc.errors()):
        return problem(id_of(request), 400, "MALFORMED", "The body is not JSON.", found)
    return problem(id_of(request), 422, "INVALID_REQUEST", "The request does not fit; see its detail.", found)


def _http(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, HTTPException)
    code = OF_HTTP.get(exc.status_code, f"HTTP_{exc.status_code}")
    answer = problem(id_of(request), exc.status_code, code, str(exc.detail).rstrip(".") + ".")
    answer.headers.update(exc.headers or {})
    return answer


def _database(request: Request, exc: Exception) -> JSONResponse:
    if not is_busy(exc):
        return _unforeseen(request, exc)
    logger.warning("database busy", extra={"request_id": id_of(request), "error": type(exc).__name__})
    return problem(id_of(request), 503, DatabaseBusy.code, "Postgres did not answer in time.", retry_s=RETRY_AFTER_S)


def _unforeseen(request: Request, exc: Exception) -> JSONResponse:
    logger.error("request failed", exc_info=exc, extra={"request_id": id_of(request), "path": request.url.path})
    return problem(id_of(request), 500, "INTERNAL", "Something went wrong that nobody foresaw; it is in our log.")
