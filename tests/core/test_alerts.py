"""What is an alert, and how often is one told?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from pipeline.core.alerts import ALERTS, CALLBACKS, Alert, Cooldown, Happening, alert_of, callback_of, paced

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPAN = timedelta(minutes=5)


def happening(kind: str, **data: object) -> Happening:
    return Happening(type=kind, at=NOON, data=data, job_id=uuid4())


def alert(kind: str = "job_stalled", **data: object) -> Alert:
    return Alert(type=kind, at=NOON, data=data)


@pytest.mark.parametrize(
    ("happened", "kind"),
    [
        (happening("requeued:stale"), "stale_job_recovered"),
        (happening("stalled"), "job_stalled"),
        (happening("failed", code="RETRIES_EXHAUSTED"), "job_max_retries_exceeded"),
        (happening("failed", code="WORKER_KILLER"), "job_max_retries_exceeded"),
        (happening("failed", code="TIMEOUT"), "job_max_retries_exceeded"),
        (happening("worker_startup"), "worker_startup"),
        (happening("worker_shutdown"), "worker_shutdown"),
        (happening("breaker_opened"), "breaker_opened"),
        (happening("breaker_closed"), "breaker_closed"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_operators_hear_of(happened: Happening, kind: str) -> None:
    told = alert_of(happened)

    assert told is not None
    assert told.type == kind
    assert kind in ALERTS
    assert told.data["job_id"] == str(happened.job_id)


@pytest.mark.parametrize("happened", [happening("completed"), happening("cancelled"), happening("failed", code="X")])
def test_what_only_whoever_asked_for_the_job_hears_of(happened: Happening) -> None:
    assert alert_of(happened) is None
    assert callback_of(happened) == CALLBACKS[happened.type]


def test_a_transcription_that_stands_alone_has_no_callback() -> None:
    assert callback_of(happening("failed", table="asr_jobs")) is None


def test_of_a_type_only_the_first_is_told_until_its_cooldown_is_over() -> None:
    told, after = paced([alert(n=1), alert(n=2), alert("breaker_opened"), alert(n=3)], {}, NOON, SPAN)

    assert [(each.type, dict(each.data)) for each in told] == [("job_stalled", {"n": 1}), ("breaker_opened", {})]
    assert after["job_stalled"] == Cooldown(told_at=NOON, held=2, last_held={"n": 3})


def test_what_was_held_back_is_told_with_its_number_when_the_cooldown_is_over() -> None:
    cooling = {"job_stalled": Cooldown(told_at=NOON, held=3, last_held={"n": 4})}

    early, unchanged = paced([], cooling, NOON + SPAN - timedelta(seconds=1), SPAN)
    told, after = paced([], cooling, NOON + SPAN, SPAN)

    assert (early, unchanged) == ([], cooling)
    assert [(dict(each.data), each.repeated) for each in told] == [({"n": 4}, 2)]
    assert after == {"job_stalled": Cooldown(told_at=NOON + SPAN)}


def test_a_quiet_type_is_told_at_once_after_its_cooldown() -> None:
    told, after = paced([alert(n=9)], {"job_stalled": Cooldown(told_at=NOON)}, NOON + SPAN, SPAN)

    assert [dict(each.data) for each in told] == [{"n": 9}]
    assert after["job_stalled"] == Cooldown(told_at=NOON + SPAN)


def test_nothing_is_ever_lost_only_counted() -> None:
    told, after = paced([], {}, NOON, SPAN)
    heard, sent = 0, 0
    for minute in range(60):
        now = NOON + timedelta(minutes=minute)
        burst = [alert(n=sent + k) for k in range(minute % 3)]
        sent += len(burst)
        told, after = paced(burst, after, now, SPAN)
        heard += sum(1 + each.repeated for each in told)

    assert heard + after["job_stalled"].held == sent
