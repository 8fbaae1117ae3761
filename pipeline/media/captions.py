"""How do words with times become captions?

Words are grouped into lines that can be read: short enough for one row, not too long on the screen, broken at the end
of a sentence or in a pause. Times never run backwards, whatever the engine said.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

MAX_CHARS = 42  # the usual row of a subtitle
MAX_LINE_S = 6.0
PAUSE_S = 0.8
SHORTEST_LINE_S = 0.7
SENTENCE_ENDS = (".", "?", "!", "…", "\u3002", "\uff1f", "\uff01")  # the last three: Chinese and Japanese
LIKE_BRACKETS = str.maketrans({"<": "\u2039", ">": "\u203a"})
WITHOUT_SPACES = frozenset({"zh", "yue", "ja", "th", "lo", "my", "km"})


@dataclass(frozen=True)
class Word:
    """One spoken word."""

    start_s: float
    end_s: float
    text: str
    probability: float = 1.0


@dataclass(frozen=True)
class Line:
    """What stands on the screen at one time."""

    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True)
class Transcript:
    """Everything that was said, as words and as lines."""

    language: str
    words: tuple[Word, ...]
    lines: tuple[Line, ...]
    engine: str
    duration_s: float

    @property
    def text(self) -> str:
        """All of it as one text."""
        return _joined((line.text for line in self.lines), self.language)

    @property
    def confidence(self) -> float | None:
        """How sure the engine was of its words, on average, from 0 to 1; None if there are none."""
        return round(sum(w.probability for w in self.words) / len(self.words), 3) if self.words else None


def base_language(language: str | None) -> str | None:
    """The language without its country: engines know `en`, not `en-GB`."""
    return None if language is None else language.partition("-")[0].lower()


def transcript(words: Iterable[Word], *, language: str, engine: str, duration_s: float) -> Transcript:
    """A transcript of these words, put in order and grouped into lines."""
    ordered = in_order(words, duration_s)
    return Transcript(language, ordered, group(ordered, language), engine, duration_s)


def in_order(words: Iterable[Word], duration_s: float) -> tuple[Word, ...]:
    """The words that have a text, with times to the millisecond that never run backwards nor past the end."""
    result: list[Word] = []
    earliest = 0.0
    for word in words:
        text = " ".join(word.text.split())
        if text:
            start = min(max(word.start_s, earliest), duration_s)
            end = min(max(word.end_s, start), duration_s)
            result.append(Word(round(start, 3), round(end, 3), text, round(word.probability, 3)))
            earliest = end
    return tuple(result)


def group(words: Sequence[Word], language: str = "en") -> tuple[Line, ...]:
    """Readable lines of these words; a short one stays a little longer if the next leaves the time."""
    rows: list[list[Word]] = []
    for word in words:
        if rows and not _breaks_before(rows[-1], word, language):
            rows[-1].append(word)
        else:
            rows.append([word])
    lines = []
    for number, row in enumerate(rows):
        next_s = rows[number + 1][0].start_s if number + 1 < len(rows) else row[-1].end_s + SHORTEST_LINE_S
        end_s = max(row[-1].end_s, min(row[0].start_s + SHORTEST_LINE_S, next_s))
        lines.append(Line(row[0].start_s, round(end_s, 3), _joined((w.text for w in row), language)))
    return tuple(lines)


def _breaks_before(row: Sequence[Word], word: Word, language: str) -> bool:
    text = _joined([*(w.text for w in row), word.text], language)
    return (
        len(text) > MAX_CHARS
        or word.end_s - row[0].start_s > MAX_LINE_S
        or word.start_s - row[-1].end_s > PAUSE_S
        or row[-1].text.endswith(SENTENCE_ENDS)
    )


def _joined(texts: Iterable[str], language: str) -> str:
    return ("" if language in WITHOUT_SPACES else " ").join(texts)


# -- files -----------------------------------------------------------------------------------------------------------


def to_json(spoken: Transcript) -> str:
    """Words and lines with their times, for programs."""
    return json.dumps({"text": spoken.text, **asdict(spoken)}, ensure_ascii=False, indent=1) + "\n"


def from_json(text: str) -> Transcript:
    """The transcript that `to_json` wrote."""
    data = json.loads(text)
    return Transcript(
        language=data["language"],
        words=tuple(Word(**word) for word in data["words"]),
        lines=tuple(Line(**line) for line in data["lines"]),
        engine=data["engine"],
        duration_s=data["duration_s"],
    )


def to_srt(spoken: Transcript) -> str:
    """SubRip. It knows no escapes, so brackets that players would take for markup are replaced by their likes."""
    return "".join(
        f"{number}\n{_clock(start, ',')} --> {_clock(end, ',')}\n{text.translate(LIKE_BRACKETS)}\n\n"
        for number, (start, end, text) in enumerate(cues(spoken.lines), start=1)
    )


def to_vtt(spoken: Transcript) -> str:
    """WebVTT, with its escapes."""
    written = "".join(
        f"{_clock(start, '.')} --> {_clock(end, '.')}\n{html.escape(text, quote=False)}\n\n"
        for start, end, text in cues(spoken.lines)
    )
    return f"WEBVTT\n\n{written}"


def cues(lines: Iterable[Line]) -> Iterable[tuple[int, int, str]]:
    """Start and end in milliseconds, each cue after the one before and at least a millisecond long."""
    earliest = 0
    for line in lines:
        start = max(earliest, round(line.start_s * 1000))
        earliest = max(start + 1, round(line.end_s * 1000))
        yield start, earliest, " ".join(line.text.split())


def _clock(ms: int, mark: str) -> str:
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{mark}{ms % 1000:03}"
