"""Which error is it when a server is away, slow, broken or somebody else? The right one, and nothing half-done."""

from __future__ import annotations

import hashlib
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipeline import delivery, settings
from pipeline.core.errors import (
    Kind,
    LeaseLost,
    TargetDown,
    TargetError,
    TargetPermissionDenied,
    TargetRefused,
    TargetUntrusted,
    UploadFailed,
)
from pipeline.delivery import Stored, Target, deliver
from pipeline.settings import Settings
from tests.delivery.places import Bucket, Putter, Remote, Sample, sample_of
from tests.delivery.servers import SECRET, Sshd, Weed

MIB = 1024**2
FAR = ["s3", "s3-parts", "sftp"]  # the kinds with a wire to their server
Loaded = Callable[[str], Target]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    def load(toml: str) -> Target:
        told = tmp_path / "other.toml"
        told.write_text(toml)
        monkeypatch.setenv("TARGETS_FILE", str(told))
        return delivery.load(Settings())["there"]

    return load


@pytest.fixture
def bucket(weed: Weed) -> Iterator[Bucket]:
    place = Bucket(weed, part_mb=5)
    yield place
    place.close()


@pytest.fixture
def remote(sshd: Sshd) -> Iterator[Remote]:
    place = Remote(sshd)
    yield place
    place.close()


def refusal(target: Target, sample: Sample) -> TargetError:
    with pytest.raises(TargetError) as caught:
        deliver(target, sample.path, sample.key, sample.sha256)
    return caught.value


def is_fault_of_the_service(error: TargetError) -> bool:
    return error.kind is not Kind.FAIL and error.service == "target:there"


# -- away, broken, slow ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", FAR, indirect=True)
def test_a_server_that_is_away_is_down_and_takes_the_file_when_it_is_back(
    target: Target, place: Any, sample: Sample
) -> None:
    place.wire.cut()

    error = refusal(target, sample)

    assert type(error) is TargetDown
    assert is_fault_of_the_service(error)
    place.wire.mend()
    assert not deliver(target, sample.path, sample.key, sample.sha256).skipped


@pytest.mark.parametrize("place", FAR, indirect=True)
def test_a_connection_that_breaks_in_the_middle_is_a_failed_attempt_and_publishes_nothing(
    target: Target, place: Any, sample: Sample
) -> None:
    place.wire.reset_after(MIB)

    error = refusal(target, sample)

    assert type(error) is UploadFailed
    assert is_fault_of_the_service(error)
    assert place.read(sample.key) is None
    place.wire.mend()
    assert not deliver(target, sample.path, sample.key, sample.sha256).skipped
    assert place.read(sample.key) == sample.content


@pytest.mark.parametrize("kind", ["s3", "sftp"])
def test_a_server_that_stands_still_is_down_after_the_time_that_it_may(
    request: pytest.FixtureRequest, loaded: Loaded, sample: Sample, kind: str
) -> None:
    if kind == "s3":
        place: Any = Bucket(request.getfixturevalue("weed"), timeout_s=1)
    else:
        place = Remote(request.getfixturevalue("sshd"), timeout_s=1)
    place.wire.stall_after(MIB)

    error = refusal(loaded(place.toml), sample)

    assert type(error) is TargetDown
    assert is_fault_of_the_service(error)
    assert place.read(sample.key) is None
    place.close()


@pytest.mark.parametrize("place", FAR, indirect=True)
def test_a_lost_lease_ends_a_transfer_that_hangs_long_before_its_patience(
    target: Target, place: Any, sample: Sample
) -> None:
    place.wire.stall_after(MIB)
    moved = time.monotonic()

    def told(_done: int, _total: int) -> None:
        nonlocal moved
        moved = time.monotonic()

    def check() -> None:
        if place.wire.carried > MIB and time.monotonic() - moved > 0.5:
            raise LeaseLost

    with pytest.raises(LeaseLost):  # and not TargetDown, after 30 s
        target.put(sample.path, sample.key, sample.sha256, check=check, on_progress=told)

    assert place.read(sample.key) is None


# -- what S3 says ----------------------------------------------------------------------------------------------------


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


# -- SFTP ------------------------------------------------------------------------------------------------------------


def pins(sshd: Sshd, port: int, tmp_path: Path, public: str) -> list[str]:
    """Every way to say which key a server has."""
    known = tmp_path / f"known-{len(list(tmp_path.iterdir()))}"
    known.write_text(f"[127.0.0.1]:{port} {public}")
    return [f'host_key = "{" ".join(public.split()[:2])}"', f'known_hosts = "{known}"']


def test_a_server_is_known_by_its_fingerprint_its_key_or_known_hosts(
    remote: Remote, sshd: Sshd, loaded: Loaded, sample: Sample, tmp_path: Path
) -> None:
    pinned = next(line for line in remote.toml.splitlines() if line.startswith("host_key"))

    for pin in [pinned, *pins(sshd, remote.wire.port, tmp_path, sshd.public)]:
        assert deliver(loaded(remote.toml.replace(pinned, pin)), sample.path, sample.key, sample.sha256).size


def test_a_changed_host_key_is_untrusted_and_nothing_of_ours_is_sent(
    remote: Remote, sshd: Sshd, loaded: Loaded, sample: Sample, tmp_path: Path
) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    other = (tmp_path / "other.pub").read_text()
    pinned = next(line for line in remote.toml.splitlines() if line.startswith("host_key"))
    log = sshd.key.with_name("sshd.log")
    before = log.read_text().count("Accepted")

    for pin in ['host_key = "SHA256:' + "A" * 43 + '"', *pins(sshd, remote.wire.port, tmp_path, other)]:
        error = refusal(loaded(remote.toml.replace(pinned, pin)), sample)
        assert type(error) is TargetUntrusted
        assert error.code == "TARGET_UNTRUSTED"

    assert log.read_text().count("Accepted") == before  # nobody has logged in
    assert remote.everything() == []


def test_a_key_that_the_server_does_not_know_is_permission_denied(
    remote: Remote, sshd: Sshd, loaded: Loaded, sample: Sample, tmp_path: Path
) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "stranger")], check=True)

    error = refusal(loaded(remote.toml.replace(str(sshd.key), str(tmp_path / "stranger"))), sample)

    assert type(error) is TargetPermissionDenied


@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_a_broken_put_has_left_is_copied_by_the_server_if_it_is_good(
    remote: Remote, loaded: Loaded, sample: Sample, is_damaged: bool
) -> None:
    remote.wire.reset_after(4 * MIB)
    refusal(loaded(remote.toml), sample)
    (left,) = [remote.root / name for name in remote.everything()]
    if is_damaged:
        with left.open("r+b") as file:
            file.write(b"damaged")
    kept = left.stat().st_size
    remote.wire.mend()
    before = remote.wire.carried

    deliver(loaded(remote.toml), sample.path, sample.key, sample.sha256)

    assert kept > MIB
    assert remote.read(sample.key) == sample.content
    carried = remote.wire.carried - before
    assert (carried < len(sample.content)) is not is_damaged
    assert left.exists()  # whoever wrote it may not be dead
    assert loaded(remote.toml).tidy("jobs", {sample.key}, timedelta(0)).removed == 1
    assert remote.everything() == [sample.key]


# -- what is not installed or not set --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "module"), [("s3", "boto3"), ("sftp", "paramiko")])
def test_a_missing_extra_is_one_sentence_when_it_is_needed(
    request: pytest.FixtureRequest,
    loaded: Loaded,
    sample: Sample,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    module: str,
) -> None:
    place: Any = request.getfixturevalue("bucket" if kind == "s3" else "remote")
    from pipeline.delivery import s3bucket

    s3bucket._client.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)

    error = refusal(loaded(place.toml), sample)

    assert type(error) is TargetRefused
    assert f"pip install 'ironclip[{kind}]'" in error.message


def test_targets_are_named_without_their_packages() -> None:
    code = "import sys, pipeline.delivery; print([m for m in ('boto3', 'botocore', 'paramiko') if m in sys.modules])"

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert told.stdout.strip() == "[]"


def test_a_secret_that_is_not_there_is_permission_denied(
    bucket: Bucket, loaded: Loaded, sample: Sample, tmp_path: Path
) -> None:
    lines = [line for line in bucket.toml.splitlines() if not line.startswith("secret_env")]
    for where in ('secret_env = "NO_SUCH_VARIABLE"', f'secret_file = "{tmp_path}/no-such-file"'):
        error = refusal(loaded("\n".join([*lines, where])), sample)
        assert type(error) is TargetPermissionDenied
        assert "its secret is not in" in error.message


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
