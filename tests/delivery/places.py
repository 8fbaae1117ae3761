"""The places that the conformance suite delivers to.

A kind of target joins the suite with one Place: how to make a target of TOML, and how to look behind its back.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest

from pipeline import delivery
from pipeline.core.errors import TargetError
from tests.delivery.servers import KEY, READER_KEY, READER_SECRET, SECRET, Sshd, Weed
from tests.delivery.wire import Wire
from tests.needs import mounted

NOBODY = 65534
SHARED = "ironclip-tests"


class Place(Protocol):
    """Where a target's files really lie, and what may happen there."""

    toml: str  # the table [targets.there] of this target

    def read(self, key: str) -> bytes | None: ...
    def plant(self, key: str, content: bytes) -> None: ...
    def everything(self) -> list[str]: ...
    def gone(self) -> AbstractContextManager[None]: ...
    def forbidden(self) -> AbstractContextManager[None]: ...
    def full(self) -> AbstractContextManager[None]: ...
    def close(self) -> None: ...


class Folder:
    """A folder behind a `file` target."""

    def __init__(self, tmp: Path) -> None:
        self.root = tmp / "there"
        self.root.mkdir()
        self.toml = f'[targets.there]\nkind = "file"\npath = {json.dumps(str(self.root))}\n'

    def read(self, key: str) -> bytes | None:
        path = self.root / key
        return path.read_bytes() if path.exists() else None

    def plant(self, key: str, content: bytes) -> None:
        (self.root / key).parent.mkdir(parents=True, exist_ok=True)
        (self.root / key).write_bytes(content)

    def everything(self) -> list[str]:
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if not p.is_dir())

    @contextmanager
    def gone(self) -> Iterator[None]:
        self.root.rename(self.root.with_name("elsewhere"))
        yield
        assert not self.root.exists(), "a missing root was filled silently"
        self.root.with_name("elsewhere").rename(self.root)

    @contextmanager
    def forbidden(self) -> Iterator[None]:
        self.root.chmod(0o555)
        with not_as_root(self.root):
            yield
        self.root.chmod(0o755)

    @contextmanager
    def full(self) -> Iterator[None]:
        with mounted(self.root, "size=1m"):
            yield
            assert self.everything() == []

    def close(self) -> None:
        pass


class Bucket:
    """A bucket of a real SeaweedFS behind an `s3` target, with a wire between them. A new bucket takes half a second:
    one for all will do, where each test has its own prefix."""

    def __init__(
        self, weed: Weed, name: str = "there", *, bucket: str = SHARED, part_mb: int = 8, timeout_s: float = 30
    ) -> None:
        self.wire = Wire(weed.port)
        self.bucket = bucket
        self._s3 = weed.client()
        if bucket not in self._buckets():
            self._s3.create_bucket(Bucket=bucket)
        own = uuid4().hex
        self.prefix = f"{own}/here/"
        self._env = f"TEST_{own.upper()}"
        self._lets(KEY, SECRET)
        self.toml = (
            f'[targets.{name}]\nkind = "s3"\nbucket = "{self.bucket}"\nprefix = "{self.prefix}"\n'
            f'endpoint = "http://127.0.0.1:{self.wire.port}"\npart_mb = {part_mb}\ntimeout_s = {timeout_s}\n'
            f'access_key_env = "{self._env}_KEY"\nsecret_env = "{self._env}_SECRET"\n'
        )

    def _lets(self, key: str, secret: str) -> None:
        os.environ[f"{self._env}_KEY"], os.environ[f"{self._env}_SECRET"] = key, secret

    def wrong_secret(self) -> None:
        self._lets(KEY, "wr0ng-" + SECRET)

    def read(self, key: str) -> bytes | None:
        try:
            content: bytes = self._s3.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"].read()
        except self._s3.exceptions.NoSuchKey:
            return None
        return content

    def plant(self, key: str, content: bytes, **about: str) -> None:
        self._s3.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=content, Metadata=about)

    def begin(self, key: str, part: bytes) -> None:
        """Leave an upload behind that has one part."""
        named = {"Bucket": self.bucket, "Key": self.prefix + key}
        upload = self._s3.create_multipart_upload(**named, ChecksumAlgorithm="SHA256")["UploadId"]
        self._s3.upload_part(**named, UploadId=upload, PartNumber=1, Body=part, ChecksumAlgorithm="SHA256")

    def everything(self) -> list[str]:
        listed = self._s3.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix).get("Contents", [])
        return sorted(each["Key"].removeprefix(self.prefix) for each in listed)

    def uploads(self) -> list[str]:
        listed = self._s3.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix).get("Uploads", [])
        return [each["UploadId"] for each in listed]

    def abort_all(self) -> None:
        for each in self._s3.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix).get("Uploads", []):
            self._s3.abort_multipart_upload(Bucket=self.bucket, Key=each["Key"], UploadId=each["UploadId"])

    def remove(self, key: str) -> None:
        self._s3.delete_object(Bucket=self.bucket, Key=self.prefix + key)

    def _buckets(self) -> set[str]:
        return {each["Name"] for each in self._s3.list_buckets()["Buckets"]}

    @contextmanager
    def gone(self) -> Iterator[None]:
        self._s3.delete_bucket(Bucket=self.bucket)
        yield
        assert self.bucket not in self._buckets()
        self._s3.create_bucket(Bucket=self.bucket)

    @contextmanager
    def forbidden(self) -> Iterator[None]:
        self._lets(READER_KEY, READER_SECRET)
        yield
        self._lets(KEY, SECRET)

    @contextmanager
    def full(self) -> Iterator[None]:
        """As a server says that has a word for it; SeaweedFS has none."""
        self.wire.answer(507, "XMinioStorageFull", to="PUT")
        yield
        self.wire.mend()
        assert self.everything() == []

    def close(self) -> None:
        self.wire.close()
        for what in ("KEY", "SECRET"):
            os.environ.pop(f"{self._env}_{what}", None)


class Remote(Folder):
    """A folder behind a real OpenSSH and an `sftp` target, with a wire between them."""

    def __init__(self, sshd: Sshd, name: str = "there", *, timeout_s: float = 30, host_key: str = "") -> None:
        self._tmp = tempfile.TemporaryDirectory(prefix="ironclip-sftp-", ignore_cleanup_errors=True)
        Path(self._tmp.name).chmod(0o755)
        self.root = Path(self._tmp.name) / "there"
        self.root.mkdir()
        os.chown(self.root, sshd.uid, -1)
        self.wire = Wire(sshd.port)
        self.toml = (
            f'[targets.{name}]\nkind = "sftp"\nhost = "127.0.0.1"\nport = {self.wire.port}\n'
            f'user = "{sshd.user}"\nkey_file = "{sshd.key}"\nhost_key = "{host_key or sshd.fingerprint}"\n'
            f'path = "{self.root}"\ntimeout_s = {timeout_s}\n'
        )

    def plant(self, key: str, content: bytes) -> None:
        super().plant(key, content)
        for each in [self.root / key, *(self.root / key).parents]:
            if self.root in each.parents:
                os.chown(each, self.root.stat().st_uid, -1)

    @contextmanager
    def forbidden(self) -> Iterator[None]:
        self.root.chmod(0o555)
        yield
        self.root.chmod(0o755)

    def close(self) -> None:
        self.wire.close()
        self._tmp.cleanup()


@contextmanager
def not_as_root(place: Path) -> Iterator[None]:
    """Be somebody whom permissions bind. pytest's folders are 0700, so open the way first."""
    if os.geteuid() != 0:
        yield
        return
    closed = [p for p in place.parents if p.stat().st_mode & 0o005 != 0o005]
    modes = [p.stat().st_mode for p in closed]
    for folder in closed:
        folder.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        for folder, mode in zip(closed, modes, strict=True):
            folder.chmod(mode)


PLACES: dict[str, Callable[[pytest.FixtureRequest, Path], Place]] = {
    "file": lambda _request, tmp: Folder(tmp),
    "s3": lambda request, _tmp: Bucket(request.getfixturevalue("weed")),
    "s3-parts": lambda request, _tmp: Bucket(request.getfixturevalue("weed"), part_mb=5),
    "sftp": lambda request, _tmp: Remote(request.getfixturevalue("sshd")),
}
Putter = Callable[..., "subprocess.Popen[str]"]


@dataclass(frozen=True)
class Sample:
    """A finished file and the key that it belongs under."""

    path: Path
    content: bytes
    sha256: str
    key: str


def sample_of(path: Path, content: bytes, name: str = "clip-1-720p") -> Sample:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o644)
    sha256 = hashlib.sha256(content).hexdigest()
    return Sample(path, content, sha256, delivery.published_key("job-1", 1, name, sha256, ".mp4"))


Loaded = Callable[[str], delivery.Target]  # the target `there` of a TARGETS_FILE


def refusal(target: delivery.Target, sample: Sample) -> TargetError:
    with pytest.raises(TargetError) as caught:
        delivery.deliver(target, sample.path, sample.key, sample.sha256)
    return caught.value
