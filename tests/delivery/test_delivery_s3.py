"""What only S3 can get wrong: answers, secrets, checksums, uploads in parts, certificates."""

from __future__ import annotations

import hashlib
import os
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipeline import settings
from pipeline.core.errors import (
    TargetError,
    TargetPermissionDenied,
    TargetUntrusted,
    UploadFailed,
)
from pipeline.delivery import Stored, Target, deliver
from tests.delivery.places import Bucket, Loaded, Putter, Sample, refusal, sample_of
from tests.delivery.servers import SECRET

MIB = 1024**2


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (500, "InternalError", "TARGET_DOWN"),
        (503, "SlowDown", "TARGET_DOWN"),
        (429, "TooManyRequests", "TARGET_DOWN"),
        (403, "AccessDenied", "TARGET_PERMISSION_DENIED"),
        (404, "NoSuchBucket", "TARGET_NOT_FOUND"),
        (507, "InsufficientStorage", "TARGET_DISK_FULL"),
        (400, "BadDigest", "STORAGE_UPLOAD_FAILED"),
        (400, "InvalidRequest", "TARGET_REFUSED"),
        (301, "PermanentRedirect", "TARGET_REFUSED"),
    ],
)
def test_an_answer_of_the_server_is_judged_by_its_code_and_status(
    bucket: Bucket, loaded: Loaded, sample: Sample, status: int, code: str, kind: str
) -> None:
    bucket.wire.answer(status, code, to="PUT")

    error = refusal(loaded(bucket.toml), sample)

    assert error.code == kind
    assert (error.service == "target:there") is (kind == "TARGET_DOWN")
    assert bucket.everything() == []


def test_a_wrong_secret_is_permission_denied_and_is_shown_nowhere(
    bucket: Bucket, loaded: Loaded, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.wrong_secret()
    target = loaded(bucket.toml)

    error = refusal(target, sample)

    assert type(error) is TargetPermissionDenied
    settings.current.cache_clear()
    shown = [str(error), repr(error.__cause__), repr(target), repr(vars(target)), repr(settings.describe())]
    settings.current.cache_clear()
    assert not any(SECRET in text for text in shown)


def test_bytes_that_changed_on_the_way_are_refused_by_the_server(
    bucket: Bucket, loaded: Loaded, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.delivery.s3parts import Body

    read = Body.read
    monkeypatch.setattr(Body, "read", lambda self, size=-1: bytes(len(read(self, size))))

    error = refusal(loaded(bucket.toml), sample)

    assert type(error) is UploadFailed
    assert error.service is None
    assert bucket.everything() == []


@pytest.mark.parametrize("place", ["s3", "s3-parts"], indirect=True)
def test_a_byte_that_the_network_changed_is_never_published(target: Target, place: Any, sample: Sample) -> None:
    place.wire.damage_after(MIB)

    with pytest.raises(TargetError):
        target.put(sample.path, sample.key, sample.sha256)

    assert place.read(sample.key) is None


def test_a_server_without_conditions_is_asked_without_them(bucket: Bucket, loaded: Loaded, sample: Sample) -> None:
    target = loaded(bucket.toml)
    answered: list[str] = []

    def once(request: str) -> tuple[int, str] | None:
        if request.startswith("PUT") and not answered:
            answered.append(request)
            return 501, "NotImplemented"
        return None

    bucket.wire._answers = once
    small = sample_of(sample.path.with_name("small-final.mp4"), b"small")

    deliver(target, small.path, small.key, small.sha256)

    assert bucket.read(small.key) == b"small"


def test_parts_that_a_killed_put_has_sent_are_not_sent_again(
    bucket: Bucket, targets_of: Callable[[str], Putter], loaded: Loaded, tmp_path: Path
) -> None:
    film = sample_of(tmp_path / "made" / "film-final.mp4", os.urandom(11 * MIB))
    bucket.wire.stall_after(7 * MIB)  # in the second of three parts
    victim = targets_of(bucket.toml)(film, wait_at="0")
    assert victim.stdin is not None
    victim.stdin.write("go\n")
    victim.stdin.flush()
    wait_for(lambda: bucket.wire.carried > 7 * MIB)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    bucket.wire.mend()
    assert bucket.everything() == []
    bucket.wire.asked.clear()

    deliver(loaded(bucket.toml), film.path, film.key, film.sha256)

    sent = [request for request in bucket.wire.asked if request.startswith("PUT")]
    assert ["partNumber=1" in request for request in sent] == [False, False]
    assert not any(request.endswith("?uploads") for request in bucket.wire.asked)
    assert bucket.read(film.key) == film.content
    assert bucket.uploads() == []


def test_a_part_of_other_content_is_sent_again(bucket: Bucket, loaded: Loaded, sample: Sample) -> None:
    bucket.begin(sample.key, os.urandom(5 * MIB))

    deliver(loaded(bucket.toml), sample.path, sample.key, sample.sha256)

    assert bucket.read(sample.key) == sample.content


@pytest.mark.parametrize("is_there", [True, False])
def test_an_upload_that_somebody_else_has_ended_is_no_failure(
    bucket: Bucket, loaded: Loaded, sample: Sample, is_there: bool
) -> None:
    bucket.begin(sample.key, sample.content[: 5 * MIB])
    ended: list[str] = []

    def end_it(request: str) -> None:
        if "partNumber=2" in request and not ended:
            ended.append(request)
            bucket.abort_all()
            if is_there:
                bucket.plant(sample.key, sample.content)

    bucket.wire._answers = end_it

    loaded(bucket.toml).put(sample.path, sample.key, sample.sha256)

    assert ended
    assert bucket.read(sample.key) == sample.content


def test_what_an_object_says_of_itself_is_not_believed(bucket: Bucket, loaded: Loaded, sample: Sample) -> None:
    for composite in ({}, {"ironclip-composite": "x-1"}):
        bucket.plant(sample.key, b"damaged", **{"ironclip-sha256": sample.sha256}, **composite)

        stored = loaded(bucket.toml).head(sample.key)

        assert stored == Stored(7, hashlib.sha256(b"damaged").hexdigest())


def test_an_untrusted_certificate_is_refused(loaded: Loaded, sample: Sample, tmp_path: Path) -> None:
    with tls_server(tmp_path) as port:
        toml = f'[targets.there]\nkind="s3"\nbucket="b"\nendpoint="https://127.0.0.1:{port}"\n'
        (tmp_path / "secret").write_text("s3cret\n")
        error = refusal(loaded(f'{toml}access_key="a"\nsecret_file="{tmp_path}/secret"\n'), sample)

    assert type(error) is TargetUntrusted


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never came"
        threading.Event().wait(0.02)


@contextmanager
def tls_server(folder: Path) -> Iterator[int]:
    """A server with a certificate that nobody knows."""
    key, cert = folder / "tls.key", folder / "tls.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
