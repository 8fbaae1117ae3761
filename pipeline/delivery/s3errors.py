"""What does an error of S3 mean for a target?

Judged by its code, then by its HTTP status. What the server wrote is not repeated: it may show what was signed.
"""

from __future__ import annotations

import ssl
from typing import Any

from pipeline.core.errors import (
    TargetDiskFull,
    TargetDown,
    TargetError,
    TargetNotFound,
    TargetPermissionDenied,
    TargetRefused,
    TargetUntrusted,
    UploadFailed,
)

OF_CODE: dict[str, type[TargetError]] = {
    "NoSuchBucket": TargetNotFound,
    **dict.fromkeys(
        ("QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientStorage"), TargetDiskFull
    ),
    **dict.fromkeys(("SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "TooManyRequests"), TargetDown),
    **dict.fromkeys(
        # Damage on the way, a lost race or a clock that is off: the next attempt may do better.
        (
            "BadDigest",
            "XAmzContentChecksumMismatch",
            "XAmzContentSHA256Mismatch",
            "IncompleteBody",
            "InvalidPart",
            "RequestTimeTooSkewed",
        ),
        UploadFailed,
    ),
}
OF_STATUS: dict[int, type[TargetError]] = {
    401: TargetPermissionDenied,
    403: TargetPermissionDenied,
    404: TargetNotFound,
    408: TargetDown,
    429: TargetDown,
    507: TargetDiskFull,
}
UNREACHED = {"EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError", "ReadTimeoutError"}
NOT_ASKED = {"ParamValidationError", "InvalidEndpointConfigurationError", "UnknownRegionError"}
NO_CREDENTIALS = {
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "ProfileNotFound",
    "TokenRetrievalError",
}


def code_of(exc: Any) -> str:
    """The code that the server gave; the status as text where there was no body."""
    return str(exc.response.get("Error", {}).get("Code", ""))


def status_of(exc: Any) -> int:
    return int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def answered(target: str, what: str, exc: Any) -> TargetError:
    """The error of ours for a ClientError: the server has answered, and not with what we wanted."""
    code, status = code_of(exc), status_of(exc)
    kind = OF_CODE.get(code) or OF_STATUS.get(status) or (TargetDown if status >= 500 else TargetRefused)
    return _told(kind, target, what, f"the server says {code if code != str(status) else 'no'} ({status})")


def unanswered(target: str, what: str, exc: Exception) -> TargetError:
    """The error of ours for any other error of botocore."""
    name = type(exc).__name__
    if name in NO_CREDENTIALS:
        return _told(TargetPermissionDenied, target, what, "there are no credentials for it")
    if name == "SSLError":
        if _is_untrusted(exc):
            return _told(TargetUntrusted, target, what, "its certificate cannot be trusted")
        return _told(TargetDown, target, what, "TLS fails")
    if name in UNREACHED:
        return _told(TargetDown, target, what, "the server cannot be reached or does not answer")
    if name in NOT_ASKED:
        return _told(TargetRefused, target, what, f"the request cannot be made ({name})")
    return broke(target, what, name)


def broke(target: str, what: str, how: str) -> UploadFailed:
    """A connection that broke in the middle: an attempt that failed, and a fault of the service."""
    return UploadFailed(f"{target}: {what}: the connection broke ({how}).", service=f"target:{target}")


def _told(kind: type[TargetError], target: str, what: str, why: str) -> TargetError:
    return kind(f"{target}: {what}: {why}.", service=f"target:{target}" if kind is TargetDown else None)


def _is_untrusted(exc: BaseException) -> bool:
    """Whether a certificate that did not fit stands behind the error, however deep."""
    behind: object = exc
    while isinstance(behind, BaseException) and not isinstance(behind, ssl.SSLCertVerificationError):
        told = getattr(behind, "kwargs", None)  # botocore keeps what it caught there
        behind = (told or {}).get("error") or getattr(behind, "reason", None) or behind.__cause__ or behind.__context__
    return isinstance(behind, ssl.SSLCertVerificationError)
