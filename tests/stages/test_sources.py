"""Does resolve get its source from wherever it is, and go on where a dead lease ended?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from pipeline import intake, upkeep
from pipeline.core.breaker import FIRST_OPEN
from pipeline.core.errors import BadRequest, IronclipError, SourceForbidden, SourceNotFound, SourceTooLarge
from pipeline.core.job import Stage, Status
from pipeline.files import go_on
from pipeline.media import bucket, transfer
from pipeline.media.partial import Origin, Partial
from pipeline.media.source import ignore
from pipeline.media.transfer import Limits
from pipeline.store import breakers
from pipeline.store.engine import database
from tests.delivery.servers import KEY, SECRET, Weed, weed
from tests.media.webserver import Film, Web, page
from tests.stages.conftest import Runner
from tests.stages.test_services import all_breakers, make_due, pass_by

__all__ = ["weed"]  # a fixture
Use = Callable[..., None]
LIMITS = Limits(10**7, 30.0)
BODY = bytes(range(256)) * 4000


@pytest.fixture
def web(use: Use) -> Iterator[Web]:
    use(SOURCE_ALLOW_HOSTS="127.0.0.1", JOB_RETRY_BACKOFF_MS_BASE="0", JOB_RETRY_BACKOFF_MS_MAX="0")
    server = Web()
    yield server
    server.stop()


# -- http --------------------------------------------------------------------------------------------------------------


def test_the_next_attempt_goes_on_where_the_last_one_ended(
    runner: Runner, web: Web, silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film = silent.read_bytes()
    half = len(film) // 2
    monkeypatch.setattr(transfer, "RESUMES", 0)
    job = runner.submit(web.serve("/film.mp4", Film(film, breaks=[half])))

    runner.step(job)

    assert runner.events(job, "retry_scheduled")[-1]["code"] == "UPSTREAM_FAILURE"
    runner.step(job)
    assert runner.job(job).stage is Stage.CLIP
    assert web.ranges("/film.mp4") == [None, half]
    assert runner.finish(job)["outcome"] == "full"


def test_the_film_behind_a_page_is_made_into_clips(runner: Runner, web: Web, silent: Path) -> None:
    web.serve("/film.mp4", Film(silent.read_bytes()))
    job = runner.submit(web.serve("/page.html", page('<title>x</title><video src="film.mp4"></video>')))

    assert runner.finish(job)["outcome"] == "full"


def test_a_page_whose_film_is_away_counts_against_its_host(runner: Runner, web: Web) -> None:
    web.serve("/film.mp4", lambda request: request.send(503))
    job = runner.submit(web.serve("/page.html", page('<title>x</title><video src="film.mp4"></video>')))

    runner.step(job)

    assert (runner.job(job).status, runner.job(job).waiting_on) == (Status.QUEUED, "source:127.0.0.1")
    assert all_breakers()["source:127.0.0.1"]["failures"] == 1


# -- buckets -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def films(weed: Weed, use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket that a target of ours has."""
    name = f"films-{uuid4()}"
    weed.client().create_bucket(Bucket=name)
    targets = tmp_path / "targets.toml"
    targets.write_text(
        f'[targets.archive]\nkind = "s3"\nbucket = "{name}"\nendpoint = "http://127.0.0.1:{weed.port}"\n'
        f'access_key_env = "FILMS_KEY"\nsecret_env = "FILMS_SECRET"\n'
    )
    use(TARGETS_FILE=str(targets), FILMS_KEY=KEY, FILMS_SECRET=SECRET)
    return name


def put(weed: Weed, films: str, body: bytes, key: str = "a/film 1.mp4") -> str:
    weed.client().put_object(Bucket=films, Key=key, Body=body)
    return f"s3://{films}/{key}"


def fetch(weed: Weed, source: str, folder: Path, *earlier: Path, limits: Limits = LIMITS) -> bytes:
    folder.mkdir(parents=True, exist_ok=True)
    got = bucket.download(
        source, weed.client(), folder / "source", limits, check=go_on, on_progress=ignore, earlier=earlier
    )
    return got.read_bytes()


def left_behind(weed: Weed, source: str, folder: Path, body: bytes, **other: Any) -> Path:
    """What a dead lease has of this object: here bytes that are not the object's, so that they can be told apart."""
    parts = bucket.parts_of(source)
    assert parts is not None
    head = weed.client().head_object(Bucket=parts[0], Key=parts[1])
    folder.mkdir()
    probe = bucket._Object(None, *parts, folder / "x", LIMITS)
    origin = Origin(**{"place": probe._place(), "mark": head["ETag"], "total": head["ContentLength"]} | other)
    with Partial(folder / "source.part").begun(origin) as file:
        file.write(body)
    return folder


def test_an_object_of_a_bucket_is_made_into_clips(runner: Runner, weed: Weed, films: str, silent: Path) -> None:
    job = runner.submit(put(weed, films, silent.read_bytes()))

    assert runner.finish(job)["outcome"] == "full"


def test_only_buckets_of_our_targets_are_sources(runner: Runner, films: str, use: Use) -> None:
    for source in ("s3://somebody-elses/film.mp4", f"s3://{films}x/film.mp4"):
        with pytest.raises(BadRequest) as caught:
            runner.submit(source)
        assert caught.value.reason == "SOURCE_BUCKET"

    use(SOURCE_BUCKETS="others")
    with pytest.raises(BadRequest):
        runner.submit(f"s3://{films}/film.mp4")


def test_an_object_is_fetched_on_from_where_a_dead_lease_ended(weed: Weed, films: str, tmp_path: Path) -> None:
    source = put(weed, films, BODY)
    dead = left_behind(weed, source, tmp_path / "dead", b"X" * 300_000)

    assert fetch(weed, source, tmp_path / "heir", dead) == b"X" * 300_000 + BODY[300_000:]


@pytest.mark.parametrize("other", [{"mark": '"other"'}, {"total": 1_024_001}, {"place": "elsewhere"}])
def test_an_object_that_changed_since_begins_anew(
    other: dict[str, Any], weed: Weed, films: str, tmp_path: Path
) -> None:
    source = put(weed, films, BODY)
    dead = left_behind(weed, source, tmp_path / "dead", b"X" * 300_000, **other)

    assert fetch(weed, source, tmp_path / "heir", dead) == BODY


def refusal(weed: Weed, source: str, folder: Path, limits: Limits = LIMITS) -> IronclipError:
    with pytest.raises(IronclipError) as caught:
        fetch(weed, source, folder, limits=limits)
    return caught.value


def test_what_a_bucket_answers_becomes_the_right_error(weed: Weed, films: str, tmp_path: Path) -> None:
    source = put(weed, films, BODY)

    assert type(refusal(weed, f"s3://{films}/nothing.mp4", tmp_path)) is SourceNotFound
    assert type(refusal(weed, source, tmp_path, Limits(1000, 30.0))) is SourceTooLarge
    assert list(tmp_path.glob("source*")) == []


def test_a_secret_that_is_wrong_fails_the_job(runner: Runner, weed: Weed, films: str, use: Use) -> None:
    job = runner.submit(put(weed, films, BODY))
    use(FILMS_SECRET="wrong")

    assert runner.finish(job)["fail_code"] == SourceForbidden.code


def test_a_bucket_that_is_away_is_waited_for_and_probed(
    runner: Runner, weed: Weed, films: str, use: Use, tmp_path: Path, silent: Path
) -> None:
    service = f"source:{films}"
    job = runner.submit(put(weed, films, silent.read_bytes()))
    targets = tmp_path / "targets.toml"
    there = targets.read_text()
    targets.write_text(there.replace(str(weed.port), "9"))

    runner.step(job)

    assert runner.job(job).waiting_on == service
    breakers.trip(database(), service, "test")
    pass_by(service)
    assert upkeep.probe().down == [service]
    targets.write_text(there)
    pass_by(service, span=4 * FIRST_OPEN)
    assert upkeep.probe().up == [service]
    make_due(job)
    assert runner.finish(job)["outcome"] == "full"


def test_a_request_is_checked_before_anything_is_written(films: str) -> None:
    with pytest.raises(BadRequest):
        intake.enqueue({"source": f"s3://{films}", "clips": [{"start": 0, "end": 1}]}, job_id=UUID(int=1))

    with pytest.raises(IronclipError):
        Runner(Path(), Path()).job(UUID(int=1))
