"""Does everybody who watches hear everything once and in order: with many writers, slow ears, kills and no Redis?"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from uuid import uuid4

import pytest
import redis
from sqlalchemy import text

from pipeline.embedded import Services
from pipeline.store import keys
from pipeline.store.engine import Database
from tests.api.conftest import Api
from tests.api.listening import Ear
from tests.cluster.system import wait_for
from tests.store.world import claim, enqueue, value

TELL = text("INSERT INTO job_events (job_id, type) VALUES (:job, 'told')")


@pytest.fixture
def operator(api: Api) -> str:
    return api.key("operator")


def test_a_job_is_heard_from_its_beginning_and_its_progress_as_it_comes(api: Api, operator: str) -> None:
    job = enqueue(api.db)

    with Ear(api, operator, f"/api/jobs/{job.id}/events") as ear:
        wait_for("the first event", lambda: ear.types == ["queued"])
        claim(api.db, job)
        api.db.run(text("UPDATE jobs SET progress = 42 WHERE id = :id"), id=job.id)
        wait_for("the claim", lambda: ear.types == ["queued", "claimed"])
        wait_for("progress", lambda: [each["progress"] for each in ear.progress][-1:] == [42.0])

    assert {event["job_id"] for event in ear.events} == {str(job.id)}


def test_a_stream_begins_now_unless_it_is_told_where(api: Api, operator: str) -> None:
    before = enqueue(api.db)
    with Ear(api, operator, f"/api/jobs/{before.id}/events") as first:
        wait_for("it to be numbered", lambda: first.events)
    number = first.numbers[0]

    with Ear(api, operator) as now, Ear(api, operator, last=str(number - 1)) as again:
        after = enqueue(api.db)
        wait_for("the new one", lambda: str(after.id) in [event["job_id"] for event in now.events])
        wait_for("both", lambda: str(after.id) in [event["job_id"] for event in again.events])

    assert str(before.id) not in [event["job_id"] for event in now.events]
    assert again.numbers[0] == number


def test_an_account_hears_of_its_own_jobs_only(api: Api) -> None:
    with Ear(api, api.key("client", "hearing")) as ear:
        enqueue(api.db)
        mine = enqueue(api.db, account="hearing")
        enqueue(api.db)
        wait_for("its own", lambda: ear.events)
        last = enqueue(api.db, account="hearing")
        wait_for("its last", lambda: str(last.id) in [event["job_id"] for event in ear.events])

    assert [event["job_id"] for event in ear.events] == [str(mine.id), str(last.id)]


@pytest.mark.cluster
def test_nothing_is_missed_doubled_or_out_of_order_while_fifty_write_and_the_api_is_killed(
    make_api: Callable[..., Api],
) -> None:
    api = make_api()
    writers, each = 50, 30
    many = Database(api.env["DATABASE_URL"], pool_size=12)
    wrote = threading.Semaphore(0)

    def write() -> None:
        for n in range(each):
            with many.transaction() as conn:
                conn.execute(TELL, {"job": uuid4()})
                if n % 10 == 0:
                    conn.execute(TELL, {"job": uuid4()})
                if n % 7 == 3:
                    conn.rollback()
            wrote.release()

    with Ear(api, api.key("operator")) as ear, Ear(api, api.key("operator")) as other:
        threads = [threading.Thread(target=write) for _ in range(writers)]
        for thread in threads:
            thread.start()
        for _ in range(2):
            for _ in range(writers * each // 4):
                wrote.acquire()
            heard = ear.connections
            port = api.port
            api.kill()
            api.start(port)
            wait_for("it to come back", lambda before=heard: ear.connections > before)
        for thread in threads:
            thread.join(60)
        total = value(api.db, "SELECT count(*) FROM job_events")
        wait_for("everything", lambda: len(ear.events) >= total and len(other.events) >= total)
    many.dispose()

    assert total > writers * each * 0.8
    assert ear.connections >= 3
    assert ear.numbers == list(range(1, total + 1))
    assert other.numbers == ear.numbers
    assert [event["event_id"] for event in ear.events] == [event["event_id"] for event in other.events]


def test_somebodys_long_transaction_freezes_nobody(api: Api, operator: str) -> None:
    other = Database(api.env["DATABASE_URL"])
    with Ear(api, operator) as ear, other.transaction() as slow:
        late = uuid4()
        slow.execute(TELL, {"job": late})
        quick = enqueue(api.db)
        wait_for("the quick one", lambda: str(quick.id) in [event["job_id"] for event in ear.events])
        slow.commit()
        wait_for("the late one", lambda: str(late) in [event["job_id"] for event in ear.events])
    other.dispose()

    assert ear.numbers == sorted(ear.numbers)


def test_who_does_not_read_is_cut_off_and_nobody_else_waits(api: Api, operator: str) -> None:
    lazy = socket.create_connection(("127.0.0.1", api.port))
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.sendall(f"GET /api/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {operator}\r\n\r\n".encode())
    assert lazy.recv(10) == b"HTTP/1.1 2"
    told = text("""
        INSERT INTO job_events (job_id, type, data)
        SELECT gen_random_uuid(), 'told', jsonb_build_object('long', repeat('x', 2000))
          FROM generate_series(1, 1500)""")

    with Ear(api, operator) as ear:
        for _ in range(4):
            before = len(ear.events)
            api.db.run(told)
            wait_for("the other one to hear all", lambda seen=before: len(ear.events) >= seen + 1500)
        cut = wait_for("the lazy one to be cut off", lambda: "listener cut" in api.log)
    lazy.close()

    assert cut
    assert ear.numbers == sorted(set(ear.numbers))


def test_a_revoked_key_hears_nothing_more(make_api: Callable[..., Api]) -> None:
    api = make_api()
    key, shown = keys.create(api.db, "operator")
    with Ear(api, shown) as ear:
        enqueue(api.db)
        wait_for("an event", lambda: ear.events)
        keys.revoke(api.db, str(key.id))
        wait_for("the end of the stream", lambda: "listener cut" in api.log)
        heard = len(ear.events)
        enqueue(api.db)
        with Ear(api, api.key("operator"), last="0") as other:
            wait_for("another to hear of it", lambda: len(other.events) == 2)

    assert len(ear.events) == heard == 1


def test_redis_only_makes_it_faster(services: Services, make_api: Callable[..., Api]) -> None:
    api = make_api()
    try:
        with Ear(api, api.key("operator")) as ear:
            services.redis.stop()
            alone = enqueue(api.db)
            wait_for("an event without Redis", lambda: str(alone.id) in [e["job_id"] for e in ear.events])
            services.redis.start()
            again = enqueue(api.db)
            wait_for("an event with it", lambda: str(again.id) in [e["job_id"] for e in ear.events])
        with redis.Redis.from_url(services.broker_url) as broker:
            wait_for("the API to listen again", lambda: broker.pubsub_numpat() >= 3)
    finally:
        services.redis.start()

    assert ear.numbers == sorted(ear.numbers)


def test_a_signal_wakes_the_reader(make_api: Callable[..., Api], services: Services) -> None:
    api = make_api()
    with Ear(api, api.key("operator")) as ear, redis.Redis.from_url(services.broker_url) as broker:
        wait_for("the API to listen", lambda: broker.pubsub_numpat() >= 3)
        told = enqueue(api.db)
        reached = broker.publish(f"transcode_progress:{told.id}", "{}")
        wait_for("the event", lambda: str(told.id) in [event["job_id"] for event in ear.events])

    assert reached >= 1


def test_when_it_stops_it_lets_its_listeners_go_at_once(make_api: Callable[..., Api]) -> None:
    api = make_api()
    with Ear(api, api.key("operator")) as ear:
        code = api.end()

    assert code == 0
    assert ear.connections == 1
    assert "Traceback" not in api.log
