"""How complete is a job? Each output and each target stands alone; what does not apply is no failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from pipeline import intake
from tests.stages.conftest import Runner

GOOD = {"name": "good", "start": 1, "end": 3}
LATE = {"name": "late", "start": 60, "end": 61}  # begins after the source's end
ASKED_FOR_TARGETS = ["local", "away"]


@pytest.fixture
def away(tmp_path: Path, use: Callable[..., None]) -> Path:
    """The root of a second target that is not there: a mount that nobody has mounted."""
    root = tmp_path / "mount"
    told = tmp_path / "targets.toml"
    told.write_text(f'[targets.away]\nkind = "file"\npath = "{root}"\n')
    use(TARGETS_FILE=str(told))
    return root


def manifest_of(shown: dict[str, object]) -> dict[str, object]:
    url = shown["context"]["finalize"]["manifest"]["local"]
    return json.loads(Path(unquote(urlsplit(url).path)).read_text())


def test_captions_of_a_source_without_sound_are_skipped_and_the_outcome_is_full(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent, captions=True)

    shown = runner.finish(job)

    assert (shown["status"], shown["outcome"]) == ("completed", "full")
    assert runner.outputs(job)["clip1-captions"]["status"] == "skipped"
    assert runner.outputs(job)["clip1-source"]["status"] == "completed"


def test_a_quality_above_the_source_is_skipped_and_the_outcome_is_full(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent, qualities=["1080p", "240p"])

    shown = runner.finish(job)

    assert shown["outcome"] == "full"
    assert {name: o["status"] for name, o in runner.outputs(job).items()} == {
        "clip1-1080p": "skipped",
        "clip1-240p": "completed",
    }


def test_a_clip_that_begins_after_the_sources_end_fails_alone(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent, clips=[LATE, GOOD])

    shown = runner.finish(job)

    assert (shown["status"], shown["outcome"]) == ("completed", "partial")
    assert runner.outputs(job)["late-source"]["error_code"] == "SOURCE_TOO_SHORT"
    assert runner.outputs(job)["good-source"]["status"] == "completed"
    assert [o["error"] and o["error"]["code"] for o in manifest_of(shown)["outputs"]] == ["SOURCE_TOO_SHORT", None]


def test_a_job_of_which_every_clip_is_bad_fails_with_the_first_ones_code(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent, clips=[LATE, {"start": 90, "end": 91}])

    shown = runner.finish(job)

    assert (shown["status"], shown["fail_code"]) == ("failed", "SOURCE_TOO_SHORT")
    assert "begins at 60 s" in shown["fail_reason"]
    assert runner.objects() == []
    assert not (runner.scratch / "jobs" / str(job)).exists()


def test_a_target_that_refuses_makes_the_job_partial_and_the_manifest_lists_both(
    runner: Runner, silent: Path, away: Path
) -> None:
    job = runner.submit(silent, targets=ASKED_FOR_TARGETS)

    shown = runner.finish(job)

    assert (shown["status"], shown["outcome"]) == ("completed", "partial")
    (entry,) = manifest_of(shown)["outputs"]
    assert entry["status"] == "completed"
    assert [file["target"] for file in entry["files"]] == ["local"]
    assert [(r["target"], r["code"]) for r in entry["refused"]] == [("away", "TARGET_NOT_FOUND")]
    assert list(shown["context"]["finalize"]["manifest"]) == ["local"]


def test_a_job_that_every_target_refuses_fails_and_says_so(runner: Runner, silent: Path, away: Path) -> None:
    job = runner.submit(silent, targets=["away"])

    shown = runner.finish(job)

    assert (shown["status"], shown["fail_code"]) == ("failed", "NOTHING_SUCCEEDED")
    assert "TARGET_NOT_FOUND" in shown["fail_reason"]
    assert runner.outputs(job)["clip1-source"]["status"] == "failed"


def test_requeue_of_what_failed_brings_it_to_the_target_that_had_refused(
    runner: Runner, silent: Path, away: Path
) -> None:
    job = runner.submit(silent, targets=ASKED_FOR_TARGETS)
    runner.finish(job)
    before = {path: path.stat().st_mtime_ns for path in runner.objects()}
    away.mkdir()

    intake.requeue(job, by="test", failed_only=True)
    shown = runner.finish(job)

    assert shown["outcome"] == "full"
    assert [d["status"] for d in runner.outputs(job)["clip1-source"]["deliveries"]] == ["delivered"] * 2
    assert sorted(p.suffix for p in away.rglob("*") if p.is_file()) == [".json", ".mp4"]
    assert {path: path.stat().st_mtime_ns for path in before} == before  # what lay there was not sent again


def test_requeue_of_what_failed_does_not_make_what_succeeded_again(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent, clips=[GOOD, LATE])
    runner.finish(job)
    before = runner.outputs(job)["good-source"], runner.units(job)

    intake.requeue(job, by="test", failed_only=True)
    shown = runner.finish(job)

    assert (shown["status"], shown["outcome"]) == ("completed", "partial")
    assert (runner.outputs(job)["good-source"], runner.units(job)) == before
    assert runner.outputs(job)["late-source"]["error_code"] == "SOURCE_TOO_SHORT"
    assert runner.claims(job).count("clip") == 2


def test_what_succeeded_but_is_gone_from_its_target_is_made_again_with_what_failed(
    runner: Runner, silent: Path
) -> None:
    job = runner.submit(silent, clips=[GOOD, LATE])
    runner.finish(job)
    (clip,) = [path for path in runner.objects() if path.suffix == ".mp4"]
    clip.unlink()

    intake.requeue(job, by="test", failed_only=True)
    shown = runner.finish(job)

    assert (shown["status"], shown["outcome"]) == ("completed", "partial")
    assert clip.exists()
