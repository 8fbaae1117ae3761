"""Which buckets can sources be read from, and with whose key? Those of the s3 targets, each with its target's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.core.errors import SourceForbidden, TargetRefused
from pipeline.delivery.s3 import S3Target
from pipeline.delivery.target import Target
from pipeline.settings import Settings


class Buckets:
    """The buckets of these targets, as far as SOURCE_BUCKETS allows."""

    def __init__(self, targets: Mapping[str, Target], now: Settings) -> None:
        wanted = {name.strip() for name in now.source_buckets.split(",") if name.strip()}
        ours = {target.bucket: target for target in targets.values() if isinstance(target, S3Target)}
        self._owners = {bucket: target for bucket, target in ours.items() if bucket in wanted or not wanted}

    @property
    def names(self) -> set[str]:
        return set(self._owners)

    def client(self, bucket: str) -> Any:
        """The boto3 client that may read this bucket; SourceForbidden if there is none."""
        owner = self._owners.get(bucket)
        if owner is None:
            raise SourceForbidden(f"No s3 target lets us read the bucket {bucket[:80]} (TARGETS_FILE, SOURCE_BUCKETS).")
        try:
            return owner.client()
        except TargetRefused as exc:
            raise SourceForbidden(exc.message) from exc
