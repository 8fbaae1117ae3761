"""What does each kind of error mean for the job that met it?"""

import inspect

import pytest

from pipeline.core import errors
from pipeline.core.errors import (
    AsrDown,
    BadRequest,
    ClipTimeout,
    FfmpegFailed,
    FfmpegKilled,
    InternalTransient,
    IronclipError,
    Kind,
    LeaseLost,
    OutputEmpty,
    ScratchFull,
    ScratchLost,
    SourceDown,
    SourceNotFound,
    SourceTimeout,
    TargetDiskFull,
    TargetDown,
    TargetIncomplete,
    TargetNotFound,
    TargetPermissionDenied,
    UploadFailed,
    UpstreamFailure,
)
from pipeline.core.verdict import MAX_EVIDENCE, MAX_REASON, classify

ERRORS = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, BaseException) and found.__module__ == errors.__name__
]
OURS = [found for found in ERRORS if issubclass(found, IronclipError)]


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        # Seed 000's codes: what may be tried again.
        (UploadFailed, "STORAGE_UPLOAD_FAILED", Kind.RETRY),
        (SourceTimeout, "YTDLP_TIMEOUT", Kind.RETRY),
        (ClipTimeout, "CLIP_TIMEOUT", Kind.RETRY),
        (UpstreamFailure, "UPSTREAM_FAILURE", Kind.RETRY),
        (InternalTransient, "INTERNAL_TRANSIENT", Kind.RETRY),
        # ffmpeg: its own no is final; killed, slow or empty is not.
        (FfmpegFailed, "FFMPEG_FAILED", Kind.FAIL),
        (FfmpegKilled, "FFMPEG_KILLED", Kind.RETRY),
        (OutputEmpty, "OUTPUT_EMPTY", Kind.RETRY),
        # Services that are down are waited for; our own full disk is one of them.
        (SourceDown, "SOURCE_DOWN", Kind.DEFER),
        (TargetDown, "TARGET_DOWN", Kind.DEFER),
        (AsrDown, "ASR_DOWN", Kind.DEFER),
        (ScratchFull, "SCRATCH_FULL", Kind.DEFER),
        (ScratchLost, "SCRATCH_LOST", Kind.REWIND),
        # Nothing will change.
        (SourceNotFound, "SOURCE_NOT_FOUND", Kind.FAIL),
        (TargetNotFound, "TARGET_NOT_FOUND", Kind.FAIL),
        (TargetPermissionDenied, "TARGET_PERMISSION_DENIED", Kind.FAIL),
        (TargetDiskFull, "TARGET_DISK_FULL", Kind.FAIL),
        (TargetIncomplete, "TARGET_INCOMPLETE", Kind.FAIL),
    ],
)
def test_an_error_of_ours_says_itself_what_it_means(error: type[IronclipError], code: str, kind: Kind):
    verdict = classify(error("what happened", service="target:nas", evidence="last lines"))

    assert (verdict.code, verdict.kind, verdict.known) == (code, kind, True)
    assert (verdict.reason, verdict.service, verdict.evidence) == ("what happened", "target:nas", "last lines")


@pytest.mark.parametrize(
    "bug",
    [
        TypeError("x"),
        KeyError("x"),
        IndexError("x"),
        AssertionError("x"),
        AttributeError("x"),
        NameError("x"),
        ImportError("x"),
        ValueError("x"),
        ZeroDivisionError("x"),
        NotImplementedError("x"),
    ],
    ids=lambda bug: type(bug).__name__,
)
def test_a_programming_error_fails_at_once(bug: Exception):
    verdict = classify(bug)

    assert (verdict.kind, verdict.code, verdict.known) == (Kind.FAIL, "INTERNAL", False)
    assert verdict.reason == f"{type(bug).__name__} in our own code"


class Surprise(Exception):
    """Nobody gave this one a name."""


@pytest.mark.parametrize("odd", [Surprise("odd"), OSError("odd"), RuntimeError("odd"), TimeoutError("odd")])
def test_an_unknown_exception_is_tried_again_and_marked_as_unclassified(odd: Exception):
    verdict = classify(odd)

    assert (verdict.kind, verdict.code, verdict.known) == (Kind.RETRY, "UNCLASSIFIED", False)
    assert verdict.reason == f"{type(odd).__name__}: odd"


@pytest.mark.parametrize("error", [FfmpegFailed, Surprise])
def test_a_reason_stays_small_however_much_a_tool_said(error: type[Exception]):
    verdict = classify(error("x" * 1_000_000))

    assert len(verdict.reason) <= MAX_REASON


def test_of_long_evidence_the_end_is_kept():
    verdict = classify(FfmpegFailed("no", evidence="noise " * 100_000 + "the last line"))

    assert verdict.evidence is not None
    assert len(verdict.evidence) <= MAX_EVIDENCE
    assert verdict.evidence.endswith("the last line")


def test_a_lost_lease_is_not_caught_by_a_stage_that_catches_its_errors():
    assert not issubclass(LeaseLost, Exception)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_says_in_its_docstring_what_happened(error: type[BaseException]):
    assert inspect.cleandoc(error.__doc__ or "").partition("\n")[0].rstrip().endswith((".", ";", ":", "("))


def test_every_code_belongs_to_one_error():
    own = [error.code for error in OURS if "code" in vars(error)]
    by_rule = [errors.RETRIES_EXHAUSTED, errors.TIMEOUT, errors.WORKER_KILLER, errors.SERVICE_UNAVAILABLE]
    by_rule += [errors.UNCLASSIFIED, errors.STALLED]

    assert len(own + by_rule) == len(set(own + by_rule))
    assert all(code == code.upper() and code.isidentifier() for code in own + by_rule)


def test_whatever_can_be_raised_has_a_code_of_its_own():
    groups = {base for error in OURS for base in error.__mro__[1:]}
    unnamed = [error for error in OURS if "code" not in vars(error) and error not in groups]

    assert unnamed == []


def test_a_bad_request_carries_the_rule_that_it_breaks():
    bad = BadRequest("NO_CLIPS", "A request needs at least one clip.", field="clips")

    assert (bad.code, bad.reason, bad.field, bad.message) == (
        "BAD_REQUEST",
        "NO_CLIPS",
        "clips",
        "A request needs at least one clip.",
    )
