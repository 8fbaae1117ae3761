"""Does whoever wants to hear of something hear of it: at least once, signed, and without holding up anybody else?"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest

from pipeline import settings, webhooks
from pipeline.core.moves import Cancel
from pipeline.store import endpoints, jobs
from pipeline.store import webhooks as deliveries
from pipeline.store.engine import Database
from pipeline.upkeep import alerts
from pipeline.upkeep import webhooks as run
from pipeline.upkeep.webhooks import EACH
from tests.webhooks.world import FOREVER, SECRET, Place, ask, complete, fail, make_due, rows

Make = Callable[..., Place]
sending_module = importlib.import_module("pipeline.upkeep.webhooks")  # its function has the same name


def statuses(db: Database) -> list[tuple[str, str]]:
    return [
        (r["type"], r["status"]) for r in rows(db, "SELECT type, status FROM webhook_deliveries ORDER BY created_at")
    ]


# -- callbacks -------------------------------------------------------------------------------------------------------


def test_whoever_asked_for_a_job_hears_how_it_ended(db: Database, film: Path, endpoint: Make) -> None:
    place = endpoint()
    done = complete(db, ask(film, callback_url=place.url))
    failed = fail(db, ask(film, callback_url=place.url))
    cancelled = ask(film, callback_url=place.url)
    jobs.apply(db, cancelled.id, Cancel(by="ann"))
    complete(db, ask(film))  # nobody wants to hear of this one

    run()

    told = {got.json["job_id"]: got.json for got in place.got}
    assert {job: body["type"] for job, body in told.items()} == {
        str(done.id): "job_completed",
        str(failed.id): "job_failed",
        str(cancelled.id): "job_cancelled",
    }
    assert told[str(done.id)]["job"]["outcome"] == "full"
    assert told[str(done.id)]["job"]["outputs"][0]["name"] == "clip1-source"
    assert told[str(failed.id)]["job"]["fail_code"] == "SOURCE_NOT_FOUND"
    assert {status for _, status in statuses(db)} == {"delivered"}


def test_a_callback_is_signed_with_the_secret_of_its_account_and_no_other(
    db: Database, film: Path, endpoint: Make
) -> None:
    place = endpoint()
    complete(db, ask(film, callback_url=place.url))

    run()

    (got,) = place.got
    signature, now = got.headers[webhooks.SIGNATURE], time.time()
    secret = webhooks.secret_of(SECRET, None)
    assert webhooks.verify(secret, signature, got.body, now)
    assert not webhooks.verify(webhooks.secret_of(SECRET, "ann"), signature, got.body, now)
    assert not webhooks.verify(secret, signature, got.body + b" ", now)
    assert not webhooks.verify(secret, signature, got.body, now + 301)
    assert not webhooks.verify(secret, signature.replace("t=", "t=1"), got.body, now)
    assert not webhooks.verify(secret, "", got.body, now)


def test_nothing_is_sent_unsigned(db: Database, film: Path, endpoint: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    place = endpoint()
    complete(db, ask(film, callback_url=place.url))
    monkeypatch.setenv("WEBHOOK_SECRET", "")
    settings.current.cache_clear()

    run()

    (row,) = rows(db, "SELECT status, last_error FROM webhook_deliveries")
    assert place.got == []
    assert row["status"] == "pending"
    assert "WEBHOOK_SECRET" in row["last_error"]


def test_an_endpoint_of_an_account_hears_of_its_jobs_only(db: Database, film: Path, endpoint: Make) -> None:
    db.run(deliveries.text("INSERT INTO accounts (id, balance) VALUES ('ann', 100), ('bob', 100)"))
    place = endpoint()
    endpoints.add(db, place.url, "s", ["job_failed"], "ann")
    anns = fail(db, ask(film, account="ann"))
    fail(db, ask(film, account="bob"))
    jobs.apply(db, ask(film, account="ann").id, Cancel(by="ann"))

    run()

    assert [(got.json["type"], got.json["job_id"]) for got in place.got] == [("job_failed", str(anns.id))]


# -- at least once ---------------------------------------------------------------------------------------------------


def test_what_was_not_taken_is_sent_again_under_the_same_id_and_later_each_time(
    db: Database, film: Path, endpoint: Make
) -> None:
    place = endpoint(answer=500)
    complete(db, ask(film, callback_url=place.url))

    run()
    (once,) = rows(db, "SELECT *, next_attempt_at > clock_timestamp() AS later FROM webhook_deliveries")
    run()  # not due yet
    make_due(db)
    place.answer = 200
    run()

    assert (once["status"], once["last_status"], once["last_error"], once["later"]) == (
        "pending",
        500,
        "HTTP 500",
        True,
    )
    assert len(place.got) == 2
    assert place.got[0].body == place.got[1].body
    assert place.got[0].headers[webhooks.DELIVERY] == place.got[1].headers[webhooks.DELIVERY] == str(once["id"])
    assert statuses(db) == [("job_completed", "delivered")]


def test_a_sender_that_dies_leaves_its_delivery_to_the_next(db: Database, film: Path, endpoint: Make) -> None:
    place = endpoint()
    complete(db, ask(film, callback_url=place.url))
    alerts.relay(db)
    (dead,) = deliveries.claim(db, 10, each=4, lease=timedelta(seconds=0))

    run()

    assert len(place.got) == 1
    assert place.got[0].headers[webhooks.DELIVERY] == str(dead.id)
    assert deliveries.delivered(db, dead, 200) is False  # it wakes up too late to say anything


def test_a_sender_that_wakes_up_after_a_replay_says_nothing_of_the_new_try(
    db: Database, film: Path, endpoint: Make
) -> None:
    complete(db, ask(film, callback_url=endpoint().url))
    alerts.relay(db)
    (ghost,) = deliveries.claim(db, 10, each=4, lease=timedelta(seconds=0))
    assert endpoints.replay(db, delivery=ghost.id) == [ghost.id]
    (heir,) = deliveries.claim(db, 10, each=4, lease=timedelta(minutes=1))

    assert heir.attempt == ghost.attempt
    assert deliveries.not_delivered(db, ghost, "no answer", None, None) is False
    assert deliveries.delivered(db, ghost, 200) is False
    assert deliveries.delivered(db, heir, 200) is True


def test_a_relay_that_dies_in_the_middle_has_told_nothing_and_lost_nothing(
    db: Database, film: Path, endpoint: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = endpoint()
    complete(db, ask(film, callback_url=place.url))

    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(deliveries.Relay, "forget", die)
        with pytest.raises(SystemExit):
            alerts.relay(db)
    assert statuses(db) == []
    run()

    assert place.types() == ["job_completed"]


def test_after_its_last_try_a_delivery_is_given_up_with_its_reason_and_can_be_replayed(
    db: Database, film: Path, endpoint: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBHOOK_MAX_TRIES", "2")
    settings.current.cache_clear()
    place = endpoint(answer=404)
    complete(db, ask(film, callback_url=place.url))
    for _ in range(4):
        run()
        make_due(db)

    (given_up,) = endpoints.history(db)
    place.answer = 200
    replayed = endpoints.replay(db, delivery=given_up["id"])
    run()

    assert (given_up["status"], given_up["attempt_count"]) == ("failed", 2)
    assert given_up["last_error"] == "given up after 2 tries: HTTP 404"
    assert replayed == [given_up["id"]]
    assert len(place.got) == 3
    assert endpoints.history(db)[0]["status"] == "delivered"


# -- nobody waits for another ----------------------------------------------------------------------------------------


def test_an_endpoint_that_hangs_delays_no_other_not_even_what_comes_later(
    db: Database, film: Path, endpoint: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBHOOK_TIMEOUT_SEC", "60")
    settings.current.cache_clear()
    monkeypatch.setattr(sending_module, "BUDGET_S", 60.0)
    slow, quick = endpoint(hangs=True), endpoint()
    for _ in range(EACH + 2):
        complete(db, ask(film, callback_url=slow.url))
    complete(db, ask(film, callback_url=quick.url))
    sending = Thread(target=run)
    sending.start()
    try:
        assert quick.arrived.wait(10)
        quick.arrived.clear()
        late = complete(db, ask(film, callback_url=quick.url))
        assert quick.arrived.wait(10)  # while the same run still waits for the slow one
        still_waiting = sending.is_alive()
    finally:
        slow.ends.set()
        sending.join()

    assert still_waiting
    assert quick.got[-1].json["job_id"] == str(late.id)


def test_upkeep_waits_for_no_endpoint_that_hangs(
    db: Database, film: Path, endpoint: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBHOOK_TIMEOUT_SEC", "60")
    settings.current.cache_clear()
    monkeypatch.setattr(sending_module, "BUDGET_S", 0.2)
    slow = endpoint(hangs=True)
    complete(db, ask(film, callback_url=slow.url))

    run()
    left = rows(db, "SELECT status, attempt_count, last_error FROM webhook_deliveries")
    slow.ends.set()

    assert left == [{"status": "pending", "attempt_count": 1, "last_error": None}]  # its thread waits on


def test_only_so_many_are_under_way_to_one_origin(db: Database, film: Path, endpoint: Make) -> None:
    place, other = endpoint(), endpoint()
    for _ in range(EACH + 3):
        complete(db, ask(film, callback_url=place.url))
    complete(db, ask(film, callback_url=other.url))
    alerts.relay(db)

    first = deliveries.claim(db, 100, each=EACH, lease=FOREVER)
    second = deliveries.claim(db, 100, each=EACH, lease=FOREVER)

    assert sorted(each.url for each in first) == sorted([place.url] * EACH + [other.url])
    assert second == []


@pytest.mark.parametrize("how", ["hangs", "drips"])
def test_an_answer_that_does_not_come_in_time_is_none(db: Database, film: Path, endpoint: Make, how: str) -> None:
    place = endpoint(**{how: True})
    complete(db, ask(film, callback_url=place.url))

    run()

    (row,) = rows(db, "SELECT status, last_error FROM webhook_deliveries")
    assert row == {"status": "pending", "last_error": "no answer within 0.5 s"}


# -- where it may go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.2:9/x",
        "http://[::1]/x",
        "http://2130706434/x",
        "http://169.254.169.254/latest",
        "http://10.1.2.3/",
    ],
)
def test_no_webhook_goes_into_our_own_network(db: Database, film: Path, address: str) -> None:
    complete(db, ask(film, callback_url=address))

    run()

    (row,) = rows(db, "SELECT status, attempt_count, last_error FROM webhook_deliveries")
    assert (row["status"], row["attempt_count"]) == ("failed", 1)
    assert "not on the open internet" in row["last_error"]


def test_no_redirect_is_followed(db: Database, film: Path, endpoint: Make) -> None:
    there = endpoint()
    place = endpoint(answer=302, headers={"Location": there.url})
    complete(db, ask(film, callback_url=place.url))

    run()

    assert there.got == []
    assert rows(db, "SELECT last_error FROM webhook_deliveries") == [{"last_error": "HTTP 302"}]
