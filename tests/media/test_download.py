"""How does a download go on that was interrupted, and when does it begin anew?"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from pipeline import processes
from pipeline.core.errors import IronclipError, SourceTimeout, SourceTooLarge, SourceUnreadable, UpstreamFailure
from pipeline.files import go_on
from pipeline.media import transfer
from pipeline.media.download import Limits, download
from pipeline.media.source import ignore
from tests.media.webserver import LONG_AGO, Film, Request, Web, redirect

BODY = bytes(range(256)) * 4000  # about a megabyte, and every place in it can be told from its neighbours
LIMITS = Limits(10_000_000, 20.0, ("127.0.0.1",))
OTHER = bytes(reversed(BODY))


@pytest.fixture(scope="module")
def server() -> Iterator[Web]:
    web = Web()
    yield web
    web.stop()


@pytest.fixture
def path() -> str:
    return f"/{uuid4()}.mp4"


def fetch(url: str, folder: Path, *earlier: Path, limits: Limits = LIMITS) -> Path:
    folder.mkdir(exist_ok=True)
    return download(url, folder / "source", limits, check=go_on, on_progress=ignore, earlier=earlier)


def broken(url: str, folder: Path, *earlier: Path, limits: Limits = LIMITS) -> IronclipError:
    """The error of a download that does not come to its end."""
    with pytest.raises(IronclipError) as caught:
        fetch(url, folder, *earlier, limits=limits)
    return caught.value


def leave_unfinished(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let a download break off in this folder; how much it has got."""
    with monkeypatch.context() as patient:
        patient.setattr(transfer, "RESUMES", 0)
        assert type(broken(url, folder)) is UpstreamFailure
    return (folder / "source.part").stat().st_size


# -- within one attempt ------------------------------------------------------------------------------------------------


def test_a_download_that_breaks_off_goes_on_where_it_ended(server: Web, path: str, tmp_path: Path) -> None:
    url = server.serve(path, Film(BODY, breaks=[300_000, 400_000]))

    got = fetch(url, tmp_path)

    assert got.read_bytes() == BODY
    assert server.ranges(path) == [None, 300_000, 700_000]
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


def test_a_date_that_is_old_enough_is_a_mark_too(server: Web, path: str, tmp_path: Path) -> None:
    url = server.serve(path, Film(BODY, mark={"Last-Modified": LONG_AGO}, breaks=[300_000]))

    assert fetch(url, tmp_path).read_bytes() == BODY

    assert server.ranges(path) == [None, 300_000]
    assert server.asked[-1].headers["If-Range"] == LONG_AGO


@pytest.mark.parametrize("mark", [{}, {"ETag": 'W/"weak"'}, {"ETag": '"one"', "Accept-Ranges": "none"}])
def test_without_a_mark_that_can_be_trusted_nothing_is_gone_on_with(
    mark: dict[str, str], server: Web, path: str, tmp_path: Path
) -> None:
    url = server.serve(path, Film(BODY, mark=mark, breaks=[300_000]))

    assert type(broken(url, tmp_path)) is UpstreamFailure

    assert server.ranges(path) == [None]


def test_a_file_that_changed_meanwhile_begins_anew(server: Web, path: str, tmp_path: Path) -> None:
    film = Film(BODY, breaks=[300_000])

    def changing(request: Request) -> None:
        film(request)
        film.body, film.mark = OTHER, {"ETag": '"two"'}

    url = server.serve(path, changing)

    assert fetch(url, tmp_path).read_bytes() == OTHER

    assert server.ranges(path) == [None, 300_000]


def test_a_server_without_ranges_starts_again(server: Web, path: str, tmp_path: Path) -> None:
    url = server.serve(path, Film(BODY, breaks=[300_000], has_ranges=False))

    assert fetch(url, tmp_path).read_bytes() == BODY


@pytest.mark.parametrize(
    "told",
    [
        {"Content_Range": "bytes 7-1023999/1024000"},
        {"Content_Range": "bytes 300000-1023999/9999999"},
        {"Content_Range": "nonsense"},
        {},
        {"Content_Range": "bytes 300000-1023999/1024000", "ETag": '"two"'},
        {"Content_Range": "bytes 300000-1023999/1024000", "Content_Encoding": "gzip"},
    ],
)
def test_a_piece_that_does_not_fit_is_not_glued_on(
    told: dict[str, str], server: Web, path: str, tmp_path: Path
) -> None:
    film = Film(BODY, breaks=[300_000])

    def lying(request: Request) -> None:
        if request.start is None:
            film(request)
        else:
            request.send(206, b"x" * 724_000, **told)

    url = server.serve(path, lying)

    assert fetch(url, tmp_path).read_bytes() == BODY
    assert server.ranges(path) == [None, 300_000, None]


def test_a_server_that_sends_less_of_the_rest_than_there_is_is_asked_for_more(
    server: Web, path: str, tmp_path: Path
) -> None:
    def stingy(request: Request) -> None:
        start = request.start or 0
        piece = BODY[start : start + 300_000]
        if request.start is None:
            request.send(200, piece, len(BODY), ETag='"one"')
        else:
            end = start + len(piece) - 1
            request.send(206, piece, ETag='"one"', Content_Range=f"bytes {start}-{end}/{len(BODY)}")

    url = server.serve(path, stingy)

    assert fetch(url, tmp_path).read_bytes() == BODY
    assert server.ranges(path) == [None, 300_000, 600_000, 900_000]


def test_a_server_that_breaks_off_for_ever_is_given_up(
    server: Web, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "RESUMES", 3)
    url = server.serve(path, Film(BODY, breaks=[1000] * 50))

    failure = broken(url, tmp_path)

    assert type(failure) is UpstreamFailure
    assert failure.service == "source:127.0.0.1"
    assert server.ranges(path) == [None, 1000, 2000, 3000]


def test_a_redirect_is_asked_again_and_may_lead_elsewhere(server: Web, path: str, tmp_path: Path) -> None:
    """The rest is asked for only where the beginning came from; a signature in the query may change."""
    film = Film(BODY, breaks=[300_000])
    server.serve(f"{path}.here", film)
    places = iter(["?sig=1", "?sig=2"])

    def signed(request: Request) -> None:
        redirect(f"{server.base}{path}.here{next(places)}")(request)

    url = server.serve(path, signed)

    assert fetch(url, tmp_path).read_bytes() == BODY

    assert server.ranges(f"{path}.here") == [None, 300_000]
    assert server.ranges(path) == [None, None]


# -- after the death of the process ------------------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
from pipeline.files import go_on
from pipeline.media.download import Limits, download
folder = Path(sys.argv[2])
folder.mkdir()
download(sys.argv[1], folder / "source", Limits(10**7, 60.0, ("127.0.0.1",)), check=go_on,
         on_progress=lambda *_: None)
"""


def test_what_a_killed_process_has_fetched_is_not_fetched_again(server: Web, path: str, tmp_path: Path) -> None:
    held, over = threading.Event(), threading.Event()

    def first(request: Request) -> None:
        request.send(200, BODY[:600_000], len(BODY), ETag='"one"')
        held.set()
        over.wait(60)

    url = server.serve(path, first)
    dead, heir = tmp_path / "dead", tmp_path / "heir"
    child = subprocess.Popen([sys.executable, "-c", CHILD, url, str(dead)])
    assert held.wait(60)
    assert processes.wait_until(
        lambda: (dead / "source.part").exists() and (dead / "source.part").stat().st_size == 600_000, 60
    )
    child.kill()
    child.wait()
    over.set()
    server.serve(path, Film(BODY))

    got = fetch(url, heir, dead)

    assert got.read_bytes() == BODY
    assert server.ranges(path) == [None, 600_000]
    assert (dead / "source.part").read_bytes() == BODY[:600_000]
    assert (dead / "source.part").stat().st_ino != got.stat().st_ino


def test_the_longest_beginning_is_taken(
    server: Web, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.serve(path, Film(BODY, breaks=[100_000, 500_000, 200_000]))
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        leave_unfinished(url, folder, monkeypatch)

    assert fetch(url, tmp_path / "heir", *folders, tmp_path / "gone").read_bytes() == BODY

    assert server.ranges(path)[-1] == 500_000


def test_a_download_that_was_complete_but_for_its_name_asks_for_one_byte(
    server: Web, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.serve(path, Film(BODY, breaks=[len(BODY) - 5]))
    dead = tmp_path / "dead"
    leave_unfinished(url, dead, monkeypatch)
    (dead / "source.part").write_bytes(BODY)

    assert fetch(url, tmp_path / "heir", dead).read_bytes() == BODY

    assert server.ranges(path) == [None, len(BODY) - 1]


def test_a_source_that_was_replaced_since_begins_anew(
    server: Web, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.serve(path, Film(BODY, breaks=[300_000]))
    dead = tmp_path / "dead"
    leave_unfinished(url, dead, monkeypatch)
    server.serve(path, Film(OTHER, mark={"ETag": '"two"'}))

    assert fetch(url, tmp_path / "heir", dead).read_bytes() == OTHER


@pytest.mark.parametrize(
    "damage", ["no note", "half a note", "another machine", "too long", "a link", "another address"]
)
def test_a_beginning_that_cannot_be_trusted_is_left_alone(
    damage: str, server: Web, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.serve(path, Film(BODY, breaks=[300_000]))
    dead = tmp_path / "dead"
    leave_unfinished(url, dead, monkeypatch)
    part, note = dead / "source.part", dead / "source.part.json"
    told = json.loads(note.read_text())
    if damage == "no note":
        note.unlink()
    elif damage == "half a note":
        note.write_text(note.read_text()[:20])
    elif damage == "another machine":
        note.write_text(json.dumps(told | {"machine": "other"}))
    elif damage == "too long":
        part.write_bytes(BODY + BODY)
    elif damage == "a link":
        part.rename(tmp_path / "secret")
        part.symlink_to(tmp_path / "secret")
    elif damage == "another address":
        note.write_text(json.dumps(told | {"place": "elsewhere"}))

    assert fetch(url, tmp_path / "heir", dead).read_bytes() == BODY

    assert server.ranges(path) == [None, None]


def test_a_ghost_that_wakes_up_changes_nothing_of_its_heirs(
    server: Web, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.serve(path, Film(BODY, breaks=[300_000]))
    dead = tmp_path / "dead"
    leave_unfinished(url, dead, monkeypatch)

    with (dead / "source.part").open("ab") as ghost:
        got = fetch(url, tmp_path / "heir", dead)
        ghost.write(b"late" * 1000)

    assert got.read_bytes() == BODY


# -- limits ------------------------------------------------------------------------------------------------------------


def test_ten_gigabytes_are_refused_by_their_header_at_once(server: Web, path: str, tmp_path: Path) -> None:
    url = server.serve(path, lambda request: request.send(200, b"x", 10 * 1024**3, Content_Type="video/mp4"))

    assert type(broken(url, tmp_path)) is SourceTooLarge

    assert list(tmp_path.iterdir()) == []


def test_a_server_that_falls_silent_is_given_up_and_the_next_attempt_goes_on(
    server: Web, path: str, tmp_path: Path
) -> None:
    over = threading.Event()

    def silent(request: Request) -> None:
        request.send(200, BODY[:300_000], len(BODY), ETag='"one"')
        over.wait(60)

    url = server.serve(path, silent)

    failure = broken(url, tmp_path / "dead", limits=Limits(10**7, 60.0, ("127.0.0.1",), stall_s=0.3))

    over.set()
    assert type(failure) is SourceTimeout
    assert failure.service == "source:127.0.0.1"
    server.serve(path, Film(BODY))
    assert fetch(url, tmp_path / "heir", tmp_path / "dead").read_bytes() == BODY
    assert server.ranges(path) == [None, 300_000]


def test_what_a_server_packs_although_it_must_not_is_not_unpacked(server: Web, path: str, tmp_path: Path) -> None:
    url = server.serve(path, lambda request: request.send(200, b"x", Content_Type="video/mp4", Content_Encoding="gzip"))

    assert type(broken(url, tmp_path)) is SourceUnreadable

    assert server.asked[-1].headers["Accept-Encoding"] == "identity"


def test_progress_goes_on_where_it_was(server: Web, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = server.serve(path, Film(BODY, breaks=[300_000]))
    leave_unfinished(url, tmp_path / "dead", monkeypatch)
    seen: list[tuple[int, int | None]] = []
    over = threading.Event()

    def watched(done: int, total: int | None) -> None:
        seen.append((done, total))
        over.set()

    def slow(request: Request) -> None:
        film = Film(BODY)
        over.wait(60)
        film(request)

    server.serve(path, slow)
    (tmp_path / "heir").mkdir()

    download(*(url, tmp_path / "heir/source", LIMITS), check=go_on, on_progress=watched, earlier=[tmp_path / "dead"])

    assert seen[0][0] == 300_000
    assert seen[-1] == (len(BODY), len(BODY))
