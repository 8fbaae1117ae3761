"""Are captions readable, and are their files right?"""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.media import captions
from pipeline.media.captions import Word

TIMES = st.floats(min_value=-5, max_value=60, allow_nan=False)
WORDS = st.lists(st.builds(Word, TIMES, TIMES, st.text(max_size=60), st.floats(0, 1)), max_size=40)
CLOCK = r"\d\d:\d\d:\d\d[.,]\d{3}"


def spoken(*words: Word) -> captions.Transcript:
    return captions.transcript(words, language="en", engine="test", duration_s=60.0)


def times_in(text: str) -> list[str]:
    return [clock for pair in re.findall(f"^({CLOCK}) --> ({CLOCK})$", text, re.MULTILINE) for clock in pair]


def test_a_line_ends_with_a_sentence_in_a_pause_or_when_it_is_full() -> None:
    said = spoken(
        *(Word(0.0, 0.4, "Hello."), Word(0.5, 0.9, "Then"), Word(1.0, 1.4, "this"), Word(3.0, 3.5, "later")),
        *(Word(3.5 + n / 5, 3.6 + n / 5, "abcdefghi") for n in range(6)),
    )

    assert [line.text for line in said.lines] == [
        "Hello.",
        "Then this",
        "later abcdefghi abcdefghi abcdefghi",
        "abcdefghi abcdefghi abcdefghi",
    ]


@settings(deadline=None)
@given(WORDS)
def test_times_never_run_backwards(words: list[Word]) -> None:
    said = spoken(*words)

    bounds = [t for word in said.words for t in (word.start_s, word.end_s)]
    assert bounds == sorted(bounds)
    for written in (captions.to_srt(said), captions.to_vtt(said)):
        clocks = times_in(written)
        assert clocks == sorted(clocks)
        assert len(clocks) == 2 * len(said.lines)


@settings(deadline=None)
@given(WORDS)
def test_no_line_is_wider_than_a_row_unless_one_word_is(words: list[Word]) -> None:
    said = spoken(*words)

    longest_word = max((len(word.text) for word in said.words), default=0)
    assert all(len(line.text) <= max(captions.MAX_CHARS, longest_word) for line in said.lines)


@settings(deadline=None)
@given(WORDS)
def test_json_gives_back_what_was_written(words: list[Word]) -> None:
    said = spoken(*words)

    assert captions.from_json(captions.to_json(said)) == said


def test_subrip_is_written_as_players_read_it() -> None:
    said = spoken(Word(0.5, 1.25, "One"), Word(3661.0, 3662.0, "two"))

    assert captions.to_srt(spoken(Word(0.5, 1.25, "One"))) == "1\n00:00:00,500 --> 00:00:01,250\nOne\n\n"
    assert said.words[-1].end_s == 60.0
    long = captions.transcript([Word(3661.0, 3662.0, "x")], language="en", engine="t", duration_s=4000)
    assert "01:01:01,000 --> 01:01:02,000" in captions.to_srt(long)


def test_webvtt_escapes_what_would_be_markup() -> None:
    said = spoken(Word(0.0, 1.0, "<b>R&D-->x</b>"))

    assert captions.to_vtt(said) == ("WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n&lt;b&gt;R&amp;D--&gt;x&lt;/b&gt;\n\n")
    assert "<" not in captions.to_srt(said)
    assert captions.to_srt(said).count("-->") == 1


def test_a_text_cannot_end_its_own_cue() -> None:
    said = spoken(Word(0.0, 1.0, "one\n\n2\n00:00:00.000"))

    assert captions.to_vtt(said).count("\n\n") == 2


def test_silence_gives_valid_empty_files() -> None:
    said = spoken()

    assert captions.to_srt(said) == ""
    assert captions.to_vtt(said) == "WEBVTT\n\n"
    assert json.loads(captions.to_json(said))["words"] == []


def test_languages_without_spaces_are_joined_without_them() -> None:
    said = captions.transcript([Word(0, 1, "\u4f60"), Word(1, 2, "\u597d")], language="zh", engine="t", duration_s=9)

    assert said.text == "\u4f60\u597d"
