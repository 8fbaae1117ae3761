"""What only SFTP can get wrong: whose host key it is, who may log in, what a broken put has left."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.core.errors import (
    TargetPermissionDenied,
    TargetUntrusted,
)
from pipeline.delivery import deliver
from tests.delivery.places import Loaded, Remote, Sample, refusal
from tests.delivery.servers import Sshd

MIB = 1024**2


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
