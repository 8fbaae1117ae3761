"""What must a job make, and how complete is what it made?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.job import Outcome, OutputStatus
from pipeline.core.output import File, Output, made_anew, outcome, wanted
from pipeline.core.request import parse

DONE, FAILED, SKIPPED = OutputStatus.COMPLETED, OutputStatus.FAILED, OutputStatus.SKIPPED


def made(*statuses: OutputStatus, critical: bool = False) -> list[Output]:
    return [
        Output(id=n, name=f"o{n}", kind="video", clip="c", status=status, critical=critical)
        for n, status in enumerate(statuses)
    ]


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (made(DONE), Outcome.FULL),
        (made(DONE, DONE, SKIPPED), Outcome.FULL),
        (made(DONE, FAILED), Outcome.PARTIAL),
        (made(DONE, FAILED, SKIPPED), Outcome.PARTIAL),
        (made(FAILED), None),
        (made(FAILED, SKIPPED), None),
        (made(SKIPPED), None),
        ([], None),
        (made(DONE, FAILED, critical=True), None),
        (made(DONE, SKIPPED, critical=True), Outcome.FULL),
        (made(DONE) + made(FAILED, critical=True), None),
    ],
)
def test_a_job_is_full_partial_or_failed_by_its_outputs(outputs: list[Output], expected: Outcome | None):
    assert outcome(outputs) is expected


@given(st.lists(st.sampled_from([DONE, FAILED, SKIPPED])))
def test_a_job_without_critical_outputs_fails_only_when_nothing_succeeded(statuses: list[OutputStatus]):
    assert (outcome(made(*statuses)) is None) == (DONE not in statuses)


def test_every_clip_wants_each_quality_and_its_captions_under_names_of_their_own():
    request = parse({"source": "a.mp4", "clips": [{"name": "a"}, {"name": "a-720p"}], "qualities": ["source", "720p"]})

    rows = wanted(request, price=7)

    assert [row.name for row in rows] == [
        "a-source",
        "a-720p",
        "a-captions",
        "a-720p-source",
        "a-720p-720p",
        "a-720p-captions",
    ]
    assert {(row.kind, row.quality) for row in rows} == {("video", "source"), ("video", "720p"), ("captions", None)}
    assert {row.price for row in rows} == {7}


def test_hls_wants_a_row_for_each_rendition_and_one_that_names_them():
    request = parse(
        {"source": "a.mp4", "clips": [{"name": "a"}], "qualities": ["720p", "240p"], "captions": False}
        | {"formats": ["mp4", "hls"], "thumbnail": True}
    )

    rows = wanted(request, price=7)

    assert [(row.name, row.kind, row.quality, row.price) for row in rows] == [
        ("a-720p", "video", "720p", 7),
        ("a-240p", "video", "240p", 7),
        ("a-720p-hls", "hls", "720p", 7),
        ("a-240p-hls", "hls", "240p", 7),
        ("a-master", "master", None, 0),
        ("a-thumbnail", "thumbnail", None, 0),
    ]


def test_whoever_renews_a_rendition_renews_the_list_of_them():
    names = ("a-720p-hls", "hls", "720p"), ("a-240p-hls", "hls", "240p"), ("a-master", "master", None)
    outputs = [Output(id=n, name=name, kind=kind, clip="a", quality=q) for n, (name, kind, q) in enumerate(names)]

    assert made_anew(outputs, ["240p"], transcription=False) == ("a-240p-hls", "a-master")


def test_without_captions_only_pictures_are_wanted():
    request = parse({"source": "a.mp4", "clips": [{}], "captions": False})

    assert [row.name for row in wanted(request, price=0)] == ["clip1-source"]


def test_the_suffix_of_a_file_is_what_follows_its_last_dot():
    assert File(name="a.b.mp4", sha256="", size=1).suffix == ".mp4"


@pytest.mark.parametrize("status", OutputStatus)
def test_an_output_is_final_when_nothing_more_will_happen_to_it(status: OutputStatus):
    assert status.is_final == (status in (DONE, FAILED, SKIPPED))


def test_burnt_in_captions_are_one_more_output_for_each_clip():
    request = parse({"source": "a.mp4", "clips": [{"name": "a"}, {"name": "b"}], "burn_in": True})

    burnt = [row for row in wanted(request, price=7) if row.kind == "burnin"]

    assert [(row.name, row.clip, row.price) for row in burnt] == [("a-burnin", "a", 7), ("b-burnin", "b", 7)]
