"""How is a long sound heard, and where exactly does a word begin?

In windows, so that little is lost when the machine stops: each ends in the quietest moment that is near, and what was
heard of it can be kept. Where that is no pause, both windows hear a little of what is beyond their border, and a word
belongs to the one that has its middle. Engines are a few tenths of a second off where a word follows a pause: the
loudness of the sound says better where it begins and ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pipeline.media.captions import Word
from pipeline.media.sound import STEP_S, Loudness

AROUND_S = 2.0  # what is heard beyond a border that is no pause
SEARCH_S = 30.0  # how far before its end a window looks for a pause, but never more than half of it
PAUSE_S = 0.3
SAME_S = 0.25  # the same word twice within this is one word
SHORTEST_WORD_S = 0.06
FURTHEST_S = 0.5  # how far a word is made longer
PAUSE_STEPS = 5  # a shorter quiet is a sound like t or f


@dataclass(frozen=True)
class Window:
    """A part of a sound: what belongs to it, and what is heard with it."""

    start_s: float
    end_s: float
    from_s: float
    to_s: float


def windows(sound: Loudness, window_s: float) -> list[Window]:
    """The windows of a sound: as long as asked for or a little shorter, and cut in pauses."""
    borders = [0.0]
    while sound.duration_s - borders[-1] > 1.25 * window_s:
        latest = borders[-1] + window_s
        earliest = latest - min(SEARCH_S, window_s / 2)
        borders.append(round(sound.quietest(earliest, latest, PAUSE_S), 2))
    around = [0.0, *(0.0 if _is_pause(at, sound) else AROUND_S for at in borders[1:]), 0.0]
    ends = [*borders, round(sound.duration_s, 2)]
    return [
        Window(start, end, max(0.0, start - around[n]), min(ends[-1], end + around[n + 1]))
        for n, (start, end) in enumerate(pairwise(ends))
    ]


def _is_pause(at_s: float, sound: Loudness) -> bool:
    middle, half = int(at_s / STEP_S), int(PAUSE_S / STEP_S / 2)
    return all(sound.is_quiet(step) for step in range(middle - half, middle + half))


def kept(heard: Iterable[Word], window: Window, sound: Loudness) -> list[Word]:
    """The words of a window, at their times in the whole sound."""
    moved = [replace(w, start_s=w.start_s + window.from_s, end_s=w.end_s + window.from_s) for w in heard]
    starts_quietly, ends_quietly = window.from_s == window.start_s, window.to_s == window.end_s
    return [
        word
        for word in settled(moved, sound)
        if (starts_quietly or (word.start_s + word.end_s) / 2 >= window.start_s)
        and (ends_quietly or (word.start_s + word.end_s) / 2 < window.end_s)
    ]


def joined(parts: Iterable[Sequence[Word]]) -> list[Word]:
    """The words of all windows, one after the other; a word on a border that both have heard stands once."""
    words: list[Word] = []
    for part in parts:
        skips = bool(part and words and _is_same(words[-1], part[0]))
        words += part[1:] if skips else part
    return words


def _is_same(one: Word, other: Word) -> bool:
    plain = [text.strip(" .,;:?!").lower() for text in (one.text, other.text)]
    return plain[0] == plain[1] and abs(one.start_s - other.start_s) < SAME_S


def settled(words: Sequence[Word], sound: Loudness) -> list[Word]:
    """The words at times that are true to the sound: none begins or ends in a pause, or in the middle of its sound."""
    result: list[Word] = []
    for n, word in enumerate(words):
        earliest = result[-1].end_s if result else 0.0
        latest = words[n + 1].start_s if n + 1 < len(words) else sound.duration_s
        start_s = _start(word, earliest, sound)
        result.append(replace(word, start_s=start_s, end_s=max(_end(word, start_s, latest, sound), start_s)))
    return result


def _start(word: Word, earliest: float, sound: Loudness) -> float:
    step = int(word.start_s / STEP_S)
    if sound.is_quiet(step):
        last = int((word.end_s - SHORTEST_WORD_S) / STEP_S)
        found = next((s for s in range(step, last + 1) if not sound.is_quiet(s)), None)
        return word.start_s if found is None else max(word.start_s, found * STEP_S)
    first = int(max(earliest, word.start_s - FURTHEST_S) / STEP_S)
    begun = _edge(range(step, first - 1, -1), sound)
    return word.start_s if begun is None else max(earliest, begun * STEP_S)


def _end(word: Word, start_s: float, latest: float, sound: Loudness) -> float:
    step = int(word.end_s / STEP_S)
    if sound.is_quiet(step):
        first = int((start_s + SHORTEST_WORD_S) / STEP_S)
        found = next((s + 1 for s in range(step, first - 1, -1) if not sound.is_quiet(s)), None)
        return word.end_s if found is None else min(word.end_s, found * STEP_S)
    last = int(min(latest, word.end_s + FURTHEST_S) / STEP_S)
    ended = _edge(range(step, last + 1), sound)
    return word.end_s if ended is None else min(latest, (ended + 1) * STEP_S)


def _edge(steps: Iterable[int], sound: Loudness) -> int | None:
    """The last loud step before a pause, on the way along these steps. None without a pause: then the sound goes over
    into the next word's, and only the engine knows where."""
    edge, quiet = None, 0
    for step in steps:
        if not sound.is_quiet(step):
            edge, quiet = step, 0
            continue
        quiet += 1
        if quiet == PAUSE_STEPS:
            return edge
    return None
