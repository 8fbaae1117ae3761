"""Again, later, back or never?

`classify` judges by class, never by text. An error of ours says its kind itself. A programming error fails at once:
running it again shows the same bug. Anything else that we do not know is tried again, a bounded number of times.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.errors import INTERNAL, UNCLASSIFIED, IronclipError, Kind

PROGRAMMING_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
    ValueError,
)

# What a tool or a server says can be as long as it likes; what a row and its events keep cannot.
MAX_REASON = 500
MAX_EVIDENCE = 4000


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: Kind
    code: str
    reason: str
    service: str | None = None
    evidence: str | None = None
    known: bool = True  # False: log it as unclassified, somebody should give it a name


def classify(exc: Exception) -> Verdict:
    """What an exception that left a stage means for its job."""
    if isinstance(exc, IronclipError):
        evidence = exc.evidence and exc.evidence[-MAX_EVIDENCE:]
        return Verdict(exc.kind, exc.code, exc.message[:MAX_REASON], exc.service, evidence)
    if isinstance(exc, PROGRAMMING_ERRORS):
        return Verdict(Kind.FAIL, INTERNAL, f"{type(exc).__name__} in our own code", known=False)
    return Verdict(Kind.RETRY, UNCLASSIFIED, f"{type(exc).__name__}: {exc}"[:MAX_REASON], known=False)
