"""What does a rerender leave behind? A new generation that is whole, or the old one as if nobody had asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pipeline import intake
from pipeline.core.errors import BadRequest, NotAllowedNow
from pipeline.core.job import Stage
from pipeline.store import reads
from pipeline.store.engine import database
from pipeline.upkeep import prune
from tests.stages.conftest import Runner
from tests.stages.rerendering import (
    CLIP,
    QUALITIES,
    as_published,
    assert_healthy,
    away,
    clear_away,
    finished,
    keys,
    outputs_of,
    quick_engine,
)

__all__ = ["away", "finished", "quick_engine"]  # fixtures

# -- a new generation ------------------------------------------------------------------------------------------------


def test_the_old_generation_stays_until_the_new_one_is_whole_and_then_the_pointer_moves(
    runner: Runner, finished: UUID
) -> None:
    old = as_published(runner, finished)

    intake.rerender(finished, by="ann")
    runner.until(finished, Stage.FINALIZE)
    meanwhile = reads.newest_outputs(database(), finished), as_published(runner, finished)["objects"]
    shown = runner.finish(finished)

    assert meanwhile == (old["newest"], old["objects"])
    assert (shown["status"], shown["outcome"], shown["generation"], shown["building"]) == ("completed", "full", 2, 2)
    assert all("/g2/" in key for lying in keys(finished).values() for key in lying)
    assert "/g2/" in shown["context"]["finalize"]["key"]
    assert_healthy()


def test_what_is_no_longer_referred_to_is_deleted_after_a_while_and_nothing_else(
    runner: Runner, finished: UUID
) -> None:
    intake.rerender(finished, by="ann")
    runner.finish(finished)
    before = prune()
    new = [path for path in runner.objects() if "/g2/" in str(path)]

    done = clear_away(runner, finished)

    assert (before.removed, done.tidied, done.removed) == (0, 1, 3)
    assert runner.objects() == new
    assert {o["generation"] for o in outputs_of(finished)} == {2}
    assert clear_away(runner, finished).tidied == 0
    assert_healthy()


def test_only_the_chosen_qualities_are_made_and_the_others_keep_their_keys(runner: Runner, finished: UUID) -> None:
    before = keys(finished)

    intake.rerender(finished, by="ann", qualities=["240p"])
    shown = runner.finish(finished)
    clear_away(runner, finished)

    assert (shown["status"], shown["outcome"], shown["generation"]) == ("completed", "full", 2)
    assert keys(finished)["clip1-source"] == before["clip1-source"]
    assert all("/g2/" in key for key in keys(finished)["clip1-240p"])
    assert len(runner.objects()) == 3  # two clips and a manifest
    assert_healthy()


def test_only_the_words_are_made_anew_and_no_picture_is_sent_again(
    runner: Runner, talkie: Path, quick_engine: None
) -> None:
    job = runner.submit(talkie, clips=CLIP, captions=True)
    runner.finish(job)
    before = keys(job)

    intake.rerender(job, by="ann", transcription=True)
    shown = runner.finish(job)
    clear_away(runner, job)

    assert (shown["status"], shown["outcome"], shown["generation"]) == ("completed", "full", 2)
    assert keys(job)["clip1-source"] == before["clip1-source"]
    assert all("/g2/" in key for key in keys(job)["clip1-captions"])
    assert_healthy()


def test_a_list_of_streams_leads_to_carried_ones_too(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent, clips=CLIP, qualities=QUALITIES, formats=["hls"])
    assert runner.finish(job)["outcome"] == "full"

    intake.rerender(job, by="ann", qualities=["240p"])
    shown = runner.finish(job)
    clear_away(runner, job)

    assert (shown["outcome"], shown["generation"]) == ("full", 2)
    (master,) = [path for path in runner.objects() if path.name == "master.m3u8"]
    streams = [master.parent / line for line in master.read_text().splitlines() if line and not line.startswith("#")]
    assert sorted(stream.resolve().parts[-3] for stream in streams) == ["g1", "g2"]
    for stream in streams:
        parts = [line for line in stream.read_text().splitlines() if line and not line.startswith("#")]
        assert parts
        assert all((stream.parent / part).exists() for part in parts)
    assert_healthy()


def test_a_carried_output_that_is_gone_from_its_target_is_made_again(runner: Runner, finished: UUID) -> None:
    (lost,) = keys(finished)["clip1-source"]
    intake.rerender(finished, by="ann", qualities=["240p"])
    (runner.output / lost).unlink()

    shown = runner.finish(finished)

    assert (shown["status"], shown["generation"]) == ("completed", 2)
    assert all("/g2/" in key for lying in keys(finished).values() for key in lying)
    assert_healthy()


def test_what_a_target_had_refused_is_carried_over_without_being_made_or_sent_again(
    runner: Runner, silent: Path, away: Path
) -> None:
    away.rename(away.with_name("unmounted"))
    job = runner.submit(silent, clips=CLIP, qualities=QUALITIES, targets=["local", "away"])
    runner.finish(job)
    before, made_at = runner.outputs(job)["clip1-source"], runner.units(job)["clip1-source"]

    intake.rerender(job, by="ann", qualities=["240p"])
    shown = runner.finish(job)

    assert (shown["generation"], shown["outcome"]) == (2, "partial")
    assert runner.outputs(job)["clip1-source"] == before
    assert runner.units(job)["clip1-source"] == made_at


def test_after_one_that_came_to_nothing_the_next_one_gets_a_number_of_its_own(runner: Runner, finished: UUID) -> None:
    intake.rerender(finished, by="ann")
    runner.until(finished, Stage.FINALIZE)
    intake.cancel(finished, by="ann")

    intake.rerender(finished, by="ann")
    shown = runner.finish(finished)
    clear_away(runner, finished)

    assert (shown["generation"], shown["run"]) == (3, 3)
    assert {path.parent.name for path in runner.objects()} == {"g3"}
    assert_healthy()


@pytest.mark.parametrize(
    ("asked_for", "code"),
    [({"qualities": ["720p"]}, "UNKNOWN_QUALITY"), ({"transcription": True}, "NO_CAPTIONS")],
    ids=["a quality that it does not have", "words that it does not have"],
)
def test_what_the_job_does_not_have_cannot_be_made_anew(
    runner: Runner, finished: UUID, asked_for: dict[str, Any], code: str
) -> None:
    before = as_published(runner, finished)

    with pytest.raises(BadRequest) as refusal:
        intake.rerender(finished, by="ann", **asked_for)

    assert refusal.value.reason == code
    assert as_published(runner, finished) == before


def test_a_job_whose_source_is_gone_is_not_begun_again(runner: Runner, silent: Path, tmp_path: Path) -> None:
    source = tmp_path / "source.mp4"
    source.write_bytes(silent.read_bytes())
    job = runner.submit(source, clips=CLIP)
    runner.finish(job)
    source.unlink()

    with pytest.raises(BadRequest):
        intake.rerender(job, by="ann")

    assert runner.job(job).run == 1


def test_only_what_is_completed_can_be_rerendered(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent)

    with pytest.raises(NotAllowedNow, match="A job that is queued cannot be rerendered"):
        intake.rerender(job, by="ann")
