"""How is a bucket asked? Through boto3, with an end to every wait, and with errors that are ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache, lru_cache
from typing import Any, TypeVar

from pipeline.core.errors import TargetDown, TargetNotFound, TargetRefused, UploadFailed
from pipeline.delivery import s3errors
from pipeline.delivery.attended import Step, StoodStill, attended
from pipeline.delivery.options import Secret
from pipeline.files import Check, go_on

T = TypeVar("T")

_one_at_a_time = threading.Lock()

SEEN_S = 60.0  # so long a bucket that was there is believed to be there


@dataclass(frozen=True)
class Options:
    """What `[targets.<name>]` says of a bucket."""

    name: str
    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = "us-east-1"
    access_key: str = ""
    access: Secret | None = None
    secret: Secret | None = None
    path_style: bool = False
    part_bytes: int = 8 * 1024**2
    timeout_s: float = 30.0
    public_url: str = ""
    ca_file: str = ""

    @property
    def passes(self) -> int:
        """How often botocore reads what it sends: without TLS once more, to sign it."""
        return 2 if self.endpoint.startswith("http:") else 1


class NothingThere(UploadFailed):
    """There is no such object: an answer for whoever looks, a race with a remover for anybody else."""


class Taken(UploadFailed):
    """There is an object under the key already."""


class UploadGone(UploadFailed):
    """The upload in parts that we went on with has been completed or aborted by somebody else."""


class NotKnown(UploadFailed):
    """The server does not know what we asked for."""


class Bucket:
    """A bucket and whoever may use it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.name = options.bucket
        self._seen_at = -SEEN_S

    def client(self) -> Any:
        """A boto3 client that may do what the target may; the same one for the same secrets."""
        options = self.options
        access = options.access.read() if options.access else options.access_key
        return _client(options, access, options.secret.read() if options.secret else "")

    def key(self, key: str) -> str:
        """The key with the target's prefix."""
        return f"{self.options.prefix}/{key}" if self.options.prefix else key

    def ask(
        self, what: str, request: Callable[[Any, Step], T], check: Check = go_on, on_step: Step = lambda _done: None
    ) -> T:
        """What the request gives, made with a client; TargetError for whatever goes wrong at the target."""
        s3 = self.client()
        with self._errors(what):
            return attended(
                lambda step: request(s3, step),
                check=check,
                on_step=on_step,
                patience_s=self.options.timeout_s,
                hang_up=lambda: None,  # botocore's own limits end it soon
            )

    def must_exist(self, check: Check = go_on) -> None:
        """TargetNotFound if the bucket does not exist: some servers would make one of that name."""
        if time.monotonic() - self._seen_at < SEEN_S:
            return
        try:
            self.ask("the bucket", lambda s3, _: s3.head_bucket(Bucket=self.name), check)
        except NothingThere as exc:
            raise TargetNotFound(f"{self.options.name}: there is no bucket {self.name}.") from exc
        self._seen_at = time.monotonic()

    def uploads(self, prefix: str, check: Check = go_on) -> Listing:
        """The uploads in parts that nobody has completed yet, below a prefix."""
        return self._listed("list_multipart_uploads", "Uploads", prefix, check)

    def objects(self, prefix: str) -> Listing:
        """The objects below a prefix."""
        return self._listed("list_objects_v2", "Contents", prefix, go_on)

    def parts(self, key: str, upload: str, check: Check = go_on) -> list[dict[str, Any]]:
        """The parts that have arrived of an upload."""

        def request(s3: Any, step: Step) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            for page in s3.get_paginator("list_parts").paginate(Bucket=self.name, Key=key, UploadId=upload):
                found += page.get("Parts", [])
                step(len(found))
            return found

        return self.ask(key, request, check)

    def _listed(self, what: str, part: str, prefix: str, check: Check) -> Listing:
        def request(s3: Any, step: Step) -> Listing:
            found: list[dict[str, Any]] = []
            now = None
            for page in s3.get_paginator(what).paginate(Bucket=self.name, Prefix=prefix):
                found += page.get(part, [])
                now = now or parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
                step(len(found))
            assert now is not None
            return Listing(found, now)

        return self.ask(prefix, request, check)

    def delete(self, key: str) -> None:
        self.ask(key, lambda s3, _: s3.delete_object(Bucket=self.name, Key=key))

    def abort(self, key: str, upload: str) -> None:
        self.ask(key, lambda s3, _: s3.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload))

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        target = self.options.name
        try:
            yield
        except ClientError as exc:
            code, status = s3errors.code_of(exc), s3errors.status_of(exc)
            if status == 404 and code in ("404", "NoSuchKey"):
                raise NothingThere(f"{target}: {what} is not there.") from exc
            if code == "NoSuchUpload":
                raise UploadGone(f"{target}: {what}: somebody else has ended its upload.") from exc
            if status in (409, 412):
                raise Taken(f"{target}: {what} is there already.") from exc
            if status == 501:
                raise NotKnown(f"{target}: {what}: the server does not know {code}.") from exc
            raise s3errors.answered(target, what, exc) from exc
        except BotoCoreError as exc:
            raise s3errors.unanswered(target, what, exc) from exc
        except StoodStill as exc:
            waited = f"nothing moved for {self.options.timeout_s:g} s"
            raise TargetDown(f"{target}: {what}: {waited}.", service=f"target:{target}") from exc


@dataclass(frozen=True)
class Listing:
    """What lies there, and what the server's clock said meanwhile."""

    found: list[dict[str, Any]]
    now: datetime


@lru_cache(maxsize=32)
def _client(options: Options, access: str, secret: str) -> Any:
    try:
        import boto3  # noqa: F401 - to say so before anything is asked
        from botocore.config import Config
    except ImportError as exc:
        raise TargetRefused(f"{options.name}: S3 needs a package here: pip install 'ironclip[s3]'.") from exc
    with_key = {"aws_access_key_id": access, "aws_secret_access_key": secret} if secret else {}
    config = Config(
        # The second try is for a kept connection that the server has closed; the job's row does the rest.
        retries={"total_max_attempts": 2, "mode": "standard"},
        connect_timeout=min(10.0, options.timeout_s),
        read_timeout=options.timeout_s,
        s3={"addressing_style": "path" if options.path_style else "auto"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        tcp_keepalive=True,
    )
    with _one_at_a_time:  # boto3's sessions are not for several threads
        return _session().client(
            "s3",
            endpoint_url=options.endpoint or None,
            region_name=options.region,
            verify=options.ca_file or None,
            config=config,
            **with_key,
        )


@cache
def _session() -> Any:
    """One for all clients: it reads its large tables once."""
    import boto3

    return boto3.session.Session()
