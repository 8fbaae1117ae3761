"""When do we stop asking a service, and when do we ask again?"""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.breaker import (
    FIRST_OPEN,
    LONGEST_OPEN,
    THRESHOLD,
    TRIAL_TTL,
    Breaker,
    State,
    blamed,
    closed,
    fault,
    opened,
    success,
    trial,
    trial_failed,
    trial_succeeded,
)
from pipeline.core.errors import IronclipError, Kind
from tests.core.lives import NOW

NAS = Breaker(service="target:nas")


def faulty(jobs: list[UUID]) -> Breaker:
    breaker = NAS
    for job in jobs:
        breaker = fault(breaker, job, NOW)
    return breaker


def on_trial(ticket: UUID) -> Breaker:
    begun = trial(opened(NAS, NOW), ticket, NOW + FIRST_OPEN)
    assert begun is not None
    return begun


def test_an_unknown_service_counts_as_healthy():
    assert NAS.lets_through()


def test_faults_of_distinct_jobs_open_the_breaker():
    almost, enough = faulty([uuid4() for _ in range(THRESHOLD - 1)]), faulty([uuid4() for _ in range(THRESHOLD)])

    assert almost.lets_through()
    assert not enough.lets_through()
    assert enough.opens_at == NOW + timedelta(minutes=5)


def test_one_job_that_fails_again_and_again_opens_nothing():
    assert faulty([uuid4()] * 100).lets_through()


def test_a_success_in_between_starts_the_count_anew():
    breaker = success(faulty([uuid4() for _ in range(THRESHOLD - 1)]))

    assert fault(breaker, uuid4(), NOW).lets_through()


def test_stragglers_do_not_push_the_opening_out():
    breaker = opened(NAS, NOW)

    assert fault(breaker, uuid4(), NOW + timedelta(minutes=4)) == breaker


def test_a_straggler_that_succeeds_does_not_close_what_others_opened():
    ticket = uuid4()

    assert success(opened(NAS, NOW)) == opened(NAS, NOW)
    assert success(on_trial(ticket)) == on_trial(ticket)


def errors(kind: Kind | None = None) -> list[type[IronclipError]]:
    """Every error of ours, or those of a kind."""
    found, todo = [], [IronclipError]
    while todo:
        todo += (each := todo.pop()).__subclasses__()
        found += [each] if kind in (None, each.kind) else []
    return found


@pytest.mark.parametrize("kind", errors(Kind.FAIL), ids=lambda c: c.__name__)
def test_no_service_is_blamed_for_what_no_retry_can_mend(kind: type[IronclipError]):
    error = kind.__new__(kind)
    IronclipError.__init__(error, "no", service="target:nas")

    assert blamed(error) is None


@pytest.mark.parametrize("kind", [*errors(Kind.DEFER), *errors(Kind.RETRY)], ids=lambda c: c.__name__)
def test_a_service_is_blamed_if_the_error_names_it(kind: type[IronclipError]):
    named, unnamed = kind.__new__(kind), kind.__new__(kind)
    IronclipError.__init__(named, "no", service="target:nas")
    IronclipError.__init__(unnamed, "no")

    assert (blamed(named), blamed(unnamed)) == ("target:nas", None)


def test_each_opening_in_a_row_is_twice_as_long_up_to_the_cap():
    breaker, now, spans = opened(NAS, NOW), NOW, []
    for _ in range(6):
        assert breaker.opens_at is not None
        spans.append(breaker.opens_at - now)
        now, ticket = breaker.opens_at, uuid4()
        begun = trial(breaker, ticket, now)
        assert begun is not None
        breaker = trial_failed(begun, ticket, now)

    assert [span / timedelta(minutes=1) for span in spans] == [5, 10, 20, 40, 60, 60]
    assert max(spans) == LONGEST_OPEN


def test_after_it_was_closed_the_next_opening_is_short_again():
    breaker = opened(closed(opened(opened(NAS, NOW), NOW)), NOW)

    assert breaker.opens_at == NOW + FIRST_OPEN


def test_no_trial_begins_while_the_breaker_is_closed_or_freshly_open():
    assert trial(NAS, uuid4(), NOW) is None
    assert trial(opened(NAS, NOW), uuid4(), NOW + FIRST_OPEN - timedelta(microseconds=1)) is None


def test_exactly_one_trial_is_under_way():
    breaker = on_trial(uuid4())

    assert breaker.state is State.HALF_OPEN
    assert not breaker.lets_through()
    assert trial(breaker, uuid4(), NOW + FIRST_OPEN) is None


def test_a_trial_that_never_reports_back_blocks_nobody():
    breaker, next_one = on_trial(uuid4()), uuid4()

    begun = trial(breaker, next_one, NOW + FIRST_OPEN + TRIAL_TTL)

    assert begun is not None
    assert begun.trial == next_one


def test_the_word_of_an_older_trial_counts_for_nothing():
    old, new = uuid4(), uuid4()
    breaker = trial(on_trial(old), new, NOW + FIRST_OPEN + TRIAL_TTL)
    assert breaker is not None

    assert trial_failed(breaker, old, NOW + FIRST_OPEN + TRIAL_TTL) == breaker
    assert trial_succeeded(breaker, old) == breaker


@pytest.mark.parametrize("breaker", [NAS, opened(NAS, NOW)], ids=["closed", "open"])
def test_a_trial_that_ends_after_somebody_else_decided_changes_nothing(breaker: Breaker):
    assert trial_failed(breaker, uuid4(), NOW) == breaker
    assert trial_succeeded(breaker, uuid4()) == breaker


def test_a_trial_that_succeeds_closes_and_forgets_everything():
    ticket = uuid4()

    assert trial_succeeded(on_trial(ticket), ticket) == NAS


acts = st.tuples(
    st.sampled_from(["fault", "success", "trial", "old trial failed", "trial failed", "trial succeeded"]),
    st.integers(0, 400),
)


@given(st.lists(acts, max_size=60))
def test_whatever_is_reported_the_breaker_stays_whole_and_can_always_be_tried_again(history: list[tuple[str, int]]):
    breaker, now, tickets = NAS, NOW, [uuid4()]
    for act, seconds in history:
        now += timedelta(seconds=seconds)
        match act:
            case "fault":
                breaker = fault(breaker, uuid4(), now)
            case "success":
                breaker = success(breaker)
            case "trial":
                tickets.append(uuid4())
                breaker = trial(breaker, tickets[-1], now) or breaker
            case "trial failed":
                breaker = trial_failed(breaker, breaker.trial or uuid4(), now)
            case "trial succeeded":
                breaker = trial_succeeded(breaker, breaker.trial or uuid4())
            case "old trial failed":
                breaker = trial_failed(breaker, tickets[0], now)
        assert (breaker.state is State.OPEN) <= (breaker.opens_at is not None)
        assert (breaker.trial is None) == (breaker.trial_expires_at is None)
        assert (breaker.state is State.HALF_OPEN) == (breaker.trial is not None)
        assert breaker.lets_through() or breaker.may_try(now + LONGEST_OPEN)
