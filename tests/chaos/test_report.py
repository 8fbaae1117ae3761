"""Does the report say what happened, to people, programs and the eye?"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

from pipeline.chaos import report, timeline
from pipeline.chaos.checker import Violation
from pipeline.chaos.history import Struck
from pipeline.chaos.plan import Strike
from pipeline.chaos.run import Options, Outcome
from tests.chaos.test_checker import Story, at, good, worker

FAULTS = ("worker", "ghost", "postgres-crash", "duplicates", "disk", "beat", "supervisor", "broker-flush")


def outcome() -> Outcome:
    strikes = [Strike(at_s=n + 1.2, fault=name, victim=1, lasts_s=0.3, pick=0) for n, name in enumerate(FAULTS)]
    struck = [
        Struck(strike=strike, began_at=at(strike.at_s), ended_at=at(strike.at_s + 0.3), what="<it> & all", pids=(7,))
        for strike in strikes
    ]
    story = Story().ran("resolve", "requeued:stale")
    for stage in ("resolve", "clip", "finalize"):
        story.ran(stage, "stage_completed")
    return Outcome(
        options=Options(jobs=1, seed=9, workers=2),
        strikes=tuple(strikes),
        skipped={},
        began_at=at(0),
        quiet_at=at(20),
        ended_at=at(55),
        struck=tuple(struck),
        history=story.told(workers=(replace(worker(0, 0), id="w"),)),
        violations=[],
    )


def test_the_picture_has_a_mark_for_each_fault_in_the_lane_of_its_victim() -> None:
    picture = ET.fromstring(timeline.draw(outcome()))

    marks = [title.text or "" for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert [mark.partition(" at ")[0] for mark in marks] == list(FAULTS)
    assert all("<it> & all" in mark for mark in marks)


def test_a_run_that_kept_its_promises_says_so_and_how_long_recovery_took(tmp_path: Path) -> None:
    told = report.write(outcome(), tmp_path)

    assert json.loads((tmp_path / "report.json").read_text())["kept"] is True
    assert told["recovery"]["worker"] == {"jobs": 1, "p50_s": 0.8, "p99_s": 0.8, "max_s": 0.8}
    assert "Every promise was kept" in (tmp_path / "report.txt").read_text()
    assert "0.80 s" in (tmp_path / "report.txt").read_text()


def test_a_broken_promise_stands_in_the_text_the_document_and_the_picture() -> None:
    spoiled = replace(outcome(), history=good(), violations=[Violation("nothing_is_lost", "job", "has no row")])

    told = report.document(spoiled)

    assert told["kept"] is False
    assert "nothing_is_lost: job: has no row" in report.text(told)
    assert "1 violations" in timeline.draw(spoiled)


def test_what_could_not_be_tried_is_told() -> None:
    told = report.document(replace(outcome(), skipped={"disk": "a disk of one's own takes root on Linux"}))

    assert "not tried: disk: a disk of one's own takes root on Linux" in report.text(told)
