"""What does sweep send, and when is a message lost? A shallow window, each once, and never a backlog twice.

The broker here is two lines of jobs in memory; Postgres and its clock are real, and time passes when a test says so.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from pipeline import dispatch, settings
from pipeline.core import breaker as rules
from pipeline.core import window
from pipeline.core.errors import BrokerUnavailable
from pipeline.core.job import Job, Stage
from pipeline.core.moves import Complete
from pipeline.core.routing import GPU, IO, MEDIA, QUEUE_OF
from pipeline.core.window import UNSERVED
from pipeline.store import due, gpu, jobs, workers
from pipeline.store.engine import Database
from pipeline.upkeep.sweep import Swept, _sweep
from tests.store.world import advance, claim, enqueue, now_of, rows, running, value

WINDOW = 4
GRACE = timedelta(seconds=1)
REPUBLISH = timedelta(seconds=3)
SETTINGS = {
    "WINDOW_PER_SLOT": "2",
    "WINDOW_MIN": str(WINDOW),
    "MARKER_GRACE_SEC": "1",
    "REPUBLISH_SEC": "3",
    "STAGE_LIMITS": "",
}
SECOND = timedelta(seconds=1)


MOMENTS = ("sent_at", "seen_at", "covered_until", "held_at", "held_until", "settled_until")


class Broker:
    """Queues that keep their order, and can be away or forget everything."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.queues: dict[str, deque[Any]] = {IO: deque(), MEDIA: deque(), GPU: deque()}
        self.is_away = False
        self.sent: Counter[tuple[UUID, Stage]] = Counter()

    def start(self, job: Job) -> None:
        self._put(job.queue or QUEUE_OF[job.stage], (job.id, job.stage))
        self.sent[job.id, job.stage] += 1

    def mark(self, queue: str, number: int, sent_at: datetime) -> None:
        self._put(queue, (number, sent_at))

    def is_empty(self, queue: str) -> bool:
        return not self.is_away and not self.queues[queue]

    def nudge(self) -> None:
        """Sweeps come by hand here."""

    def _put(self, queue: str, message: Any) -> None:
        if self.is_away:
            raise BrokerUnavailable("away")
        self.queues[queue].append(message)

    def flush(self) -> None:
        for queue in self.queues.values():
            queue.clear()

    def wait(self, span: timedelta) -> None:
        """Make this much time go by for all that was sent: in rows, in what is known of markers, and in the markers."""
        columns = {"jobs": ["published_at"], "queue_markers": [*MOMENTS]}
        for table, moments in columns.items():
            moved = ", ".join(f"{name} = {name} - CAST(:span AS interval)" for name in moments)
            self.db.run(text(f"UPDATE {table} SET {moved} WHERE {moments[0]} IS NOT NULL"), span=span)
        for name, queue in self.queues.items():
            self.queues[name] = deque(m if isinstance(m[0], UUID) else (m[0], m[1] - span) for m in queue)

    # -- what a worker does

    def deliver(self, queue: str = IO) -> tuple[UUID, Stage] | None:
        """The next message of a queue; a marker is noted on the way."""
        while self.queues[queue]:
            message = self.queues[queue].popleft()
            if isinstance(message[0], UUID):
                return message
            due.marker_seen(self.db, queue, message[0], message[1].isoformat(), SECOND)
        return None

    def work(self, queue: str = IO) -> bool:
        """Run one stage, and send the next link; False: there was nothing to do."""
        message = self.deliver(queue)
        if message is None:
            return False
        job_id, stage = message
        held = claim(self.db, jobs.read(self.db, job_id)[0])
        assert held.stage is stage
        assert held.fence is not None
        after = jobs.apply(self.db, job_id, Complete(fence=held.fence))
        assert isinstance(after, Job)
        if not after.is_final:
            self.start(after)
        return True

    def jobs_waiting(self) -> list[tuple[UUID, Stage]]:
        return [m for queue in self.queues.values() for m in queue if isinstance(m[0], UUID)]

    def markers(self, queue: str = IO) -> int:
        return sum(not isinstance(m[0], UUID) for m in self.queues[queue])


@pytest.fixture
def broker(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    made = Broker(db)
    for name in ("start", "mark", "is_empty", "nudge"):
        monkeypatch.setattr(dispatch, name, getattr(made, name))
    for name, told in SETTINGS.items():
        monkeypatch.setenv(name, told)
    settings.current.cache_clear()
    yield made
    settings.current.cache_clear()


def sweep(db: Database) -> Swept:
    return _sweep(db)


def serve(db: Database, *queues: str, slots: int = 2) -> UUID:
    worker = uuid4()
    workers.register(
        db, worker, name="w", hostname="h", queues=queues, slots=slots, boot_id=None, pid=1, pid_started=None
    )
    return worker


def many(db: Database, count: int) -> None:
    db.run(
        text("""INSERT INTO jobs (id, request_hash, stage, plan)
                SELECT gen_random_uuid(), 'hash', 'resolve', '{resolve,clip,upload,finalize}'
                  FROM generate_series(1, :count)"""),
        count=count,
    )


def unclaimed(db: Database) -> Counter[str]:
    told = rows(db, "SELECT stage FROM jobs WHERE status = 'queued' AND published_at IS NOT NULL")
    return Counter(QUEUE_OF[Stage(row["stage"])] for row in told)


# -- the window --------------------------------------------------------------------------------------------------------


def test_no_more_is_published_than_the_window_holds(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    many(db, 20)

    first, second = sweep(db), sweep(db)

    assert (first.published, second.published) == (WINDOW, 0)
    assert len(broker.jobs_waiting()) == WINDOW


@pytest.mark.parametrize("state", ["silent", "disabled", "stopped"])
def test_slots_that_serve_nobody_do_not_count(db: Database, broker: Broker, state: str) -> None:
    serve(db, IO)
    many(db, 20)
    away = {
        "silent": "last_heartbeat = clock_timestamp() - interval '2 min'",
        "disabled": "status = 'disabled'",
        "stopped": "stopped_at = clock_timestamp(), status = 'offline'",
    }
    db.run(text(f"UPDATE workers SET {away[state]}"))

    assert sweep(db).published == UNSERVED


def test_a_queue_that_nobody_serves_keeps_no_other_from_flowing(db: Database, broker: Broker) -> None:
    serve(db, IO)
    stuck = [advance(db, running(db)) for _ in range(30)]
    due.unpublish(db, [job.id for job in stuck])
    flowing = [enqueue(db, plan=(Stage.UPLOAD, Stage.FINALIZE)) for _ in range(10)]

    for _ in range(10):
        sweep(db)
        while broker.work(IO):
            pass

    assert all(now_of(db, job).is_final for job in flowing)
    assert unclaimed(db) == {MEDIA: UNSERVED}


def test_twenty_thousand_jobs_and_one_slow_worker_fill_no_more_than_the_window_and_none_is_sent_twice(
    db: Database, broker: Broker
) -> None:
    serve(db, IO, MEDIA)
    many(db, 20_000)

    for n in range(200):
        before = broker.jobs_waiting()
        sweep(db)
        on_the_way = unclaimed(db)
        for queue in {QUEUE_OF[stage] for _, stage in broker.jobs_waiting()[len(before) :]}:
            assert on_the_way[queue] <= WINDOW
        # Whoever was begun while there was room still comes to the next queue.
        assert max(on_the_way.values()) <= 2 * WINDOW
        assert set(Counter(broker.jobs_waiting()).values()) <= {1}
        assert max(broker.markers(IO), broker.markers(MEDIA)) <= 6
        broker.work(IO)
        if n % 4 == 0:  # encoding is what takes time
            broker.work(MEDIA)
        broker.wait(5 * SECOND)

    assert set(broker.sent.values()) == {1}
    assert value(db, "SELECT count(*) FROM jobs WHERE status = 'completed'") > 20


def test_a_backlog_drains_without_a_clock_because_markers_wake_sweep(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    many(db, 60)
    sweep(db)

    steps = 0
    while broker.queues[IO] or broker.queues[MEDIA]:
        steps += 1
        assert steps < 2000
        for queue in (IO, MEDIA):
            woken = broker.markers(queue)
            broker.work(queue)
            if broker.markers(queue) < woken:
                sweep(db)

    assert value(db, "SELECT count(*) FROM jobs WHERE status = 'completed'") == 60
    assert set(broker.sent.values()) == {1}


def test_what_the_broker_did_not_take_waits_for_the_next_sweep(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    many(db, 3)
    broker.is_away = True

    away = sweep(db)
    broker.is_away = False
    back = sweep(db)

    assert (away.published, back.published) == (0, 3)
    assert broker.markers() <= 1


# -- lost messages -----------------------------------------------------------------------------------------------------


def test_a_backlog_is_never_published_again_however_long_it_waits(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    many(db, WINDOW)
    sweep(db)

    for _ in range(100):
        broker.wait(10 * SECOND)
        assert sweep(db).published == 0

    assert Counter(broker.jobs_waiting()).most_common(1)[0][1] == 1
    assert broker.markers() < 12


def send_with_a_marker(db: Database, broker: Broker, jobs: int) -> None:
    """So many jobs are on their way, and a marker behind them."""
    serve(db, IO, MEDIA)
    many(db, jobs)
    sweep(db)
    broker.wait(2 * SECOND)
    sweep(db)


def test_a_message_that_vanished_is_sent_again_when_a_marker_has_overtaken_it(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    many(db, 3)
    sweep(db)
    lost, *kept = broker.jobs_waiting()
    broker.queues[IO].remove(lost)
    broker.sent.clear()

    broker.wait(2 * SECOND)
    sweep(db)  # sends a marker
    while broker.work():  # and it comes back behind the others
        pass
    too_early = sweep(db)
    broker.wait(2 * SECOND)
    healed = sweep(db)

    assert (too_early.lost, healed.lost, healed.published) == (0, 1, 1)
    assert [message for message in broker.jobs_waiting() if message[1] is Stage.RESOLVE] == [lost]
    assert sorted(job for job, stage in broker.jobs_waiting() if stage is Stage.CLIP) == sorted(job for job, _ in kept)


def test_a_delivered_message_has_time_to_be_claimed(db: Database, broker: Broker) -> None:
    send_with_a_marker(db, broker, 1)
    held = broker.deliver()
    assert held is not None
    assert broker.deliver() is None  # the marker behind it

    assert sweep(db).lost == 0
    claim(db, jobs.read(db, held[0])[0])
    broker.wait(2 * SECOND)
    assert sweep(db) == Swept(0, 0)


def test_the_next_link_of_a_chain_counts_as_a_message_and_can_be_lost_like_one(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    job = advance(db, running(db))  # its worker died before it could publish the link

    at_once = sweep(db)
    broker.wait(2 * SECOND)
    sweep(db)
    broker.deliver(MEDIA)
    broker.wait(2 * SECOND)
    healed = sweep(db)

    assert at_once == Swept(0, 0)
    assert healed == Swept(1, 1)
    assert broker.jobs_waiting() == [(job.id, Stage.CLIP)]


def test_a_link_that_is_just_being_published_is_not_lost(db: Database, broker: Broker) -> None:
    send_with_a_marker(db, broker, 1)
    late = advance(db, running(db, plan=(Stage.RESOLVE, Stage.UPLOAD)))  # written down, and not sent yet
    while broker.deliver():  # the marker overtakes it
        pass
    broker.wait(timedelta(seconds=1.5))

    sweep(db)

    assert now_of(db, late).published_at is not None


@pytest.mark.parametrize("with_marker", [True, False])
def test_a_broker_that_forgot_everything_gets_everything_again_once(
    db: Database, broker: Broker, with_marker: bool
) -> None:
    serve(db, IO, MEDIA)
    many(db, 3)
    sweep(db)
    before = sorted(broker.jobs_waiting())
    if with_marker:
        broker.wait(2 * SECOND)
        sweep(db)
        assert broker.markers() == 1

    broker.flush()
    for _ in range(4):
        broker.wait(2 * SECOND)
        sweep(db)
        if broker.markers() and not broker.jobs_waiting():
            assert broker.deliver() is None

    assert sorted(broker.jobs_waiting()) == before
    while broker.work(IO) or broker.work(MEDIA):
        pass
    assert value(db, "SELECT count(*) FROM jobs WHERE status = 'completed'") == 3


def test_a_lost_marker_in_a_queue_that_is_never_empty_is_missed_too(db: Database, broker: Broker) -> None:
    send_with_a_marker(db, broker, 2)
    lost = broker.jobs_waiting()
    broker.flush()
    newcomer = enqueue(db, published=True)
    broker.start(newcomer)

    broker.wait(4 * SECOND)
    sweep(db)  # the marker is missed, the queue is not empty: another one
    assert broker.markers() == 1
    broker.work()
    assert broker.deliver() is None
    broker.wait(2 * SECOND)
    sweep(db)

    assert sorted(message for message in broker.jobs_waiting() if message[1] is Stage.RESOLVE) == sorted(lost)


def test_a_broker_that_forgets_again_and_again_is_found_out_as_soon_each_time(db: Database, broker: Broker) -> None:
    send_with_a_marker(db, broker, 2)
    lost = broker.jobs_waiting()
    for _ in range(3):  # each time the marker is missed among others, and the next one is lost too
        broker.flush()
        broker.start(enqueue(db, published=True))
        broker.wait(30 * SECOND)
        sweep(db)
    broker.flush()

    broker.wait(4 * SECOND)
    sweep(db)

    assert set(lost) <= set(broker.jobs_waiting())


def test_markers_that_come_back_at_once_neither_chase_each_other_nor_hide_what_was_lost(
    db: Database, broker: Broker
) -> None:
    serve(db, IO, MEDIA)
    many(db, 40)
    sweep(db)
    while broker.markers() and broker.deliver():  # no marker is on its way
        pass
    lost = broker.jobs_waiting()
    assert lost
    broker.flush()
    broker.wait(2 * SECOND)

    for _ in range(20):  # the queue is empty: each marker comes back at once, and sweep follows
        sweep(db)
        assert broker.deliver() is None
    assert value(db, "SELECT sent FROM queue_markers WHERE queue = 'io'") <= 3
    broker.wait(2 * SECOND)
    sweep(db)

    assert set(lost) <= set(broker.jobs_waiting())


def test_a_message_that_vanished_from_a_busy_queue_is_found_out(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    vanished = enqueue(db, published=True)
    broker.wait(2 * SECOND)

    for _ in range(8):  # markers come back much more often than one has time to settle
        number, sent_at = due.next_marker(db, IO)
        due.marker_seen(db, IO, number, sent_at.isoformat(), SECOND)
        broker.wait(SECOND * 0.4)
        lost = due.unpublish_lost(db, SECOND)
        if lost:
            break

    assert lost == [vanished.id]


def test_an_old_marker_says_nothing_new(db: Database, broker: Broker) -> None:
    first, second = due.next_marker(db, IO), due.next_marker(db, IO)
    due.marker_seen(db, IO, second[0], second[1].isoformat(), SECOND)
    before = rows(db, "SELECT * FROM queue_markers")

    due.marker_seen(db, IO, first[0], first[1].isoformat(), SECOND)
    due.marker_seen(db, IO, 99, second[1].isoformat(), SECOND)

    assert rows(db, "SELECT * FROM queue_markers") == before


def test_no_marker_is_sent_to_a_queue_that_nobody_serves(db: Database, broker: Broker) -> None:
    many(db, 20)
    for _ in range(5):
        sweep(db)
        broker.wait(10 * SECOND)

    assert broker.markers() == 0
    assert len(broker.jobs_waiting()) == UNSERVED


# -- limits of the fleet -----------------------------------------------------------------------------------------------


def test_at_the_limit_of_the_fleet_a_row_waits_unpublished(
    db: Database, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_LIMITS", "resolve=2")
    settings.current.cache_clear()
    serve(db, IO, MEDIA)
    many(db, 10)

    sweep(db)
    delivered = broker.deliver()
    assert delivered is not None
    held = claim(db, jobs.read(db, delivered[0])[0])
    at_the_limit = sweep(db)
    advance(db, held)
    below = sweep(db)

    assert (at_the_limit.published, below.published) == (0, 1)
    assert unclaimed(db)[IO] == 2


def test_a_message_that_its_worker_has_no_place_for_is_taken_back_only_at_its_stage(db: Database) -> None:
    job = enqueue(db, published=True)

    wrong = due.put_back(db, job.id, Stage.CLIP)
    right = due.put_back(db, job.id, Stage.RESOLVE)
    held = claim(db, job)

    assert (wrong, right) == (False, True)
    assert not due.put_back(db, job.id, Stage.RESOLVE)
    assert now_of(db, job) == held


# -- newcomers ---------------------------------------------------------------------------------------------------------


def test_a_newcomer_is_published_at_once_only_while_the_window_has_room(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    shape, silence = settings.current().shape(), settings.current().silence()

    went = []
    for _ in range(WINDOW + 2):
        went.append(window.goes_directly(Stage.RESOLVE, due.sight(db, silence), shape))
        enqueue(db, published=went[-1])

    assert went == [True] * WINDOW + [False, False]


def test_a_newcomer_does_not_overtake_those_who_wait_but_does_not_wait_for_itself(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    shape, silence = settings.current().shape(), settings.current().silence()
    first = enqueue(db)

    for_another = window.goes_directly(Stage.RESOLVE, due.sight(db, silence), shape)
    for_itself = window.goes_directly(Stage.RESOLVE, due.sight(db, silence, besides=first.id), shape)

    assert (for_another, for_itself) == (False, True)


def test_nobody_who_hands_a_job_in_waits_for_a_broker_that_is_given_up(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    many(db, 20)
    shape, silence = settings.current().shape(), settings.current().silence()
    broker.is_away = True

    for _ in range(rules.THRESHOLD):
        sweep(db)
    others = db.run(text("DELETE FROM jobs RETURNING id"))
    given_up = due.sight(db, silence)
    broker.is_away = False
    job = enqueue(db)
    sweep(db)

    assert len(others) == 20
    assert given_up.broker_is_away
    assert not window.goes_directly(Stage.RESOLVE, given_up, shape)
    assert broker.jobs_waiting() == [(job.id, Stage.RESOLVE)]
    assert not due.sight(db, silence).broker_is_away


# -- GPU workers -------------------------------------------------------------------------------------------------------

FRESH = timedelta(seconds=30)


def waiting_for_clip(db: Database, count: int) -> list[Job]:
    """Jobs whose source is there, and that have no message."""
    found = [advance(db, running(db)) for _ in range(count)]
    due.unpublish(db, [job.id for job in found])
    return found


def test_idle_gpu_workers_get_a_job_for_each_slot_and_the_others_the_rest(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    serve(db, GPU, slots=2)
    waiting_for_clip(db, 9)

    sweep(db)
    again = sweep(db)

    assert [len(broker.queues[name]) - broker.markers(name) for name in (GPU, MEDIA)] == [2, WINDOW]
    assert again.published == 0


@pytest.mark.parametrize("state", ["busy", "silent", "stopped", "disabled", "paused"])
def test_nothing_is_kept_for_a_gpu_that_does_not_wait_for_it(db: Database, broker: Broker, state: str) -> None:
    serve(db, IO, MEDIA)
    worker = serve(db, GPU, slots=1)
    away = {
        "silent": "last_heartbeat = last_heartbeat - interval '31 s'",
        "stopped": "stopped_at = clock_timestamp()",
        "disabled": "status = 'disabled'",
        "paused": 'metadata = \'{"paused": "disk"}\'',
    }
    if state == "busy":
        running(db, by=str(worker))
    else:
        db.run(text(f"UPDATE workers SET {away[state]} WHERE id = :id"), id=worker)
    (job,) = waiting_for_clip(db, 1)

    kept = gpu.keep(db, job.id, FRESH)
    sweep(db)

    assert not kept
    assert broker.jobs_waiting() == [(job.id, Stage.CLIP)]
    assert not broker.queues[GPU]


def test_whoever_no_gpu_worker_takes_goes_to_any_other_and_not_there_again(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    serve(db, GPU)
    (job,) = waiting_for_clip(db, 1)
    sweep(db)

    broker.wait(FRESH + SECOND)
    sweep(db)
    held = claim(db, now_of(db, job))

    assert list(broker.queues[GPU]) == [(job.id, Stage.CLIP)]
    assert (job.id, Stage.CLIP) in broker.queues[MEDIA]
    assert held.queue is None


def test_a_job_that_comes_to_clip_waits_for_sweep_when_a_gpu_is_idle(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA)
    at_resolve, at_clip = enqueue(db, published=True), advance(db, running(db))
    nobody = gpu.keep(db, at_clip.id, FRESH)
    serve(db, GPU)

    kept = [gpu.keep(db, job.id, FRESH) for job in (at_resolve, at_clip)]
    sweep(db)

    assert (nobody, kept) == (False, [False, True])
    assert list(broker.queues[GPU]) == [(at_clip.id, Stage.CLIP)]


def test_a_gpu_queue_that_nobody_serves_any_more_stops_nobody(db: Database, broker: Broker) -> None:
    serve(db, IO, MEDIA, slots=1)
    worker = serve(db, GPU, slots=3)
    stuck = waiting_for_clip(db, 3)
    sweep(db)
    workers.goodbye(db, worker)
    others = waiting_for_clip(db, WINDOW)

    flowed = sweep(db)

    assert flowed.published == WINDOW
    assert {job for job, _ in broker.queues[GPU]} == {job.id for job in stuck}
    assert {job.id for job in others} <= {message[0] for message in broker.queues[MEDIA]}
