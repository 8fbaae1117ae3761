"""When may a job run again?"""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.backoff import ceiling, delay

BASE, CAP = timedelta(minutes=1), timedelta(minutes=30)


@pytest.mark.parametrize(
    ("attempt", "minutes"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30), (1000, 30)]
)
def test_the_longest_delay_doubles_up_to_the_cap(attempt: int, minutes: int):
    assert ceiling(attempt, BASE, CAP) == timedelta(minutes=minutes)


@given(job=st.uuids(), attempt=st.integers(1, 200), base_ms=st.integers(0, 10**6), cap_ms=st.integers(0, 10**8))
def test_a_delay_is_never_longer_than_its_ceiling_and_never_nothing(job: UUID, attempt: int, base_ms: int, cap_ms: int):
    base, cap = timedelta(milliseconds=base_ms), timedelta(milliseconds=cap_ms)

    waited = delay(job, attempt, base, cap)

    assert min(timedelta(seconds=0.5), ceiling(attempt, base, cap)) <= waited <= ceiling(attempt, base, cap)


@given(job=st.uuids(), attempt=st.integers(1, 10))
def test_the_same_job_and_attempt_wait_equally_long(job: UUID, attempt: int):
    assert delay(job, attempt, BASE, CAP) == delay(job, attempt, BASE, CAP)


def test_jobs_that_failed_together_do_not_come_back_together():
    delays = sorted(delay(uuid4(), 6, BASE, CAP) for _ in range(1000))

    assert len(set(delays)) > 990
    assert delays[100] < CAP / 4
    assert delays[900] > CAP * 3 / 4


def test_without_a_base_nobody_waits():
    assert delay(uuid4(), 5, timedelta(0), CAP) == timedelta(0)
