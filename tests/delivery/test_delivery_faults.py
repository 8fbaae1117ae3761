"""Which error is it when a server is away, slow, broken or somebody else? The right one, and nothing half-done."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.errors import (
    Kind,
    LeaseLost,
    TargetDown,
    TargetError,
    TargetPermissionDenied,
    TargetRefused,
    UploadFailed,
)
from pipeline.delivery import Target, deliver
from tests.delivery.places import Bucket, Loaded, Remote, Sample, refusal

MIB = 1024**2
FAR = ["s3", "s3-parts", "sftp"]  # the kinds with a wire to their server


def is_fault_of_the_service(error: TargetError) -> bool:
    return error.kind is not Kind.FAIL and error.service == "target:there"


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
