"""What can go wrong, under which stable code, and whether trying again can help.

Every class carries a `code` (part of the public interface: it is stored, shown and alerted on) and a `kind`.
Foreign errors are translated into these where they enter; nothing further in ever looks at a message text.
The file is long because it is a table: things are looked up in it.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar


class Kind(StrEnum):
    """What an error means for the job that met it."""

    RETRY = "retry"  # the same thing may work in a while; costs an attempt
    DEFER = "defer"  # a service is down; not the job's fault, costs nothing
    REWIND = "rewind"  # a file of an earlier stage is gone; make it again
    FAIL = "fail"  # trying again cannot help


class IronclipError(Exception):
    """Something went wrong in a way that we know by name."""

    code: ClassVar[str] = "INTERNAL"
    kind: ClassVar[Kind] = Kind.FAIL

    def __init__(self, message: str, *, service: str | None = None, evidence: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.service = service  # the breaker this error speaks about, e.g. "source:example.org"
        self.evidence = evidence  # a few last lines of the tool that failed; bounded by whoever stores it


# -- what people ask for ---------------------------------------------------------------------------------------------


class BadRequest(IronclipError):
    """The request cannot be a job. Its code says which rule it breaks; no row was written."""

    code = "BAD_REQUEST"

    def __init__(self, code: str, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.reason = code  # e.g. "CLIP_END_BEFORE_START"
        self.field = field


class IdempotencyConflict(IronclipError):
    """The idempotency key was used before, for another request."""

    code = "IDEMPOTENCY_CONFLICT"


class NoSuchJob(IronclipError):
    """There is no job with that id."""

    code = "NO_SUCH_JOB"


class NotAllowedNow(IronclipError):
    """The job is in a state in which that cannot be done."""

    code = "NOT_ALLOWED_NOW"


class InsufficientCredits(IronclipError):
    """The account cannot pay for the outputs that were asked for."""

    code = "INSUFFICIENT_CREDITS"


class SettingInvalid(IronclipError):
    """A setting is missing or has a value that cannot be used."""

    code = "SETTING_INVALID"


class ToolMissing(IronclipError):
    """A program or package that this needs is not installed."""

    code = "TOOL_MISSING"


class DatabaseUnavailable(IronclipError):
    """Postgres cannot be reached."""

    code = "DATABASE_UNAVAILABLE"
    kind = Kind.RETRY


class BrokerUnavailable(IronclipError):
    """The broker did not take the message (or did not say so)."""

    code = "BROKER_UNAVAILABLE"
    kind = Kind.RETRY


class DatabaseBusy(IronclipError):
    """Postgres is there but did not answer in time: somebody holds a lock, or it is overloaded."""

    code = "DATABASE_BUSY"
    kind = Kind.RETRY


class BreakerOpen(IronclipError):
    """A service that the job needs failed too often, so nobody asks it for a while."""

    code = "BREAKER_OPEN"
    kind = Kind.DEFER

    def __init__(self, message: str, *, service: str, until: datetime | None) -> None:
        super().__init__(message, service=service)
        self.until = until  # it is tried again then


# -- at the door -----------------------------------------------------------------------------------------------------


class NotAuthenticated(IronclipError):
    """No key, or one that is not valid."""

    code = "NOT_AUTHENTICATED"


class Forbidden(IronclipError):
    """The key is valid, but this is not for its role or account."""

    code = "FORBIDDEN"


class CsrfFailed(IronclipError):
    """A browser's session asked for a change without the token that only our own pages know."""

    code = "CSRF_FAILED"


class RateLimited(IronclipError):
    """This key asks too often."""

    code = "RATE_LIMITED"
    kind = Kind.RETRY

    def __init__(self, message: str, *, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class TooManyListeners(IronclipError):
    """This process serves as many streams of events as it can."""

    code = "TOO_MANY_LISTENERS"
    kind = Kind.RETRY


class BodyTooLarge(IronclipError):
    """What was sent is larger than the limit."""

    code = "BODY_TOO_LARGE"


class LinkInvalid(IronclipError):
    """The signed link has expired, or was not made by us."""

    code = "LINK_INVALID"


class NoSuchKey(IronclipError):
    """There is no API key with that id or prefix."""

    code = "NO_SUCH_KEY"


class NoSuchFile(IronclipError):
    """There is no such output, or no such file of it that can be had."""

    code = "NO_SUCH_FILE"


class NoSuchWorker(IronclipError):
    """There is no worker with that id."""

    code = "NO_SUCH_WORKER"


class NoSuchEndpoint(IronclipError):
    """There is no webhook endpoint with that id."""

    code = "NO_SUCH_ENDPOINT"


class NoSuchDelivery(IronclipError):
    """There is no delivery of a webhook with that id."""

    code = "NO_SUCH_DELIVERY"


# -- sources ---------------------------------------------------------------------------------------------------------


class SourceError(IronclipError):
    """The source could not be had."""


class SourceNotFound(SourceError):
    """There is nothing at the source's address."""

    code = "SOURCE_NOT_FOUND"


class SourceForbidden(SourceError):
    """The source's address is not one that we fetch from, or it refuses us."""

    code = "SOURCE_FORBIDDEN"


class SourceTooLarge(SourceError):
    """The source is larger than the limit."""

    code = "SOURCE_TOO_LARGE"


class SourceUnreadable(SourceError):
    """The source is not a video that we can read."""

    code = "SOURCE_UNREADABLE"


class SourceTooShort(SourceError):
    """A clip begins after the source has ended."""

    code = "SOURCE_TOO_SHORT"


class SourceTruncated(SourceError):
    """A clip reaches into a part that the source's header claims and its packets lack."""

    code = "SOURCE_TRUNCATED"


class UpstreamFailure(SourceError):
    """The source's server broke off or answered with an error of its own."""

    code = "UPSTREAM_FAILURE"
    kind = Kind.RETRY


class SourceTimeout(SourceError):
    """The download took longer than it may."""

    code = "YTDLP_TIMEOUT"
    kind = Kind.RETRY


class SourceDown(SourceError):
    """The source's server cannot be reached."""

    code = "SOURCE_DOWN"
    kind = Kind.DEFER


# -- media -----------------------------------------------------------------------------------------------------------


class MediaError(IronclipError):
    """Making a file went wrong."""


class FfmpegFailed(MediaError):
    """ffmpeg itself said no; its last lines are the evidence."""

    code = "FFMPEG_FAILED"


class FfmpegKilled(MediaError):
    """ffmpeg was killed by a signal that we did not send."""

    code = "FFMPEG_KILLED"
    kind = Kind.RETRY


class ClipTimeout(MediaError):
    """ffmpeg ran longer than it may."""

    code = "CLIP_TIMEOUT"
    kind = Kind.RETRY


class OutputEmpty(MediaError):
    """ffmpeg ended well and left an empty file."""

    code = "OUTPUT_EMPTY"
    kind = Kind.RETRY


class OutputInvalid(MediaError):
    """The file that was made is not what was asked for (streams, duration, packets)."""

    code = "OUTPUT_INVALID"
    kind = Kind.RETRY


class NothingSucceeded(MediaError):
    """Not one output of the job could be made and delivered."""

    code = "NOTHING_SUCCEEDED"


class RerenderIncomplete(MediaError):
    """A rerender made less than what is published, so what is published stays."""

    code = "RERENDER_INCOMPLETE"


class AsrFailed(MediaError):
    """The transcription engine could not read the audio."""

    code = "ASR_FAILED"


class AsrLanguageUnsupported(AsrFailed):
    """The engine does not know the language that was asked for."""

    code = "ASR_LANGUAGE_UNSUPPORTED"


class AsrBadAnswer(MediaError):
    """The transcription service answered with something that is no transcript."""

    code = "ASR_BAD_ANSWER"
    kind = Kind.RETRY


class CaptionsScriptUnsupported(MediaError):
    """The font has no signs for the script that the captions are written in."""

    code = "CAPTIONS_SCRIPT_UNSUPPORTED"


class AsrDown(MediaError):
    """The transcription engine cannot be reached or loaded."""

    code = "ASR_DOWN"
    kind = Kind.DEFER


# -- our own machine -------------------------------------------------------------------------------------------------


class ScratchFull(IronclipError):
    """This worker's scratch disk has no room left."""

    code = "SCRATCH_FULL"
    kind = Kind.DEFER


class ScratchLost(IronclipError):
    """A file that an earlier stage made cannot be had on this machine."""

    code = "SCRATCH_LOST"
    kind = Kind.REWIND


class InternalTransient(IronclipError):
    """Something of ours was briefly unavailable."""

    code = "INTERNAL_TRANSIENT"
    kind = Kind.RETRY


# -- targets ---------------------------------------------------------------------------------------------------------


class TargetError(IronclipError):
    """A finished file could not be delivered."""


class UploadFailed(TargetError):
    """The target took the connection but not the file."""

    code = "STORAGE_UPLOAD_FAILED"
    kind = Kind.RETRY


class TargetDown(TargetError):
    """The target cannot be reached."""

    code = "TARGET_DOWN"
    kind = Kind.DEFER


class TargetRefused(TargetError):
    """The target will not take the file: this target fails, the others go on."""

    code = "TARGET_REFUSED"


class TargetNotFound(TargetRefused):
    """The target's folder or bucket does not exist."""

    code = "TARGET_NOT_FOUND"


class TargetPermissionDenied(TargetRefused):
    """We may not write there."""

    code = "TARGET_PERMISSION_DENIED"


class TargetUntrusted(TargetRefused):
    """What answers is not the target that we know: its host key or its certificate is another one."""

    code = "TARGET_UNTRUSTED"


class TargetIncomplete(TargetRefused):
    """The target lacks what this file would name."""

    code = "TARGET_INCOMPLETE"


class TargetDiskFull(TargetRefused):
    """The target has no room left."""

    code = "TARGET_DISK_FULL"


# -- endings that are not errors of the work -------------------------------------------------------------------------


class LeaseLost(BaseException):
    """Somebody else has the job now, or it was cancelled. The stage stops and writes nothing more.

    Not an `Exception`: a stage that catches its own errors must not catch this one.
    """


# Codes that a transition gives, with no exception behind them.
RETRIES_EXHAUSTED = "RETRIES_EXHAUSTED"
TIMEOUT = "TIMEOUT"
WORKER_KILLER = "WORKER_KILLER"
SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
UNCLASSIFIED = "UNCLASSIFIED"
INTERNAL = "INTERNAL"
STALLED = "STALLED"
