"""How does a file get into a bucket so that nobody ever sees half of it?

S3 shows an object when all of it has arrived and its SHA-256 is the one that we announced; until then there is
nothing. What lies there is known by the checksum that the server keeps; where it keeps none, the object is read.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from pipeline.core.errors import ScratchLost, UploadFailed
from pipeline.delivery.attended import Step
from pipeline.delivery.options import Table
from pipeline.delivery.s3bucket import Bucket, NothingThere, NotKnown, Options, Taken, UploadGone
from pipeline.delivery.s3parts import STEP_BYTES, planned
from pipeline.delivery.s3send import COMPOSITE_NAME, SHA_NAME, Sending
from pipeline.delivery.target import (
    SHA256,
    Meter,
    Progress,
    Stored,
    Tidied,
    key_parts,
    opened_source,
    parts_for,
    unseen,
)
from pipeline.files import Check, go_on, safe_parts

MIB = 1024**2


class S3Target:
    """A bucket of any server that speaks S3 and checks SHA-256."""

    def __init__(self, options: Options) -> None:
        self.name = options.name
        self.options = options
        self._bucket = Bucket(options)
        self._knows_conditions = True  # until the server says otherwise

    @property
    def bucket(self) -> str:
        return self.options.bucket

    def client(self) -> Any:
        """A boto3 client that may do what this target may. Its errors are botocore's."""
        return self._bucket.client()

    def head(self, key: str, *, check: Check = go_on, on_progress: Progress = unseen) -> Stored | None:
        """The true size and hash of what lies under the key; None when nothing does."""
        key_parts(key)
        check()
        full = self._bucket.key(key)

        def request(s3: Any, _step: Step) -> dict[str, Any]:
            seen: dict[str, Any] = s3.head_object(Bucket=self.bucket, Key=full, ChecksumMode="ENABLED")
            return seen

        try:
            seen = self._bucket.ask(full, request, check)
        except NothingThere:
            self._bucket.must_exist(check)
            return None
        return _told(seen) or self._read(full, seen["ContentLength"], check, on_progress)

    def put(self, path: Path, key: str, sha256: str, *, check: Check = go_on, on_progress: Progress = unseen) -> Stored:
        """Put the file under the key: whole, durable and verified, or not at all.

        What a put that was stopped has sent in parts stays, unseen, for the next one.
        """
        parts_for(key, sha256)
        with opened_source(path) as fd:
            meter = Meter(on_progress, path.stat().st_size * (1 + self.options.passes))
            plan = planned(fd, self.options.part_bytes, check, meter)
            if plan.sha256 != sha256:
                raise ScratchLost(f"{path.name} is no longer the file that was made.")
            self._bucket.must_exist(check)
            self._send(Sending(self._bucket, fd, plan, self._bucket.key(key), check, meter), key)
        stored = self.head(key, check=check)
        if stored != Stored(plan.size, sha256):
            raise UploadFailed(f"{self.name}: {key}: what was stored is not what was sent.")
        return stored

    def _send(self, sending: Sending, key: str) -> None:
        """Unless somebody else was quicker. What lies there and is something else is damaged, and replaced."""
        for condition in ({"IfNoneMatch": "*"}, {}):
            if condition and not self._knows_conditions:
                continue
            try:
                return sending.send(condition)
            except NotKnown:
                self._knows_conditions = False
            except (Taken, UploadGone):
                if self.head(key, check=sending.check) == Stored(sending.plan.size, sending.plan.sha256):
                    return None
        raise UploadFailed(f"{self.name}: {key}: others put it at the same time.")

    def url(self, key: str) -> str:
        """Where a person finds the file."""
        key_parts(key)
        return f"{self.options.public_url or f's3://{self.bucket}'}/{self._bucket.key(key)}"

    def signed_url(self, key: str, life_s: float) -> str:
        """Where whoever has this address gets the file, for a while. Asks nobody."""
        key_parts(key)
        where = {"Bucket": self.bucket, "Key": self._bucket.key(key)}
        return str(self.client().generate_presigned_url("get_object", Params=where, ExpiresIn=max(1, int(life_s))))

    def delete(self, key: str) -> None:
        """Remove what lies under the key, if anything does."""
        key_parts(key)
        self._bucket.delete(self._bucket.key(key))

    def tidy(self, folder: str, keep: Collection[str], older_than: timedelta) -> Tidied:
        """Remove whatever below the folder is none of the keys in `keep`, and what was begun there and never ended."""
        key_parts(folder)
        prefix = self._bucket.key(folder) + "/"
        kept = {self._bucket.key(key) for key in keep}
        begun, lying = self._bucket.uploads(prefix), self._bucket.objects(prefix)
        stale = [thing for thing in begun.found if begun.now - thing["Initiated"] >= older_than]
        for upload in stale:
            self._bucket.abort(upload["Key"], upload["UploadId"])
        others = [thing for thing in lying.found if thing["Key"] not in kept]
        gone = [thing["Key"] for thing in others if lying.now - thing["LastModified"] >= older_than]
        for full in gone:
            self._bucket.delete(full)
        removed = len(stale) + len(gone)
        return Tidied(removed, len(begun.found) + len(others) - removed)

    def _read(self, full: str, size: int, check: Check, on_progress: Progress) -> Stored:
        """What lies there, byte by byte."""

        def request(s3: Any, step: Step) -> Stored:
            body = s3.get_object(Bucket=self.bucket, Key=full)["Body"]
            digest, done = hashlib.sha256(), 0
            while chunk := body.read(STEP_BYTES):
                digest.update(chunk)
                done += len(chunk)
                step(done)
            return Stored(done, digest.hexdigest())

        return self._bucket.ask(full, request, check, Meter(on_progress, size))


def _told(seen: Mapping[str, Any]) -> Stored | None:
    """What the server itself knows of an object, by a checksum that it has made or checked; None if by none."""
    size, about = seen["ContentLength"], seen.get("Metadata", {})
    checksum, _, parts = seen.get("ChecksumSHA256", "").partition("-")
    if not checksum:
        return None
    if not parts and "-" not in seen.get("ETag", ""):
        return Stored(size, base64.b64decode(checksum).hex())
    # The server checked each part. That these parts make up that file was written down when both were hashed.
    if checksum == about.get(COMPOSITE_NAME, "").partition("-")[0] and SHA256.fullmatch(about.get(SHA_NAME, "")):
        return Stored(size, about[SHA_NAME])
    return None


def from_options(name: str, options: Mapping[str, Any]) -> S3Target:
    """The target of a `[targets.<name>]` table, or SettingInvalid."""
    table = Table(name, "s3", options)
    endpoint, public = table.address("endpoint"), table.address("public_url")
    prefix = table.text("prefix", "").strip("/")
    try:
        safe_parts(prefix or "none")
    except ValueError as exc:
        raise table.wrong("needs a 'prefix' of plain names with '/' between them") from exc
    access_key, access, secret = table.text("access_key", ""), table.secret("access_key"), table.secret("secret")
    if bool(access_key or access) != bool(secret) or (access_key and access):
        raise table.wrong("needs one of 'access_key', 'access_key_env' or 'access_key_file' for a secret, or neither")
    read = Options(
        name=name,
        bucket=table.text("bucket"),
        prefix=prefix,
        endpoint=endpoint,
        region=table.text("region", "us-east-1"),
        access_key=access_key,
        access=access,
        secret=secret,
        path_style=table.flag("path_style", bool(endpoint)),
        part_bytes=int(table.number("part_mb", 8, 5, 5000) * MIB),
        timeout_s=table.number("timeout_s", 30, 1, 600),
        public_url=public,
        ca_file=table.path("ca_file"),
    )
    table.close()
    return S3Target(read)
