"""How is a media file opened without reading anything but that file?

With PyAV, in this process. Only containers that hold their own media are opened: a playlist or a concat list would make
us read other files and addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import av
import av.container
import av.error

from pipeline.core.errors import SourceUnreadable

# The demuxers that read one file and nothing else.
CONTAINERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpegts,mpeg,mpegvideo,avi,flv,asf,ogg,mxf,gxf,dv,ivf,nut,rm,swf,wtv,"
    "h264,hevc,m4v,obu,wav,w64,mp3,aac,ac3,eac3,flac,aiff,au,caf,amr"
)
READ_ONLY_THIS = {"protocol_whitelist": "file", "format_whitelist": CONTAINERS}


@contextmanager
def reading(path: Path) -> Iterator[av.container.InputContainer]:
    """The file, opened for demuxing. Whatever PyAV finds wrong with it is SourceUnreadable."""
    try:
        with av.open(f"file:{path}", options=READ_ONLY_THIS, metadata_errors="replace") as media:
            yield media
    except av.error.ArgumentError as exc:  # what libav says of a demuxer that is not on the list
        raise SourceUnreadable(f"{path.name} is a list of other files, or of a kind that is not read.") from exc
    except av.error.FFmpegError as exc:
        raise SourceUnreadable(f"{path.name} cannot be read as media: {exc.strerror or 'invalid data'}.") from exc
