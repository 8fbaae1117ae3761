"""What is fetched from behind a page, what is refused, and what do a site's misdeeds become? By a real yt-dlp."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from pipeline import processes
from pipeline.core.errors import (
    InternalTransient,
    IronclipError,
    LeaseLost,
    SourceDown,
    SourceForbidden,
    SourceNotFound,
    SourceTimeout,
    SourceTooLarge,
    SourceUnreadable,
    ToolMissing,
    UpstreamFailure,
)
from pipeline.media import probe, site, source
from tests.media.conftest import run_ffmpeg
from tests.media.webserver import Request, Web, media, page, redirect

Use = Callable[..., None]
SOUND = ("-f", "lavfi", "-i", "sine", "-c:a", "aac")
PICTURE = ("-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25", "-c:v", "libx264", "-preset", "ultrafast", "-g", "10")
HLS = "application/vnd.apple.mpegurl"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A site with a film of 1 s: as a file, as HLS, and as HLS with picture and sound apart."""
    folder = tmp_path_factory.mktemp("site")
    run_ffmpeg(*PICTURE[:4], *SOUND[:4], *PICTURE[4:], *SOUND[4:], "-t", "1", folder / "film.mp4")
    run_ffmpeg("-i", folder / "film.mp4", "-c", "copy", "-f", "hls", "-hls_time", "0.4", folder / "list.m3u8")
    for name, kind in (("picture", "v"), ("sound", "a")):
        run_ffmpeg("-i", folder / "film.mp4", "-map", f"0:{kind}", "-c", "copy", "-f", "hls", folder / f"{name}.m3u8")
    (folder / "apart.m3u8").write_text(
        '#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="x",DEFAULT=YES,URI="sound.m3u8"\n'
        '#EXT-X-STREAM-INF:BANDWIDTH=500000,RESOLUTION=320x180,CODECS="avc1.42c015,mp4a.40.2",AUDIO="a"\npicture.m3u8\n'
    )
    server = Web()
    for file in folder.iterdir():
        server.serve(f"/{file.name}", media(file.read_bytes(), HLS if file.suffix == ".m3u8" else "video/mp4"))
    server.serve("/page.html", page('<title>x</title><video src="film.mp4"></video>'))
    yield server
    server.stop()


@pytest.fixture
def allowed(env: Use) -> Use:
    def use(allow: str = "127.0.0.1", max_bytes: int = 10_000_000, timeout_s: float = 60.0) -> None:
        env(SOURCE_ALLOW_HOSTS=allow, SOURCE_MAX_BYTES=str(max_bytes), YTDLP_TIMEOUT_SEC=str(timeout_s))

    use()
    return use


def shown(web: Web, html: str) -> str:
    """The address of a page of its own."""
    return web.serve(f"/{uuid4()}.html", page(f"<title>x</title>{html}"))


def refused(url: str, into: Path) -> IronclipError:
    with pytest.raises(IronclipError) as caught:
        source.fetch(url, into)
    return caught.value


# -- what is fetched ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["page.html", "apart.m3u8"])
def test_the_film_behind_an_address_is_fetched(name: str, web: Web, tmp_path: Path, allowed: Use) -> None:
    seen: list[int] = []

    got = source.fetch(f"{web.base}/{name}", tmp_path, on_progress=lambda done, _: seen.append(done))

    facts = probe.probe(got)
    assert facts.video is not None
    assert facts.has_audio
    assert facts.duration_s == pytest.approx(1, abs=0.15)
    assert max(seen) > 10_000
    assert got.parent == tmp_path / "site"
    assert not (tmp_path / "site/order.json").exists()


def test_a_page_with_hls_is_fetched_piece_by_piece(web: Web, tmp_path: Path, allowed: Use) -> None:
    url = shown(web, f'<video><source src="{web.base}/list.m3u8" type="application/x-mpegURL"></video>')

    assert probe.probe(source.fetch(url, tmp_path)).duration_s == pytest.approx(1, abs=0.15)


def test_a_list_whose_server_does_not_say_so_is_known_by_its_beginning(web: Web, tmp_path: Path, allowed: Use) -> None:
    text = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{web.base}/list0.ts\n#EXT-X-ENDLIST\n"
    url = web.serve(f"/{uuid4()}.m3u8", media(text.encode(), "text/plain"))

    assert probe.probe(source.fetch(url, tmp_path)).video is not None


def test_what_says_that_it_is_a_video_is_never_looked_behind(web: Web, tmp_path: Path, allowed: Use) -> None:
    url = web.serve(f"/{uuid4()}.mp4", media(f"#EXTM3U\n#EXTINF:1,\n{web.base}/list0.ts\n".encode()))

    got = source.fetch(url, tmp_path)

    with pytest.raises(SourceUnreadable):
        probe.probe(got)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "error", "word"),
    [
        ("<p>no film</p>", SourceUnreadable, "no video"),
        ('<video src="film.mp4"></video><video src="list.m3u8"></video>', SourceUnreadable, "several"),
        ('<video src="absent.mp4"></video>', SourceNotFound, "HTTP 404"),
        ('<video src="busy.mp4"></video>', SourceDown, "HTTP 503"),
        ('<video src="broken.mp4"></video>', UpstreamFailure, "HTTP 500"),
        ('<video src="http://127.0.0.1:9/film.mp4"></video>', SourceDown, "cannot be reached"),
    ],
)
def test_what_goes_wrong_behind_a_page_becomes_the_right_error(
    html: str, error: type[IronclipError], word: str, web: Web, tmp_path: Path, allowed: Use
) -> None:
    for path, status in (("/busy.mp4", 503), ("/broken.mp4", 500)):
        web.serve(path, lambda request, status=status: request.send(status))  # type: ignore[misc]
    url = shown(web, html).replace("//", "//user:hunter2@") + "?token=hush-hush"

    failure = refused(url, tmp_path)

    assert type(failure) is error
    assert word in failure.message
    assert failure.service == ("source:127.0.0.1" if error in (SourceDown, UpstreamFailure) else None)
    told = failure.message + (failure.evidence or "")
    assert not any(secret in told for secret in ("hunter2", "token", "hush-hush"))


def test_a_film_that_is_too_large_is_stopped(web: Web, tmp_path: Path, allowed: Use) -> None:
    allowed(max_bytes=20_000)

    assert type(refused(f"{web.base}/page.html", tmp_path)) is SourceTooLarge

    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) <= 20_000


def test_a_file_without_a_length_cannot_grow_past_the_limit(web: Web, tmp_path: Path, allowed: Use) -> None:
    allowed(max_bytes=200_000)

    def endless(request: Request) -> None:
        request.head(200, None, Content_Type="video/mp4")
        for _ in range(1000):
            request.wfile.write(bytes(65536))

    web.serve("/endless.mp4", endless)

    assert type(refused(shown(web, '<video src="endless.mp4"></video>'), tmp_path)) is SourceTooLarge

    assert max(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) <= 200_001


def test_a_visit_that_takes_too_long_is_stopped_with_everything_it_started(
    web: Web, tmp_path: Path, allowed: Use
) -> None:
    allowed(timeout_s=3.0)
    over = threading.Event()
    web.serve("/slow.mp4", lambda request: over.wait(60))

    failure = refused(shown(web, '<video src="slow.mp4"></video>'), tmp_path)

    over.set()
    assert type(failure) is SourceTimeout
    assert failure.service == "source:127.0.0.1"
    assert visitors_in(tmp_path) == []


def test_a_lost_lease_stops_a_visit(web: Web, tmp_path: Path, allowed: Use) -> None:
    over, asked = threading.Event(), threading.Event()

    def slow(request: Request) -> None:
        asked.set()
        over.wait(60)

    def lost() -> None:
        if asked.is_set():
            raise LeaseLost

    web.serve("/hangs.mp4", slow)
    url = shown(web, '<video src="hangs.mp4"></video>')

    with pytest.raises(LeaseLost):
        source.fetch(url, tmp_path, check=lost)

    over.set()
    assert visitors_in(tmp_path) == []


def test_no_visitor_survives_a_kill_of_its_parent(web: Web, tmp_path: Path, allowed: Use) -> None:
    over, asked = threading.Event(), threading.Event()

    def slow(request: Request) -> None:
        asked.set()
        over.wait(60)

    web.serve("/parent.mp4", slow)
    url = shown(web, '<video src="parent.mp4"></video>')
    code = (
        f"from pathlib import Path; from pipeline.media import source; source.fetch({url!r}, Path({str(tmp_path)!r}))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    assert asked.wait(60)
    assert visitors_in(tmp_path) != []

    parent.send_signal(signal.SIGKILL)
    parent.wait()

    assert processes.wait_until(lambda: visitors_in(tmp_path) == [], 30)
    over.set()


def test_without_yt_dlp_there_is_one_clear_sentence(
    web: Web, tmp_path: Path, allowed: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "is_possible", lambda: False)
    web.serve("/login.html", lambda request: request.send(403, b"<html>", Content_Type="text/html"))

    failure = refused(f"{web.base}/page.html", tmp_path)

    assert type(failure) is ToolMissing
    assert "extra 'sites'" in failure.message
    assert type(refused(f"{web.base}/login.html", tmp_path)) is SourceForbidden


def test_a_visitor_that_dies_without_a_word_is_no_fault_of_the_source(
    web: Web, tmp_path: Path, allowed: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute = tmp_path / "mute.py"
    mute.write_text("print('hm')\nprint('[]')\nraise SystemExit(3)")
    monkeypatch.setattr(site, "VISITOR", mute)

    assert type(refused(f"{web.base}/page.html", tmp_path / "x")) is InternalTransient


def visitors_in(folder: Path) -> list[int]:
    """The processes that carry out an order of this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().decode()
        except OSError:
            continue
        if "visitor.py" in line and str(folder) in line and int(entry.parent.name) != os.getpid():
            found.append(int(entry.parent.name))
    return found


# -- where it may not go -----------------------------------------------------------------------------------------------


@pytest.fixture
def secret() -> Iterator[Web]:
    """What no visitor may ask for anything."""
    private = Web("127.0.0.2")
    private.serve("/film.mp4", media(b"secret"))
    yield private
    private.stop()


@pytest.mark.parametrize("host", ["2130706434", "[::ffff:127.0.0.2]"])
def test_a_page_that_leads_to_a_private_address_is_refused(
    host: str, web: Web, secret: Web, tmp_path: Path, allowed: Use
) -> None:
    url = shown(web, f'<video src="http://{host}:{secret.port}/film.mp4"></video>')

    failure = refused(url, tmp_path)

    assert secret.asked == []
    assert type(failure) is SourceForbidden


def test_a_redirect_behind_a_page_to_a_private_address_is_refused(
    web: Web, secret: Web, tmp_path: Path, allowed: Use
) -> None:
    web.serve("/away.mp4", redirect(f"{secret.base}/film.mp4"))

    assert type(refused(shown(web, '<video src="away.mp4"></video>'), tmp_path)) is SourceForbidden

    assert secret.asked == []


@pytest.mark.parametrize(
    ("place", "entry", "error"),
    [
        ("segment", "{secret}/film.mp4", SourceForbidden),
        ("segment", "file://{file}", SourceNotFound),  # yt-dlp itself takes it for no address
        ("segment", "data:,x", SourceForbidden),
        ("key", "{secret}/film.mp4", SourceForbidden),
        ("map", "ftp://127.0.0.1/x", SourceForbidden),
    ],
)
def test_a_list_whose_pieces_are_elsewhere_is_refused(
    place: str, entry: str, error: type[IronclipError], web: Web, secret: Web, tmp_path: Path, allowed: Use
) -> None:
    (tmp_path / "file").write_bytes(b"secret")
    where = entry.format(secret=secret.base, file=tmp_path / "file")
    lines = {
        "segment": f"#EXTINF:1,\n{where}",
        "key": f'#EXT-X-KEY:METHOD=AES-128,URI="{where}"\n#EXTINF:1,\n{web.base}/list0.ts',
        "map": f'#EXT-X-MAP:URI="{where}"\n#EXTINF:1,\n{web.base}/list0.ts',
    }
    text = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n{lines[place]}\n#EXT-X-ENDLIST\n"
    url = web.serve(f"/{uuid4()}.m3u8", media(text.encode(), HLS))

    failure = refused(url, tmp_path)

    assert type(failure) is error
    assert secret.asked == []
    assert b"secret" not in b"".join(file.read_bytes() for file in (tmp_path / "site").iterdir())


def test_a_redirect_behind_a_page_to_another_scheme_is_refused(web: Web, tmp_path: Path, allowed: Use) -> None:
    web.serve("/scheme.mp4", redirect("ftp://127.0.0.1/x"))

    failure = refused(shown(web, '<video src="scheme.mp4"></video>'), tmp_path)

    assert type(failure) is SourceForbidden
    assert list((tmp_path / "site").iterdir()) == []


def test_proxies_plugins_and_configuration_of_the_environment_are_not_used(
    web: Web, secret: Web, tmp_path: Path, allowed: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    plugin = home / ".config/yt-dlp/plugins/x/yt_dlp_plugins/extractor/evil.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(f"open({str(tmp_path / 'was-here')!r}, 'w')")
    (home / ".config/yt-dlp/config").write_text("--exec 'touch was-here'")
    monkeypatch.setenv("HOME", str(home))
    for name in ("http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, secret.base)

    source.fetch(f"{web.base}/page.html", tmp_path / "got")

    assert secret.asked == []
    assert not (tmp_path / "was-here").exists()


BATTERY = """
import json, os, socket, subprocess, sys, urllib.request
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from pipeline.media import cage
folder = Path(sys.argv[2])
guard = cage.Guard(folder, ("127.0.0.1", "nas.test"))
names = {"private.test": "127.0.0.2", "nas.test": "127.0.0.3"}
cage.RESOLVE = lambda host, port, *a, **k: [(2, 1, 6, "", (names.get(host, host), port))]
socket.getaddrinfo = guard.resolve
sys.addaudithook(guard)

def tried(act):
    try:
        act()
    except PermissionError as exc:
        return "refused" if "refused" in str(exc) else repr(exc)
    except OSError as exc:
        return "let through"
    return "let through"

def connect(*to, family=socket.AF_INET, how="connect"):
    with socket.socket(family) as s:
        s.settimeout(0.2)
        getattr(s, how)(to)

told = {
    "allowed": tried(lambda: connect("127.0.0.1", 9)),
    "allowed by name": tried(lambda: socket.create_connection(("nas.test", 9), 0.2)),
    "private": tried(lambda: connect("127.0.0.2", 9)),
    "connect_ex": tried(lambda: connect("127.0.0.2", 9, how="connect_ex")),
    "mapped": tried(lambda: connect("::ffff:127.0.0.2", 9, family=socket.AF_INET6)),
    "a name": tried(lambda: connect("localhost", 9)),
    "short": tried(lambda: connect("127.2", 9)),
    "resolved": tried(lambda: socket.create_connection(("private.test", 9), 0.2)),
    "a socket file": tried(lambda: [socket.socket(socket.AF_UNIX).connect("/x")]),
    "udp": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))),
    "ftp": tried(lambda: urllib.request.urlopen("ftp://127.0.0.1/x")),
    "file": tried(lambda: urllib.request.urlopen("file:///etc/hostname")),
    "program": tried(lambda: subprocess.run(["true"])),
    "shell": tried(lambda: os.system("true")),
    "fork": tried(os.fork),
    "read": tried(lambda: open("/etc/passwd").read()),
    "read by number": tried(lambda: os.open("/etc/passwd", os.O_RDONLY)),
    "read by ..": tried(lambda: open(folder / "../secret").read()),
    "write": tried(lambda: open(folder.parent / "secret", "w")),
    "append": tried(lambda: os.open(folder.parent / "secret", os.O_WRONLY | os.O_APPEND)),
    "rename": tried(lambda: os.rename(folder.parent / "secret", folder / "x")),
    "rename away": tried(lambda: os.rename(folder / "mine", folder.parent / "x")),
    "remove": tried(lambda: os.remove(folder.parent / "secret")),
    "own": tried(lambda: (folder / "mine").write_text("x")),
}
print(json.dumps(told))
"""


def test_nothing_in_a_visitor_gets_past_its_guard(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "mine").write_text("x")
    (tmp_path / "secret").write_text("secret")
    root = Path(site.__file__).parents[2]

    done = subprocess.run(
        [sys.executable, "-c", BATTERY, str(root), str(folder)], capture_output=True, text=True, timeout=60
    )

    told = json.loads(done.stdout)
    free = {"allowed", "allowed by name", "own"}
    assert {name for name, how in told.items() if how == "let through"} == free
    assert {how for name, how in told.items() if name not in free} == {"refused"}
    assert (tmp_path / "secret").read_text() == "secret"
