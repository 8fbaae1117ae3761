"""How does a file go to a bucket? Whole if it is small, else in parts; a part that lies there is not sent again.

The server checks the hash of every piece, and shows nothing before the last of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline import crashpoints
from pipeline.crashpoints import At
from pipeline.delivery.attended import Step
from pipeline.delivery.s3bucket import Bucket, Taken
from pipeline.delivery.s3parts import Body, Piece, Plan
from pipeline.delivery.target import Meter
from pipeline.files import Check

SHA_NAME, COMPOSITE_NAME = "ironclip-sha256", "ironclip-composite"
CONTENT_TYPES = {
    "json": "application/json",
    "jpg": "image/jpeg",
    "m3u8": "application/vnd.apple.mpegurl",
    "m4s": "video/iso.segment",
    "mp4": "video/mp4",
    "png": "image/png",
    "srt": "application/x-subrip",
    "ts": "video/mp2t",
    "txt": "text/plain",
    "vtt": "text/vtt",
}


@dataclass(frozen=True)
class Sending:
    """One file on its way to one key."""

    bucket: Bucket
    fd: int
    plan: Plan
    key: str  # with the target's prefix
    check: Check
    meter: Meter

    def send(self, condition: Mapping[str, str]) -> None:
        """Put it there; Taken if the condition is that there is nothing, and there is."""
        if len(self.plan.pieces) == 1:
            self._whole(self.plan.pieces[0], condition)
        else:
            self._in_parts(condition)

    def _whole(self, piece: Piece, condition: Mapping[str, str]) -> None:
        def request(s3: Any, step: Step) -> None:
            with Body(self.fd, piece, step) as body:
                s3.put_object(
                    **self._place,
                    Body=body,
                    ChecksumSHA256=piece.checksum,
                    ContentType=self._content_type,
                    Metadata={SHA_NAME: self.plan.sha256},
                    **condition,
                )

        self.bucket.ask(self.key, request, self.check, self.meter.beyond(self.plan.size))

    def _in_parts(self, condition: Mapping[str, str]) -> None:
        upload, there = self._begun()
        passes = self.bucket.options.passes
        parts = []
        for piece in self.plan.pieces:
            etag = there.get(piece.number) or self._part(upload, piece)
            parts.append({"PartNumber": piece.number, "ETag": etag, "ChecksumSHA256": piece.checksum})
            self.meter(self.plan.size + passes * (piece.offset + piece.size))
        self.check()
        crashpoints.reached(At.PUT_HIDDEN)

        def request(s3: Any, _step: Step) -> None:
            s3.complete_multipart_upload(**self._place, UploadId=upload, MultipartUpload={"Parts": parts}, **condition)

        try:
            self.bucket.ask(self.key, request, self.check)
        except Taken:
            self.bucket.abort(self.key, upload)
            raise

    def _begun(self) -> tuple[str, dict[int, str]]:
        """The upload of this key that somebody began, with those of its parts that are good; else a new one."""
        pieces = {piece.number: piece for piece in self.plan.pieces}
        begun = [u for u in self.bucket.uploads(self.key, self.check).found if u["Key"] == self.key]
        for upload in [u["UploadId"] for u in sorted(begun, key=lambda u: u["Initiated"], reverse=True)]:
            listed = {part["PartNumber"]: part for part in self.bucket.parts(self.key, upload, self.check)}
            good = {n: str(listed[n]["ETag"]) for n in listed if n in pieces and pieces[n].lies_there(listed[n])}
            if good:
                return upload, good
        return self._begin(), {}

    def _begin(self) -> str:
        def request(s3: Any, _step: Step) -> str:
            made = s3.create_multipart_upload(
                **self._place,
                ChecksumAlgorithm="SHA256",
                ContentType=self._content_type,
                Metadata={SHA_NAME: self.plan.sha256, COMPOSITE_NAME: self.plan.composite},
            )
            return str(made["UploadId"])

        return self.bucket.ask(self.key, request, self.check)

    def _part(self, upload: str, piece: Piece) -> str:
        def request(s3: Any, step: Step) -> str:
            with Body(self.fd, piece, step) as body:
                sent = s3.upload_part(
                    **self._place,
                    UploadId=upload,
                    PartNumber=piece.number,
                    Body=body,
                    ChecksumSHA256=piece.checksum,
                )
            return str(sent["ETag"])

        base = self.plan.size + self.bucket.options.passes * piece.offset
        return self.bucket.ask(self.key, request, self.check, self.meter.beyond(base))

    @property
    def _place(self) -> dict[str, str]:
        return {"Bucket": self.bucket.name, "Key": self.key}

    @property
    def _content_type(self) -> str:
        return CONTENT_TYPES.get(self.key.rpartition(".")[2], "application/octet-stream")
