"""Which sources are taken, which refused, and what do a server's misdeeds become?

Everything stays on this machine: 127.0.0.1 is the allowed host here, and 127.0.0.2 stands for a private network.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from pathlib import Path

import pytest

from pipeline.core.errors import (
    BadRequest,
    IronclipError,
    LeaseLost,
    ScratchFull,
    SourceDown,
    SourceForbidden,
    SourceNotFound,
    SourceTimeout,
    SourceTooLarge,
    SourceUnreadable,
    UpstreamFailure,
)
from pipeline.media import address, source

BODY = bytes(range(256)) * 400


@pytest.fixture
def limits(env: Callable[..., None]) -> Callable[..., None]:
    def use(allow: str = "127.0.0.1", max_bytes: int = 1_000_000, timeout_s: float = 20.0) -> None:
        env(SOURCE_ALLOW_HOSTS=allow, SOURCE_MAX_BYTES=str(max_bytes), SOURCE_TIMEOUT_SEC=str(timeout_s))

    use()
    return use


def send(request: BaseHTTPRequestHandler, body: bytes = BODY, length: int | None = -1, status: int = 200) -> None:
    """Answer with a body; `length` is what we claim it to be (-1: the truth, None: nothing)."""
    request.send_response(status)
    if length is not None:
        request.send_header("Content-Length", str(len(body) if length == -1 else length))
    request.end_headers()
    request.wfile.write(body)


def redirect_to(url: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", url)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def refused(url: str, into: Path) -> IronclipError:
    """The error that fetching this gives; nothing but perhaps a `.part` file may be left."""
    with pytest.raises(IronclipError) as caught:
        source.fetch(url, into)
    assert [p.name for p in into.iterdir() if not p.name.endswith(".part")] == []
    return caught.value


# -- files -----------------------------------------------------------------------------------------------------------


def reason(text: str) -> str:
    with pytest.raises(BadRequest) as caught:
        source.validate(text)
    assert caught.value.field == "source"
    return caught.value.reason


def test_a_local_file_is_read_where_it_is(tmp_path: Path, env: Callable[..., None]) -> None:
    env(SOURCE_ROOTS="")
    film = tmp_path / "film.mp4"
    film.write_bytes(b"x")
    (tmp_path / "link.mp4").symlink_to(film)

    for text in (str(film), f"file://{film}", str(tmp_path / "link.mp4")):
        source.validate(text)

        assert source.fetch(text, tmp_path / "into") == film.resolve()


def test_what_is_no_local_source_is_refused_before_there_is_a_job(tmp_path: Path, env: Callable[..., None]) -> None:
    env(SOURCE_ROOTS=f"{tmp_path}/in:{tmp_path}/also")
    (tmp_path / "in").mkdir()
    (tmp_path / "in-secret").mkdir()
    for name in ("in/film.mp4", "out.mp4", "in-secret/film.mp4"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "in/empty.mp4").touch()
    (tmp_path / "in/escape.mp4").symlink_to(tmp_path / "out.mp4")
    (tmp_path / "in/dangling.mp4").symlink_to(tmp_path / "nothing")
    (tmp_path / "in/loop.mp4").symlink_to(tmp_path / "in/loop.mp4")
    os.mkfifo(tmp_path / "in/fifo.mp4")

    source.validate(str(tmp_path / "in/film.mp4"))

    assert reason("") == reason("  ") == "SOURCE_MISSING"
    assert reason(f"{tmp_path}/in/nothing.mp4") == "SOURCE_MISSING"
    assert reason(f"{tmp_path}/in/dangling.mp4") == "SOURCE_MISSING"
    assert reason(f"{tmp_path}/in/loop.mp4") == "SOURCE_MISSING"
    assert reason(f"{tmp_path}/in/film.mp4/more") == "SOURCE_MISSING"
    assert reason("film.mp4") == reason("../film.mp4") == "SOURCE_NOT_ABSOLUTE"
    assert reason(f"{tmp_path}/in") == reason(f"{tmp_path}/in/fifo.mp4") == "SOURCE_NOT_A_FILE"
    assert reason(f"{tmp_path}/in/empty.mp4") == "SOURCE_EMPTY"
    assert reason(f"{tmp_path}/out.mp4") == "SOURCE_OUTSIDE_ROOTS"
    assert reason(f"{tmp_path}/in/../out.mp4") == "SOURCE_OUTSIDE_ROOTS"
    assert reason(f"{tmp_path}/in/escape.mp4") == "SOURCE_OUTSIDE_ROOTS"
    assert reason(f"{tmp_path}/in-secret/film.mp4") == "SOURCE_OUTSIDE_ROOTS"
    assert reason("/etc/passwd") == "SOURCE_OUTSIDE_ROOTS"
    assert reason("/a\0b") == reason("http://h/\nx") == "SOURCE_INVALID"
    assert reason(f"file://elsewhere{tmp_path}/in/film.mp4") == "SOURCE_URL"


@pytest.mark.parametrize(
    "text",
    [
        *("ftp://h/x", "data:video/mp4;base64,AAAA", "concat:/a|/b", "subfile,,start,0,end,9,,:/etc/passwd"),
        *("gopher://h/", "rtmp://h/x", "crypto:/x", "javascript:alert(1)", "pipe:0"),
    ],
)
def test_only_files_and_http_are_schemes(text: str) -> None:
    assert reason(text) in ("SOURCE_SCHEME", "SOURCE_NOT_ABSOLUTE")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("http://", "SOURCE_URL"),
        ("https:///x.mp4", "SOURCE_URL"),
        ("http://h:99999/x", "SOURCE_URL"),
        ("http://[::1", "SOURCE_URL"),
        ("http://127.0.0.2/x", "SOURCE_FORBIDDEN"),
        ("http://[::1]/x", "SOURCE_FORBIDDEN"),
        ("http://[::ffff:169.254.169.254]/x", "SOURCE_FORBIDDEN"),
        ("http://user:pw@10.0.0.1/x", "SOURCE_FORBIDDEN"),
    ],
)
def test_addresses_that_cannot_be_fetched_are_refused_before_there_is_a_job(
    text: str, code: str, limits: Callable[..., None]
) -> None:
    assert reason(text) == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("s3://films/a/b c.mp4", None),
        ("s3://films", "SOURCE_URL"),
        ("s3://films/", "SOURCE_URL"),
        ("s3:///key", "SOURCE_URL"),
        ("s3://Films/key", "SOURCE_URL"),
        ("s3://user:pw@films/key", "SOURCE_URL"),
        ("s3://films/" + "k" * 1025, "SOURCE_URL"),
        ("s3://others/key", "SOURCE_BUCKET"),
    ],
)
def test_a_key_is_a_source_if_its_bucket_is_one_of_ours(text: str, code: str | None) -> None:
    if code is None:
        source.validate(text, {"films"})
        return
    with pytest.raises(BadRequest) as caught:
        source.validate(text, {"films"})

    assert caught.value.reason == code


def test_a_bucket_that_lost_its_target_after_the_request_is_forbidden(tmp_path: Path) -> None:
    with pytest.raises(SourceForbidden):
        source.fetch("s3://films/key", tmp_path)


def test_a_file_that_vanished_after_the_request_is_not_found(tmp_path: Path, env: Callable[..., None]) -> None:
    env(SOURCE_ROOTS=str(tmp_path))
    (tmp_path / "empty.mp4").touch()

    for text, error in (
        (f"{tmp_path}/gone.mp4", SourceNotFound),
        ("/etc/passwd", SourceForbidden),
        (f"{tmp_path}/empty.mp4", SourceUnreadable),
    ):
        with pytest.raises(error):
            source.fetch(text, tmp_path)


# -- downloads -------------------------------------------------------------------------------------------------------


def test_a_download_arrives_whole_and_says_how_far_it_is(
    tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    server = serve(send)
    seen: list[tuple[int, int | None]] = []

    path = source.fetch(f"{server.url}/film.mp4?token=1", tmp_path, on_progress=lambda *p: seen.append(p))

    assert path.read_bytes() == BODY
    assert path.parent == tmp_path
    assert seen[-1] == (len(BODY), len(BODY))
    assert server.asked == ["/film.mp4?token=1"]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_redirect_is_followed(tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]) -> None:
    end = serve(send)
    start = serve(redirect_to(f"{end.url}/there"))

    assert source.fetch(start.url, tmp_path).read_bytes() == BODY


def test_credentials_are_used_once_and_never_sent_on(
    tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    limits(allow="127.0.0.1,127.0.0.3")
    sent: list[str | None] = []

    def end(request: BaseHTTPRequestHandler) -> None:
        sent.append(request.headers["Authorization"])
        send(request)

    def start(request: BaseHTTPRequestHandler) -> None:
        sent.append(request.headers["Authorization"])
        redirect_to(f"{there.url}/x")(request)

    there = serve(end, "127.0.0.3")
    here = serve(start)

    source.fetch(here.url.replace("//", "//user:secret@"), tmp_path)

    assert sent == ["Basic dXNlcjpzZWNyZXQ=", None]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        *((404, SourceNotFound), (410, SourceNotFound), (400, SourceNotFound), (204, SourceNotFound)),
        *((401, SourceForbidden), (403, SourceForbidden)),
        *((500, UpstreamFailure), (502, UpstreamFailure), (503, SourceDown), (429, SourceDown)),
    ],
)
def test_an_answer_becomes_the_right_error(
    status: int,
    error: type[IronclipError],
    tmp_path: Path,
    serve: Callable[..., object],
    limits: Callable[..., None],
) -> None:
    server = serve(lambda request: send(request, b"", status=status))

    failure = refused(f"http://user:hunter2@127.0.0.1:{server.port}/film?token=abc", tmp_path)

    assert type(failure) is error
    assert not any(secret in failure.message for secret in ("hunter2", "token", "abc", "user"))
    assert failure.service == ("source:127.0.0.1" if error in (UpstreamFailure, SourceDown) else None)


def test_a_server_that_is_not_there_is_down(tmp_path: Path, limits: Callable[..., None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    failure = refused(f"http://127.0.0.1:{port}/x", tmp_path)

    assert type(failure) is SourceDown
    assert failure.service == "source:127.0.0.1"


def test_a_name_that_does_not_resolve_is_down(tmp_path: Path, limits: Callable[..., None]) -> None:
    failure = refused("http://no-such-host.invalid/x", tmp_path)

    assert type(failure) is SourceDown
    assert failure.service == "source:no-such-host.invalid"


def test_a_connection_that_is_reset_is_an_upstream_failure(
    tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    def reset(request: BaseHTTPRequestHandler) -> None:
        send(request, BODY[:1000], length=len(BODY))
        request.wfile.flush()
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.connection.close()

    assert type(refused(serve(reset).url, tmp_path)) is UpstreamFailure


def test_a_body_shorter_than_it_claims_is_an_upstream_failure(
    tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    server = serve(lambda request: send(request, BODY[:1000], length=len(BODY)))

    assert type(refused(server.url, tmp_path)) is UpstreamFailure


@pytest.mark.parametrize("claimed", [-1, None])
def test_the_size_limit_holds_whatever_the_server_claims(
    claimed: int | None, tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    limits(max_bytes=50_000)
    server = serve(lambda request: send(request, length=claimed))

    failure = refused(server.url, tmp_path)

    assert type(failure) is SourceTooLarge
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 50_000


def test_a_body_that_would_grow_when_it_is_unpacked_is_not_taken(
    tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    import gzip

    def bomb(request: BaseHTTPRequestHandler) -> None:
        packed = gzip.compress(bytes(5_000_000))
        request.send_response(200)
        request.send_header("Content-Encoding", "gzip")
        request.send_header("Content-Length", str(len(packed)))
        request.end_headers()
        request.wfile.write(packed)

    assert type(refused(serve(bomb).url, tmp_path)) is SourceUnreadable


def test_a_claim_larger_than_the_limit_is_refused_before_a_byte_is_written(
    tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    server = serve(lambda request: send(request, b"x", length=10**12))

    assert type(refused(server.url, tmp_path)) is SourceTooLarge
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["drip", "silence"])
def test_the_time_limit_holds_against_a_slow_server(
    kind: str, tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    limits(timeout_s=1.0)
    over = threading.Event()

    def slow(request: BaseHTTPRequestHandler) -> None:
        send(request, b"x", length=1000)
        while not over.wait(0.05):
            if kind == "drip":
                request.wfile.write(b"x")
                request.wfile.flush()

    server = serve(slow)
    began = time.monotonic()

    failure = refused(server.url, tmp_path)

    over.set()
    assert type(failure) is SourceTimeout
    assert failure.service == "source:127.0.0.1"
    assert time.monotonic() - began < 5


def test_a_lost_lease_stops_a_download_that_hangs(
    tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    over = threading.Event()
    asked: list[float] = []

    def lost() -> None:
        asked.append(time.monotonic())
        if len(asked) == 3:
            raise LeaseLost

    server = serve(lambda request: over.wait(30))
    with pytest.raises(LeaseLost):
        source.fetch(server.url, tmp_path, check=lost)
    over.set()

    assert asked[-1] - asked[0] < 2


def test_a_full_disk_is_not_the_sources_fault(
    tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    (tmp_path / "source.part").symlink_to("/dev/full")

    assert type(refused(serve(send).url, tmp_path)) is ScratchFull


def test_redirects_end_somewhere(tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]) -> None:
    server = serve(redirect_to("/again"))

    assert type(refused(server.url, tmp_path)) is SourceForbidden
    assert len(server.asked) < 10


# -- private addresses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.2", "2130706434", "0x7f000002", "0177.0.0.2", "127.2", "0x7f.2"),
        *("[::ffff:127.0.0.2]", "[::ffff:7f00:2]", "[::127.0.0.2]", "[64:ff9b::7f00:2]", "[::1]", "localhost"),
    ],
)
def test_a_private_address_is_refused_however_it_is_spelled(
    host: str, tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    limits(allow="")
    secret = serve(send, "127.0.0.2")

    failure = refused(f"http://{host}:{secret.port}/latest/meta-data", tmp_path)

    assert type(failure) is SourceForbidden
    assert secret.asked == []


@pytest.mark.parametrize("host", ["127.0.0.2", "2130706434", "[::ffff:127.0.0.2]", "0x7f.2"])
def test_a_redirect_to_a_private_address_is_refused(
    host: str, tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    secret = serve(send, "127.0.0.2")
    start = serve(redirect_to(f"http://{host}:{secret.port}/x"))

    failure = refused(start.url, tmp_path)

    assert type(failure) is SourceForbidden
    assert secret.asked == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"])
def test_a_redirect_to_another_scheme_is_refused(
    location: str, tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None]
) -> None:
    assert type(refused(serve(redirect_to(location)).url, tmp_path)) is SourceForbidden


def test_the_address_that_was_judged_is_the_one_that_is_used(
    tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that resolves to something harmless first and to something private a moment later."""
    good, secret = serve(send), serve(send, "127.0.0.2")
    real, answers = socket.getaddrinfo, ["127.0.0.1", "127.0.0.2", "127.0.0.2"]

    def rebinding(host: str, port: int, *args: object, **kwargs: object) -> object:
        name = answers.pop(0) if host == "rebind.test" else host
        return real(name, port, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)

    source.fetch(f"http://rebind.test:{good.port}/x", tmp_path)

    assert len(good.asked) == 1
    assert secret.asked == []
    assert answers == ["127.0.0.2", "127.0.0.2"]


def test_a_name_with_one_private_address_among_public_ones_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = [(0, 0, 0, "", ("93.184.216.34", 80)), (0, 0, 0, "", ("127.0.0.2", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: mixed)

    with pytest.raises(SourceForbidden):
        address.resolve("mixed.test", 80, ())


def test_a_proxy_of_the_environment_is_not_used(
    tmp_path: Path, serve: Callable[..., object], limits: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, server = serve(send, "127.0.0.2"), serve(send)
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.setenv("ALL_PROXY", proxy.url)

    source.fetch(server.url, tmp_path)

    assert proxy.asked == []


@pytest.mark.parametrize(
    "text",
    [
        *("0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "169.254.169.254", "172.16.0.1"),
        *("192.0.0.192", "192.168.1.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
        *("::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::a00:1"),
        *("2002:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe", "::10.0.0.1"),
    ],
)
def test_what_is_not_on_the_open_internet_is_not_public(text: str) -> None:
    assert not address.is_public(ip_address(text))


@pytest.mark.parametrize("text", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_what_is_on_the_open_internet_is_public(text: str) -> None:
    assert address.is_public(ip_address(text))


@pytest.mark.parametrize("exception", ["nas.lan", "10.0.0.0/8", "10.1.2.3", "NAS.lan."])
def test_an_exception_covers_a_host_or_a_network(exception: str) -> None:
    assert address.is_allowed("nas.lan", ip_address("10.1.2.3"), [exception])
    assert not address.is_allowed("other.lan", ip_address("172.16.0.1"), [exception])


def test_a_source_is_shown_without_its_secrets() -> None:
    assert source.shown("https://user:pw@h:8/film.mp4?sig=1#x") == "https://h:8/film.mp4"
    assert source.shown("/a/b.mp4") == "/a/b.mp4"
