"""What may be asked for, and what is each refusal called?"""

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core import ladder
from pipeline.core.errors import BadRequest
from pipeline.core.job import Priority, Stage
from pipeline.core.request import MAX_CLIPS, MAX_SECONDS, Clip, Request, parse


def asked(**fields: Any) -> dict[str, Any]:
    return {"source": "talk.mp4", "clips": [{"start": 1, "end": 5}], **fields}


def clip(**fields: Any) -> dict[str, Any]:
    return asked(clips=[{"start": 1, "end": 5, **fields}])


BAD: list[tuple[str, Any, str, str | None]] = [
    # why, request, code, field
    ("nothing", None, "NOT_AN_OBJECT", None),
    ("a list", [], "NOT_AN_OBJECT", None),
    ("a text", "talk.mp4", "NOT_AN_OBJECT", None),
    ("an unknown field", asked(colour="red"), "UNKNOWN_FIELD", "colour"),
    ("a field that is no text", {**asked(), 7: 1}, "UNKNOWN_FIELD", "7"),
    ("no source", {"clips": [{}]}, "SOURCE_REQUIRED", "source"),
    ("a null source", asked(source=None), "SOURCE_REQUIRED", "source"),
    ("a blank source", asked(source="  "), "SOURCE_REQUIRED", "source"),
    ("a source that is a number", asked(source=7), "SOURCE_REQUIRED", "source"),
    ("a source with a NUL", asked(source="a\0b"), "SOURCE_UNUSABLE", "source"),
    ("a source with a line break", asked(source="a\nb"), "SOURCE_UNUSABLE", "source"),
    ("a source with half a character", asked(source="a\ud800b"), "SOURCE_UNUSABLE", "source"),
    ("a source that never ends", asked(source="a" * 2001), "SOURCE_UNUSABLE", "source"),
    ("no clips", {"source": "talk.mp4"}, "NO_CLIPS", "clips"),
    ("zero clips", asked(clips=[]), "NO_CLIPS", "clips"),
    ("clips that are an object", asked(clips={"start": 1}), "CLIPS_NOT_A_LIST", "clips"),
    ("clips that are a text", asked(clips="all"), "CLIPS_NOT_A_LIST", "clips"),
    ("too many clips", asked(clips=[{}] * (MAX_CLIPS + 1)), "TOO_MANY_CLIPS", "clips"),
    (
        "too many outputs",
        asked(clips=[{}] * 200, qualities=["source", "720p"]),
        "TOO_MANY_OUTPUTS",
        "clips",
    ),
    ("a clip that is a list", asked(clips=[[1, 5]]), "CLIP_NOT_AN_OBJECT", "clips[0]"),
    ("an unknown field in a clip", clip(speed=2), "UNKNOWN_FIELD", "clips[0].speed"),
    ("a clip name with a slash", clip(name="../x"), "CLIP_NAME_BAD", "clips[0].name"),
    ("a clip name of nothing", clip(name=""), "CLIP_NAME_BAD", "clips[0].name"),
    ("a null clip name", clip(name=None), "CLIP_NAME_BAD", "clips[0].name"),
    ("a clip name that is too long", clip(name="a" * 65), "CLIP_NAME_BAD", "clips[0].name"),
    ("two clips of one name", asked(clips=[{"name": "A"}, {"name": "a"}]), "CLIP_NAME_TWICE", "clips[1].name"),
    ("an end before the start", clip(start=9), "CLIP_END_BEFORE_START", "clips[0].end"),
    ("an end at the start", clip(start=5), "CLIP_END_BEFORE_START", "clips[0].end"),
    ("a negative time", clip(start=-1), "NEGATIVE_TIME", "clips[0].start"),
    ("a time in words", clip(start="soon"), "BAD_TIME", "clips[0].start"),
    ("a time of 61 seconds", clip(start="00:61"), "BAD_TIME", "clips[0].start"),
    ("a time of 60 minutes", clip(start="1:60:00"), "BAD_TIME", "clips[0].start"),
    ("a time that is no number", clip(start=math.nan), "BAD_TIME", "clips[0].start"),
    ("a time without end", clip(end=math.inf), "BAD_TIME", "clips[0].end"),
    ("a time that is true", clip(start=True), "BAD_TIME", "clips[0].start"),
    ("a time that is a list", clip(start=[1]), "BAD_TIME", "clips[0].start"),
    ("a null start", clip(start=None), "BAD_TIME", "clips[0].start"),
    ("a time beyond a day", clip(end=MAX_SECONDS + 1), "TIME_TOO_LARGE", "clips[0].end"),
    ("a time beyond all floats", clip(end=10**400), "TIME_TOO_LARGE", "clips[0].end"),
    ("no qualities", asked(qualities=[]), "QUALITY_LIST_BAD", "qualities"),
    ("a quality by itself", asked(qualities="720p"), "QUALITY_LIST_BAD", "qualities"),
    ("an unknown quality", asked(qualities=["source", "8k"]), "UNKNOWN_QUALITY", "qualities[1]"),
    ("a quality that is a number", asked(qualities=[720]), "UNKNOWN_QUALITY", "qualities[0]"),
    ("a quality twice", asked(qualities=["720p", "720p"]), "QUALITY_TWICE", "qualities[1]"),
    ("no formats", asked(formats=[]), "FORMAT_LIST_BAD", "formats"),
    ("an unknown format", asked(formats=["mp4", "gif"]), "UNKNOWN_FORMAT", "formats[1]"),
    ("a format twice", asked(formats=["hls", "hls"]), "FORMAT_TWICE", "formats[1]"),
    ("too many renditions", asked(clips=[{}] * 200, formats=["mp4", "hls"]), "TOO_MANY_OUTPUTS", "clips"),
    ("burning in what is not made", asked(burn_in=True, captions=False), "BURN_IN_NEEDS_CAPTIONS", "burn_in"),
    ("burning in as a number", asked(burn_in=1), "NOT_A_FLAG", "burn_in"),
    ("burning in without an mp4", asked(burn_in=True, formats=["hls"]), "BURN_IN_NEEDS_MP4", "burn_in"),
    ("a thumbnail in words", asked(thumbnail="yes"), "NOT_A_FLAG", "thumbnail"),
    ("no targets", asked(targets=[]), "TARGET_LIST_BAD", "targets"),
    ("a target with a slash", asked(targets=["a/b"]), "UNKNOWN_TARGET", "targets[0]"),
    ("a target twice", asked(targets=["nas", "nas"]), "TARGET_TWICE", "targets[1]"),
    ("precise in words", asked(precise="yes"), "NOT_A_FLAG", "precise"),
    ("captions as a number", asked(captions=1), "NOT_A_FLAG", "captions"),
    ("a language that is none", asked(language="english!"), "BAD_LANGUAGE", "language"),
    ("a language that is a number", asked(language=7), "BAD_LANGUAGE", "language"),
    ("an unknown priority", asked(priority="urgent"), "BAD_PRIORITY", "priority"),
    ("a priority that is a list", asked(priority=[]), "BAD_PRIORITY", "priority"),
    ("an account with a space", asked(account="a b"), "BAD_ACCOUNT", "account"),
    ("no attempts", asked(max_attempts=0), "BAD_MAX_ATTEMPTS", "max_attempts"),
    ("half an attempt", asked(max_attempts=1.5), "BAD_MAX_ATTEMPTS", "max_attempts"),
    ("true attempts", asked(max_attempts=True), "BAD_MAX_ATTEMPTS", "max_attempts"),
    ("too many attempts", asked(max_attempts=101), "BAD_MAX_ATTEMPTS", "max_attempts"),
    ("a deadline in the past", asked(deadline_s=0), "BAD_DEADLINE", "deadline_s"),
    ("a deadline that is no number", asked(deadline_s=math.nan), "BAD_DEADLINE", "deadline_s"),
    ("a deadline in words", asked(deadline_s="1h"), "BAD_DEADLINE", "deadline_s"),
    ("a deadline beyond all floats", asked(deadline_s=10**400), "BAD_DEADLINE", "deadline_s"),
]


@pytest.mark.parametrize(("raw", "code", "field"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_request_gets_its_code_its_field_and_one_sentence(raw: Any, code: str, field: str | None):
    with pytest.raises(BadRequest) as refused:
        parse(raw)

    assert (refused.value.reason, refused.value.field) == (code, field)
    assert re.fullmatch(r"[^\n]{1,300}\.", refused.value.message)


def test_no_sentence_names_a_choice_twice():
    with pytest.raises(BadRequest) as refused:
        parse(asked(qualities=["8k"]))

    offered = refused.value.message.partition("one of ")[2].rstrip(".").split(", ")
    assert len(offered) == len(set(offered)) == len(ladder.QUALITIES)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [(0, 0.0), (1.5, 1.5), ("0:05", 5.0), ("1:02", 62.0), ("01:02:03.5", 3723.5), (" 0:07 ", 7.0), ("24:00:00", 86400)],
)
def test_times_are_seconds_or_a_clock(told: Any, seconds: float):
    assert parse(asked(clips=[{"start": told}])).clips[0].start_s == seconds


def test_what_is_not_said_has_a_default():
    request = parse({"source": " talk.mp4 ", "clips": [{}, {"end": 3}]})

    assert request.source == "talk.mp4"
    assert request.clips == (Clip(name="clip1", start_s=0, end_s=None), Clip(name="clip2", start_s=0, end_s=3))
    assert (request.qualities, request.targets, request.priority) == (("source",), ("local",), Priority.NORMAL)
    assert (request.precise, request.captions) == (True, True)
    assert (request.formats, request.thumbnail) == (("mp4",), False)


def test_a_null_means_that_nothing_was_said():
    nothing = {"language": None, "account": None, "max_attempts": None, "qualities": None, "precise": None}

    assert parse(asked(**nothing)) == parse(asked())


def test_only_the_stages_that_apply_are_planned():
    assert parse(asked()).plan() == tuple(Stage)
    assert Stage.ASR not in parse(asked(captions=False)).plan()


def test_the_expected_duration_is_known_when_every_clip_has_an_end():
    qualities = ["source", "720p"]

    assert parse(asked(qualities=qualities)).expected_duration_s() == 8.0
    assert parse(asked(clips=[{"end": 3}, {}])).expected_duration_s() is None


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
times = st.floats(0, MAX_SECONDS / 2, allow_nan=False)
clips = st.lists(
    st.builds(
        lambda name, start, length: Clip(name=name, start_s=start, end_s=None if length is None else start + length),
        names,
        times,
        st.none() | st.floats(0.01, 1000),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda clip: clip.name.lower(),
)
requests = st.builds(
    Request,
    source=st.text(st.characters(blacklist_categories=("Cc", "Cs")), min_size=1).map(str.strip).filter(bool),
    clips=clips.map(tuple),
    qualities=st.lists(st.sampled_from(ladder.QUALITIES), min_size=1, unique=True).map(tuple),
    precise=st.booleans(),
    captions=st.booleans(),
    language=st.none() | st.sampled_from(["en", "deu", "pt-BR"]),
    targets=st.lists(names, min_size=1, max_size=3, unique=True).map(tuple),
    priority=st.sampled_from(Priority),
    account=st.none() | names,
    max_attempts=st.none() | st.integers(1, 100),
    deadline_s=st.none() | st.floats(1, 604_800),
)


@given(requests)
@settings(deadline=None)
def test_a_request_survives_being_written_down_and_read_again(request: Request):
    written = json.dumps(request.as_json())

    assert parse(json.loads(written)) == request


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
fields = ["source", "clips", "qualities", "precise", "captions", "language", "targets", "priority", "account"]
fields += ["max_attempts", "deadline_s"]


@given(st.sampled_from(fields), anything)
@settings(max_examples=300, deadline=None)
def test_whatever_is_sent_is_a_request_or_a_bad_request(field: str, value: Any):
    try:
        request = parse(asked(**{field: value}))
    except BadRequest:
        return

    assert parse(request.as_json()) == request
