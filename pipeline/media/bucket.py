"""How is a source fetched from a bucket (`s3://bucket/key`)?

With the client of the target whose bucket it is: whoever may write there has been given a key to it. The ETag stands
for the content: every request demands it, so that what changes meanwhile begins anew.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.core.errors import SourceDown, SourceForbidden, SourceTimeout, UpstreamFailure
from pipeline.files import Check
from pipeline.media.partial import Origin
from pipeline.media.transfer import CHUNK, Limits, OnBytes, Transfer, carry, meaning

ADDRESS = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/([^/].*)")
MAX_KEY_BYTES = 1024
UNREACHED = frozenset({"EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError", "SSLError"})
NO_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})

Client = Any  # boto3 has no types


def parts_of(source: str) -> tuple[str, str] | None:
    """Bucket and key, or None if this is no such address."""
    match = ADDRESS.fullmatch(source)
    if match is None or len(match[2].encode()) > MAX_KEY_BYTES:
        return None
    return match[1], match[2]


def download(
    source: str,
    client: Client,
    into: Path,
    limits: Limits,
    *,
    check: Check,
    on_progress: OnBytes,
    earlier: Iterable[Path] = (),
) -> Path:
    """Fetch the object into this file. `earlier`: folders in which dead leases may have left the beginning of it."""
    parts = parts_of(source)
    if parts is None:
        raise SourceForbidden("The source's address cannot be read.")
    transfer = _Object(client, *parts, into.with_name(into.name + ".part"), limits)
    return carry(transfer, into, check=check, on_progress=on_progress, earlier=earlier)


class _Object(Transfer):
    """One object of a bucket. The bucket stands for its host."""

    def __init__(self, client: Client, bucket: str, key: str, part: Path, limits: Limits) -> None:
        super().__init__(bucket, part, limits)
        self._client = client
        self._object = {"Bucket": bucket, "Key": key}

    def fetch_once(self) -> None:
        with self._translated():
            there = self._client.head_object(**self._object)
            self.total = int(there["ContentLength"])
            self.limits.hold(self.total)
            origin = Origin(self._place(), str(there["ETag"]), self.total)
            is_same = self.part.origin == origin and self.part.start > 0
            rest = {"Range": f"bytes={self.part.start}-"} if is_same else {}
            body = self._client.get_object(**self._object, IfMatch=origin.mark, **rest)["Body"]
            try:
                self.save(body.iter_chunks(CHUNK), self.part.continued() if is_same else self.part.begun(origin))
            finally:
                body.close()

    def _place(self) -> str:
        return hashlib.sha256("s3://{Bucket}/{Key}".format(**self._object).encode()).hexdigest()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

        try:
            yield
        except ClientError as exc:
            status = int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            if status in (412, 416):
                self.part.forget()
                raise UpstreamFailure(f"The source in {self.host} changed while it was fetched.") from exc
            raise meaning(status, self.host) from exc
        except (BotoCoreError, HTTPClientError) as exc:
            raise self._unanswered(type(exc).__name__) from exc

    def _unanswered(self, name: str) -> Exception:
        if name in NO_CREDENTIALS:
            return SourceForbidden(f"There are no credentials for the bucket {self.host}.")
        if name in UNREACHED:
            return SourceDown(f"The bucket {self.host} cannot be reached.", service=self.service)
        if name == "ReadTimeoutError":
            return SourceTimeout(f"The bucket {self.host} fell silent.", service=self.service)
        return UpstreamFailure(f"The bucket {self.host} broke off the transfer.", service=self.service)
