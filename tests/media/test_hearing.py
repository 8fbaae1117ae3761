"""Is a long sound cut where nobody speaks, and does each word stand where it is heard?"""

from __future__ import annotations

import wave
from array import array
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.media import sound
from pipeline.media.asr import hearing
from pipeline.media.asr.hearing import Window
from pipeline.media.captions import Word
from pipeline.media.sound import STEP_S, Loudness

LOUDNESS = st.lists(st.sampled_from([0.0, 50.0, 500.0, 3000.0]), min_size=1, max_size=1500).map(
    lambda steps: Loudness(steps, 100.0)
)


def heard(*spans: tuple[float, float], until_s: float = 20.0) -> Loudness:
    """A sound that is loud in these spans only."""
    times = (n * STEP_S for n in range(int(until_s / STEP_S)))
    return Loudness([1000.0 if any(a <= t < b for a, b in spans) else 0.0 for t in times], 100.0)


@settings(deadline=None)
@given(LOUDNESS, st.floats(1, 30))
def test_windows_have_all_of_the_sound_once(loud: Loudness, window_s: float) -> None:
    cut = hearing.windows(loud, window_s)

    assert cut[0].start_s == 0.0
    assert cut[-1].end_s == round(loud.duration_s, 2)
    assert all(one.end_s == other.start_s for one, other in pairwise(cut))
    assert all(w.from_s <= w.start_s <= w.end_s <= w.to_s <= cut[-1].end_s for w in cut)
    assert all(w.end_s - w.start_s <= 1.26 * window_s for w in cut)
    assert all(w.end_s - w.start_s >= window_s / 2 - 0.1 for w in cut[:-1])


def test_a_window_ends_in_the_pause_that_is_near_its_end() -> None:
    loud = heard((0, 3), (3.5, 7), (8, 20))

    cut = hearing.windows(loud, 8.5)

    assert 7.0 < cut[0].end_s < 8.0
    assert cut[0].to_s == cut[0].end_s == cut[1].from_s  # nobody has to hear what is beyond a pause


def test_where_nobody_pauses_both_windows_hear_beyond_their_border() -> None:
    cut = hearing.windows(heard((0, 20)), 8)

    assert cut[0].to_s > cut[0].end_s
    assert cut[1].from_s < cut[1].start_s


def test_a_word_on_a_border_is_neither_lost_nor_doubled() -> None:
    loud = heard((0, 20))
    one, other = Window(0, 8, 0, 10), Window(8, 16, 6, 16)
    # Both hear all of it; the middle of the one on the border belongs to the second.
    said = [Word(6.4, 6.8, "far"), Word(7.0, 7.6, "left"), Word(7.7, 8.5, "border"), Word(8.6, 9.0, "right")]
    seen_from_6 = [replace(word, start_s=word.start_s - 6, end_s=word.end_s - 6) for word in said]

    first, second = hearing.kept(said, one, loud), hearing.kept(seen_from_6, other, loud)

    assert [word.text for word in first] == ["far", "left"]
    assert [word.text for word in second] == ["border", "right"]


def test_a_word_that_both_windows_took_for_theirs_stands_once() -> None:
    first, second = [Word(7.5, 7.9, "border,")], [Word(7.6, 8.5, "Border"), Word(8.6, 9, "border")]

    assert [word.text for word in hearing.joined([first, second])] == ["border,", "border"]


def test_a_word_begins_and_ends_with_its_sound() -> None:
    loud = heard((1.0, 1.5), (3.0, 3.4))

    early, late = hearing.settled([Word(0.4, 1.9, "one"), Word(3.2, 3.3, "two")], loud)

    assert (round(early.start_s, 2), round(early.end_s, 2)) == (1.0, 1.5)
    assert (round(late.start_s, 2), round(late.end_s, 2)) == (3.0, 3.4)


def test_words_without_a_pause_between_them_stay_where_the_engine_heard_them() -> None:
    words = [Word(1.2, 1.6, "one"), Word(1.7, 2.2, "two")]

    assert hearing.settled(words, heard((0, 20))) == words


def test_a_word_never_runs_into_the_one_before_it() -> None:
    loud = heard((1.0, 2.0))

    one, two = hearing.settled([Word(1.0, 1.5, "one"), Word(1.5, 1.9, "two")], loud)

    assert one.end_s <= two.start_s


def test_loudness_tells_speech_from_a_noisy_pause(tmp_path: Path) -> None:
    noise, speech = [(-1) ** n * 60 for n in range(16000)], [(-1) ** n * 6000 for n in range(16000)]
    with wave.open(str(tmp_path / "s.wav"), "wb") as wav:
        wav.setparams((1, 2, 16000, 0, "NONE", ""))
        wav.writeframes(array("h", noise + speech + noise).tobytes())

    loud = sound.loudness(tmp_path / "s.wav")

    assert loud.duration_s == 3.0
    assert [loud.is_quiet(step) for step in (25, 75, 125)] == [True, False, True]


def test_a_piece_of_a_sound_is_as_long_as_asked_for(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "s.wav"), "wb") as wav:
        wav.setparams((1, 2, 16000, 0, "NONE", ""))
        wav.writeframes(array("h", [0] * 16000 + [9] * 16000).tobytes())

    sound.copy_piece(tmp_path / "s.wav", 0.5, 1.5, tmp_path / "p.wav")

    with wave.open(str(tmp_path / "p.wav")) as piece:
        samples = array("h", piece.readframes(99999))
    assert (len(samples), sum(samples)) == (16000, 8000 * 9)
