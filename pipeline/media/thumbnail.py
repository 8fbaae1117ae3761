"""Which picture stands for a clip? One that is not black, and like its neighbours rather than a flash or a fade."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import av.error

from pipeline.core import ladder
from pipeline.core.errors import OutputEmpty, OutputInvalid, SourceUnreadable
from pipeline.files import Check, go_on
from pipeline.media import ffmpeg, probe
from pipeline.media.clip import demuxer, seek_to

QUALITY = "720p"  # no larger: it is shown before anything plays
PLACES = (0.1, 0.3, 0.5, 0.7, 0.9, 0.0)  # of the clip, in the order in which they are tried
LOOK_AT = 24  # pictures at each place
MOSTLY_BLACK = 90  # per cent of a picture's points
JPEG: dict[str, Any] = {"f": "mjpeg", "c:v": "mjpeg", "q:v": 3, "pix_fmt": "yuvj420p", "frames:v": 1}


def make_thumbnail(
    source: Path,
    facts: probe.Facts,
    start_s: float,
    end_s: float,
    out: Path,
    *,
    check: Check = go_on,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Write a JPEG of the clip's first good picture; of any picture, if all that were looked at are black."""
    if facts.video is None:
        raise SourceUnreadable("There is no picture to show.")
    width, height = ladder.size_for(QUALITY, *facts.video.shown_size)
    places = [start_s + share * (end_s - start_s) for share in PLACES]
    for at_s, not_black in [*((at_s, True) for at_s in places), *((at_s, False) for at_s in reversed(places))]:
        check()
        graph = _picture(source, facts, at_s, end_s, (width, height), out, not_black)
        try:
            ffmpeg.run_graph(graph, output=out, cwd=out.parent, check=check, timeout_s=timeout_s)
        except OutputEmpty:
            continue
        if _size(out) != (width, height):
            raise OutputInvalid(f"{out.name} is not {width}x{height}.")
        return {"mode": "picture", "width": width, "height": height, "at_s": round(at_s, 3), "is_black": not not_black}
    raise SourceUnreadable("No picture of the clip can be decoded.")


def _picture(
    source: Path,
    facts: probe.Facts,
    at_s: float,
    end_s: float,
    size: Sequence[int],
    out: Path,
    not_black: bool,
) -> ffmpeg.Stream:
    assert facts.video is not None
    seek_s = seek_to(source, facts, at_s)
    seek = {"ss": f"{seek_s:.6f}"} if seek_s > 0 else {}
    picture = ffmpeg.opened(source, f=demuxer(facts), **seek)[str(facts.video.index)]
    picture = picture.filter("trim", start=f"{at_s - seek_s:.6f}", end=f"{max(end_s, at_s + 0.001) - seek_s:.6f}")
    picture = picture.filter("trim", end_frame=LOOK_AT)
    if not_black:
        black = "lavfi.blackframe.pblack"
        picture = picture.filter("blackframe", amount=0)
        picture = picture.filter("metadata", mode="select", key=black, value=MOSTLY_BLACK, function="less")
        picture = picture.filter("thumbnail", n=LOOK_AT)
    picture = picture.filter("scale", *size, out_range="full").filter("setsar", 1)
    return ffmpeg.written([picture], out, **JPEG, map_metadata=-1, fflags="+bitexact")


def _size(path: Path) -> tuple[int, int]:
    """What the JPEG decodes to; OutputInvalid if it does not."""
    try:
        decoder = av.CodecContext.create("mjpeg", "r")
        frames = decoder.decode(av.Packet(path.read_bytes()))
    except av.error.FFmpegError as exc:
        raise OutputInvalid(f"{path.name} cannot be read back: {exc}") from exc
    if not frames:
        raise OutputInvalid(f"{path.name} shows nothing.")
    return frames[0].width, frames[0].height
