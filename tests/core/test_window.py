"""How much may be on its way to the workers?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.job import Stage
from pipeline.core.routing import IO, MEDIA, QUEUE_OF
from pipeline.core.window import UNSERVED, Shape, Sight, capacity, goes_directly, limits, rooms, window

SHAPE = Shape(per_slot=4, at_least=8)
BOTH = {IO: {2: 1}, MEDIA: {2: 1}}

counts = st.dictionaries(st.sampled_from(Stage), st.integers(0, 60))
fleets = st.dictionaries(
    st.sampled_from([IO, MEDIA]), st.dictionaries(st.integers(1, 16), st.integers(1, 5), min_size=1)
)
sights = st.builds(
    Sight, workers=fleets, published=counts, running=counts, waiting=st.frozensets(st.sampled_from(Stage))
)
shapes = st.builds(
    Shape,
    per_slot=st.integers(1, 9),
    at_least=st.integers(1, 20),
    per_worker=st.dictionaries(st.sampled_from(Stage), st.integers(1, 10)),
    fleet=st.dictionaries(st.sampled_from(Stage), st.integers(1, 10)),
)


@pytest.mark.parametrize(
    ("workers", "size"),
    [({}, UNSERVED), ({1: 1}, 8), ({2: 1}, 8), ({3: 1}, 12), ({8: 10}, 320), ({1: 2, 4: 2}, 40)],
)
def test_a_window_grows_with_the_slots_that_serve_its_queue(workers: dict[int, int], size: int) -> None:
    sight = Sight(workers={IO: workers, MEDIA: {99: 99}})

    assert window(IO, sight, SHAPE) == size


def test_a_queue_without_workers_takes_no_room_from_another() -> None:
    sight = Sight(workers={IO: {2: 1}}, published={Stage.CLIP: 1000})

    left = rooms(sight, SHAPE)

    assert left.queues == {IO: 8, MEDIA: 0}
    assert left.stages[Stage.UPLOAD] == left.stages[Stage.FINALIZE] == 8


def test_what_was_published_at_any_stage_of_a_queue_takes_its_room() -> None:
    sight = Sight(workers=BOTH, published={Stage.RESOLVE: 3, Stage.FINALIZE: 2})

    assert rooms(sight, SHAPE).queues == {IO: 3, MEDIA: 8}


def test_no_source_is_fetched_while_the_encoders_have_a_full_window_before_them() -> None:
    sight = Sight(workers=BOTH, published={Stage.CLIP: 8})

    left = rooms(sight, SHAPE)

    assert left.stages[Stage.RESOLVE] == 0
    assert left.stages[Stage.UPLOAD] == left.queues[IO] == 8


def test_what_is_begun_does_not_wait_for_what_is_not() -> None:
    sight = Sight(workers=BOTH, published={Stage.RESOLVE: 8})

    assert rooms(sight, SHAPE).stages[Stage.CLIP] == 8


@given(sights, shapes)
def test_there_is_never_more_room_than_the_window_leaves(sight: Sight, shape: Shape) -> None:
    left = rooms(sight, shape)

    for queue, room in left.queues.items():
        assert room >= 0
        assert room == 0 or room + sight.unclaimed(queue) <= window(queue, sight, shape)
    for stage, room in left.stages.items():
        assert 0 <= room <= left.queues[QUEUE_OF[stage]]
        most = capacity(stage, sight, shape)
        taken = sight.running.get(stage, 0) + sight.published.get(stage, 0)
        assert room == 0 or most is None or room + taken <= most


@given(sights, shapes)
def test_the_last_stage_is_never_held_back(sight: Sight, shape: Shape) -> None:
    unlimited = Shape(per_slot=shape.per_slot, at_least=shape.at_least)

    left = rooms(sight, unlimited)

    assert left.stages[Stage.FINALIZE] == left.queues[IO]


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "per_worker", "fleet", "most"),
    [
        ({4: 1}, None, None, None),
        ({4: 1}, 5, None, None),  # it has no more slots than it may use
        ({8: 1}, 5, None, 5),
        ({8: 2, 2: 1}, 5, None, 12),
        ({8: 2}, 5, 3, 3),
        ({8: 2}, 5, 30, 10),
        ({8: 2}, None, 3, 3),
        ({}, 5, 3, 3),
    ],
)
def test_a_stage_runs_as_often_as_its_workers_and_the_fleet_may(
    workers: dict[int, int], per_worker: int | None, fleet: int | None, most: int | None
) -> None:
    shape = Shape(
        per_slot=4,
        at_least=8,
        per_worker={Stage.CLIP: per_worker} if per_worker else {},
        fleet={Stage.CLIP: fleet} if fleet else {},
    )

    assert capacity(Stage.CLIP, Sight(workers={MEDIA: workers}), shape) == most


def test_a_limited_stage_leaves_the_room_to_others() -> None:
    shape = Shape(per_slot=4, at_least=8, fleet={Stage.ASR: 2})
    sight = Sight(workers=BOTH, running={Stage.ASR: 1}, published={Stage.ASR: 1})

    left = rooms(sight, shape)

    assert left.stages[Stage.ASR] == 0
    assert left.stages[Stage.CLIP] == 7


def test_limits_are_read_from_one_line() -> None:
    assert limits("clip=5, asr=2,") == {Stage.CLIP: 5, Stage.ASR: 2}
    assert limits("") == {}


@pytest.mark.parametrize("said", ["clip", "clip=", "clip=0", "clip=-1", "clip=many", "encode=5", "clip:5", "=5"])
def test_a_line_that_is_no_limit_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match="must be like clip=5"):
        limits(said)


# -- newcomers ---------------------------------------------------------------------------------------------------------


def test_a_newcomer_goes_directly_when_there_is_room_and_nobody_waits() -> None:
    assert goes_directly(Stage.RESOLVE, Sight(workers=BOTH), SHAPE)
    assert goes_directly(Stage.RESOLVE, Sight(), SHAPE)


@pytest.mark.parametrize(
    "sight",
    [
        Sight(workers=BOTH, published={Stage.RESOLVE: 8}),
        Sight(workers=BOTH, published={Stage.CLIP: 8}),
        Sight(workers=BOTH, waiting=frozenset({Stage.RESOLVE})),
        Sight(workers=BOTH, waiting=frozenset({Stage.UPLOAD})),
        Sight(published={Stage.RESOLVE: UNSERVED}),
    ],
    ids=["full", "encoders full", "others wait", "others of its queue wait", "nobody serves it"],
)
def test_a_newcomer_waits_like_everybody(sight: Sight) -> None:
    assert not goes_directly(Stage.RESOLVE, sight, SHAPE)


def test_a_backlog_of_another_queue_does_not_concern_a_newcomer() -> None:
    assert goes_directly(Stage.RESOLVE, Sight(workers=BOTH, waiting=frozenset({Stage.CLIP})), SHAPE)


def test_what_the_fleet_is_limited_in_is_left_to_sweep() -> None:
    shape = Shape(per_slot=4, at_least=8, fleet={Stage.RESOLVE: 10})

    assert not goes_directly(Stage.RESOLVE, Sight(workers=BOTH), shape)
