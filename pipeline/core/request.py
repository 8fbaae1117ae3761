"""What may be asked for?

`parse` turns what somebody sent into a `Request`, or says in one sentence what is wrong with it, under a stable code.
Nothing is guessed and nothing is dropped: an unknown field is an error. Whether the source and the targets exist is
asked later, by `intake`: this file does no I/O.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from pipeline.core import ladder
from pipeline.core.errors import BadRequest
from pipeline.core.job import Priority, Stage

FORMATS = ("mp4", "hls")
MAX_CLIPS = 200
MAX_OUTPUTS = 500
MAX_SECONDS = 24 * 3600
MAX_TEXT = 2000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
CLOCK = re.compile(r"(?:(\d{1,2}):)?(\d{1,2}):(\d{1,2}(?:\.\d{1,6})?)")
UNUSABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # control characters, halves of characters
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """One piece of the source. No end: up to the source's end."""

    name: str
    start_s: float
    end_s: float | None

    @property
    def duration_s(self) -> float | None:
        return None if self.end_s is None else self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A job as somebody asked for it, checked."""

    source: str
    clips: tuple[Clip, ...]
    qualities: tuple[str, ...] = ("source",)
    formats: tuple[str, ...] = ("mp4",)
    precise: bool = True
    thumbnail: bool = False
    captions: bool = True
    burn_in: bool = False
    language: str | None = None
    targets: tuple[str, ...] = ("local",)
    priority: Priority = Priority.NORMAL
    account: str | None = None
    max_attempts: int | None = None
    deadline_s: float | None = None
    callback_url: str | None = None

    def plan(self) -> tuple[Stage, ...]:
        """The stages that apply, in order."""
        captions = (Stage.ASR,) if self.captions else ()
        return (Stage.RESOLVE, Stage.CLIP, Stage.UPLOAD, *captions, Stage.FINALIZE)

    @property
    def renditions(self) -> int:
        """How often each clip is made."""
        return len(self.qualities) * len(self.formats)

    def expected_duration_s(self) -> float | None:
        """Seconds of media that come out, if the request alone tells."""
        spans = [clip.duration_s for clip in self.clips]
        return None if None in spans else sum(s for s in spans if s is not None) * self.renditions

    def as_json(self) -> dict[str, Any]:
        """What `parse` reads back into the same Request."""
        data = asdict(self)
        data["clips"] = [{"name": c.name, "start": c.start_s, "end": c.end_s} for c in self.clips]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in data.items() if v is not None}


def parse(raw: Any) -> Request:
    """The request, or the first thing that is wrong with it."""
    if not isinstance(raw, Mapping):
        raise BadRequest("NOT_AN_OBJECT", "A request is an object with a source and clips.")
    unknown = sorted(str(k) for k in raw if k not in _FIELDS)
    if unknown:
        raise BadRequest("UNKNOWN_FIELD", f"There is no field {unknown[0]!r} in a request.", field=unknown[0])
    if raw.get("source") is None:
        raise BadRequest("SOURCE_REQUIRED", "A request needs a source.", field="source")
    given = {name: read(raw[name]) for name, read in _FIELDS.items() if raw.get(name) is not None}
    if "clips" not in given:
        raise BadRequest("NO_CLIPS", "A request needs at least one clip.", field="clips")
    request = Request(**given)
    if request.burn_in and not request.captions:
        raise BadRequest("BURN_IN_NEEDS_CAPTIONS", "Captions that are not made cannot be burnt in.", field="burn_in")
    if request.burn_in and "mp4" not in request.formats:
        raise BadRequest("BURN_IN_NEEDS_MP4", "Captions are burnt into an mp4, which is not made.", field="burn_in")
    files = request.renditions + ("hls" in request.formats) + request.thumbnail
    outputs = len(request.clips) * (files + request.captions + request.burn_in)
    if outputs > MAX_OUTPUTS:
        raise BadRequest("TOO_MANY_OUTPUTS", f"{outputs} outputs are more than {MAX_OUTPUTS}.", field="clips")
    return request


# -- one reader per field --------------------------------------------------------------------------------------------


def _source(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadRequest("SOURCE_REQUIRED", "The source must be a path or a URL.", field="source")
    if len(value) > MAX_TEXT or UNUSABLE.search(value):
        raise BadRequest("SOURCE_UNUSABLE", "The source is too long or has control characters.", field="source")
    return value.strip()


def _clips(value: Any) -> tuple[Clip, ...]:
    if not _is_list(value):
        raise BadRequest("CLIPS_NOT_A_LIST", "Clips must be a list.", field="clips")
    if not value:
        raise BadRequest("NO_CLIPS", "A request needs at least one clip.", field="clips")
    if len(value) > MAX_CLIPS:
        raise BadRequest("TOO_MANY_CLIPS", f"{len(value)} clips are more than {MAX_CLIPS}.", field="clips")
    clips = tuple(_clip(item, n) for n, item in enumerate(value))
    names = [clip.name.lower() for clip in clips]
    for n, name in enumerate(names):
        if name in names[:n]:
            raise BadRequest("CLIP_NAME_TWICE", f"Two clips are named {name!r}.", field=f"clips[{n}].name")
    return clips


def _clip(item: Any, n: int) -> Clip:
    where = f"clips[{n}]"
    if not isinstance(item, Mapping):
        raise BadRequest("CLIP_NOT_AN_OBJECT", f"{where} must be an object with start and end.", field=where)
    unknown = sorted(str(k) for k in item if k not in ("name", "start", "end"))
    if unknown:
        raise BadRequest("UNKNOWN_FIELD", f"There is no field {unknown[0]!r} in a clip.", field=f"{where}.{unknown[0]}")
    name = item.get("name", f"clip{n + 1}")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadRequest(
            "CLIP_NAME_BAD",
            f"The name of {where} must be 1-64 letters, digits, '.', '_' or '-'.",
            field=f"{where}.name",
        )
    start = _seconds(item.get("start", 0), f"{where}.start")
    end = None if item.get("end") is None else _seconds(item["end"], f"{where}.end")
    if end is not None and end <= start:
        raise BadRequest(
            "CLIP_END_BEFORE_START", f"{where} ends at {end:g} s, not after its start.", field=f"{where}.end"
        )
    return Clip(name=name, start_s=start, end_s=end)


def _seconds(value: Any, where: str) -> float:
    bad = BadRequest("BAD_TIME", f"{where} must be seconds or a time like 01:02:03.5.", field=where)
    if isinstance(value, bool):
        raise bad
    if isinstance(value, str):
        clock = CLOCK.fullmatch(value.strip())
        if clock is None:
            raise bad
        hours, minutes, seconds = clock.groups()
        if int(minutes) > 59 or float(seconds) >= 60:
            raise bad
        value = int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)
    if not isinstance(value, int | float) or value in (math.inf, -math.inf) or value != value:
        raise bad
    if value < 0:
        raise BadRequest("NEGATIVE_TIME", f"{where} must not be negative.", field=where)
    if value > MAX_SECONDS:
        raise BadRequest("TIME_TOO_LARGE", f"{where} is beyond 24 hours.", field=where)
    return float(value)


def _qualities(value: Any) -> tuple[str, ...]:
    known = ladder.QUALITIES
    return _names(value, "qualities", "QUALITY", lambda q: q in known, f"one of {', '.join(known)}")


def _formats(value: Any) -> tuple[str, ...]:
    return _names(value, "formats", "FORMAT", lambda f: f in FORMATS, f"one of {', '.join(FORMATS)}")


def _targets(value: Any) -> tuple[str, ...]:
    return _names(value, "targets", "TARGET", lambda t: bool(NAME.fullmatch(t)), "a target's name")


def _names(value: Any, field: str, code: str, is_known: Callable[[str], bool], wanted: str) -> tuple[str, ...]:
    """A list of different names: at least one, each known."""
    if not _is_list(value) or not value:
        raise BadRequest(f"{code}_LIST_BAD", f"{field} must be a list with at least one name.", field=field)
    for n, name in enumerate(value):
        where = f"{field}[{n}]"
        if not isinstance(name, str) or not is_known(name):
            raise BadRequest(f"UNKNOWN_{code}", f"{where} must be {wanted}.", field=where)
        if name in value[:n]:
            raise BadRequest(f"{code}_TWICE", f"{name!r} stands twice in {field}.", field=where)
    return tuple(value)


def _flag(field: str) -> Callable[[Any], bool]:
    def read(value: Any) -> bool:
        if not isinstance(value, bool):
            raise BadRequest("NOT_A_FLAG", f"{field} must be true or false.", field=field)
        return value

    return read


def _language(value: Any) -> str:
    if not isinstance(value, str) or not LANGUAGE.fullmatch(value):
        raise BadRequest("BAD_LANGUAGE", "The language must be a code such as 'en'.", field="language")
    return value


def _priority(value: Any) -> Priority:
    if value not in list(Priority):
        raise BadRequest("BAD_PRIORITY", "The priority must be high, normal or low.", field="priority")
    return Priority(value)


def account(value: Any) -> str:
    """The name of an account, if it is one."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise BadRequest("BAD_ACCOUNT", "The account must be 1-64 letters, digits, '.', '_' or '-'.", field="account")
    return value


def _max_attempts(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100:
        raise BadRequest("BAD_MAX_ATTEMPTS", "max_attempts must be a whole number from 1 to 100.", field="max_attempts")
    return value


def _deadline(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 7 * 86_400:
        raise BadRequest("BAD_DEADLINE", "deadline_s must be seconds from 1 to 604800.", field="deadline_s")
    return float(value)


def _callback(value: Any) -> str:
    if web_address(value) is None:
        raise BadRequest("BAD_CALLBACK_URL", "callback_url must be an http(s) address.", field="callback_url")
    return str(value)


def web_address(value: Any) -> str | None:
    """The http(s) address that this is, with a host and no password; None if it is none. Nobody is asked."""
    if not isinstance(value, str) or len(value) > MAX_TEXT or UNUSABLE.search(value) or not value.isascii():
        return None
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return value if usable and "@" not in parts.netloc and " " not in value and "\\" not in value else None


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "source": _source,
    "clips": _clips,
    "qualities": _qualities,
    "formats": _formats,
    "precise": _flag("precise"),
    "thumbnail": _flag("thumbnail"),
    "captions": _flag("captions"),
    "burn_in": _flag("burn_in"),
    "language": _language,
    "targets": _targets,
    "priority": _priority,
    "account": account,
    "max_attempts": _max_attempts,
    "deadline_s": _deadline,
    "callback_url": _callback,
}
