"""How does a clip become an HLS rendition that a crash cannot ruin?

Pictures are encoded in groups of segments, each by a run of ffmpeg of its own that begins at an exact picture of the
grid. A group does not know of the others, so one that is made again is made the same. Sound is encoded in one run,
because an encoder cannot start in the middle without being heard; it is a stream of its own, shared by all renditions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from pipeline.core import ladder
from pipeline.core.errors import OutputInvalid
from pipeline.core.ladder import Grid
from pipeline.files import Check, go_on
from pipeline.media import boxes, ffmpeg, playlist, probe
from pipeline.media.clip import COPY_CONTAINER, ENCODE_AUDIO, ENCODE_VIDEO, MUX, demuxer, seek_to, sound_of
from pipeline.media.ffmpeg import OnProgress
from pipeline.media.opening import reading
from pipeline.media.verify import Expected, verify

LEAD_FRAMES = 2  # decoded before the first one that is wanted, so that the nearest is among them
TICKS_AT_LEAST = 10_000  # per second
DELAY_FRAMES = 2  # of x264 with its usual pyramid of B-frames
SPARE_FRAMES = 2  # the source's last picture may stand in for those that rounding has added
WORK = "-work"  # the files of a unit that is not finished

# The map has an edit list that takes the encoder's delay away, as that of ffmpeg's own HLS does.
FRAGMENTS = {"f": "mp4", "movflags": "+frag_keyframe+delay_moov+default_base_moof+skip_trailer"}
EXACT = {"map_metadata": -1, "map_chapters": -1, "fflags": "+bitexact"}


@dataclass(frozen=True)
class Group:
    """Some segments in a row: which pictures, and of which size."""

    grid: Grid
    first: int
    count: int
    width: int
    height: int

    @property
    def start_s(self) -> float:
        """Where in the source it begins."""
        return self.grid.start_s + float(self.first / self.grid.fps)

    @property
    def number(self) -> int:
        """The number of its first segment, from 0."""
        return self.first // self.grid.per_segment


def make_group(
    source: Path,
    facts: probe.Facts,
    group: Group,
    folder: Path,
    *,
    check: Check = go_on,
    on_progress: OnProgress = ffmpeg.ignore,
    timeout_s: float | None = None,
    decode: bool = False,
) -> dict[str, Any]:
    """Write the map and the segments of a group into the folder, verified; how long each is, and its codec."""
    whole = folder / "whole.mp4"
    graph = _pictures(source, facts, group, whole)
    ffmpeg.run_graph(graph, output=whole, cwd=folder, check=check, on_progress=on_progress, timeout_s=timeout_s)
    verify(whole, _expected(group), check, decode=decode)
    codec = codec_of(whole)
    head, fragments = boxes.split(whole.read_bytes())
    whole.unlink()
    lengths = group.grid.lengths(group.first, group.count)
    if len(fragments) != len(lengths):
        raise OutputInvalid(f"{len(fragments)} segments were made instead of {len(lengths)}.")
    tick = int(timescale(group.grid.fps) / group.grid.fps)
    # A group of one or two pictures has no order to change and no delay. With the same delay all groups share a map.
    late = DELAY_FRAMES * tick - boxes.delay_of(head)
    if late < 0:
        raise OutputInvalid(f"The encoder's delay is longer than {DELAY_FRAMES} pictures.")
    (folder / f"init{WORK}.mp4").write_bytes(boxes.delayed(head, DELAY_FRAMES * tick))
    ticks = group.first * tick + late
    for number, fragment in enumerate(fragments, start=group.number):
        check()
        (folder / f"{number:05d}{WORK}.m4s").write_bytes(boxes.moved(fragment, ticks, number + 1))
    return {"seconds": [float(n / group.grid.fps) for n in lengths], "codec": codec, "pictures": group.count}


def timescale(fps: Fraction) -> int:
    """Ticks per second in which every picture stands for a whole number of them."""
    return fps.numerator * math.ceil(TICKS_AT_LEAST / fps.numerator)


def _expected(group: Group) -> Expected:
    frame_s = float(1 / group.grid.fps)
    return Expected(
        duration_s=group.count * frame_s,
        tolerance_s=frame_s / 2,
        has_audio=False,
        width=group.width,
        height=group.height,
        pictures=group.count,
    )


def _pictures(source: Path, facts: probe.Facts, group: Group, out: Path) -> ffmpeg.Stream:
    assert facts.video is not None
    seek_s = _before(source, facts, group)
    seek = {"ss": f"{seek_s:.6f}"} if seek_s > 0 else {}
    opened = ffmpeg.opened(source, f=demuxer(facts), **seek)
    fps = group.grid.fps
    picture = opened[str(facts.video.index)].filter("setpts", f"PTS-{group.start_s - seek_s:.6f}/TB")
    # Whatever the source's times are, a picture for every place in the grid: the nearest one.
    picture = picture.filter("fps", fps=f"{fps.numerator}/{fps.denominator}", start_time=0)
    picture = picture.filter("tpad", stop=SPARE_FRAMES, stop_mode="clone")
    picture = picture.filter("scale", group.width, group.height).filter("setsar", 1)
    kbits = ladder.most_kbits(group.width, group.height, fps)
    options = {
        **{name: ENCODE_VIDEO[name] for name in ("c:v", "preset", "crf", "pix_fmt")},
        "g": group.grid.per_segment,
        "keyint_min": group.grid.per_segment,
        "sc_threshold": 0,
        "flags": "+cgop",
        "maxrate": f"{kbits}k",
        "bufsize": f"{2 * kbits}k",
        "fps_mode:v": "passthrough",
        "frames:v": group.count,
        "video_track_timescale": timescale(fps),
    }
    return ffmpeg.written([picture], out, **options, **FRAGMENTS, **EXACT)


def _before(source: Path, facts: probe.Facts, group: Group) -> float:
    """Where ffmpeg is sent to so that it meets the picture which is shown when the group begins."""
    assert facts.video is not None
    lead_s = LEAD_FRAMES * facts.video.frame_s
    if facts.video.has_variable_rate:
        shown = [p.at_s for p in probe.pictures(source, group.start_s, group.start_s) if p.at_s <= group.start_s]
        lead_s += group.start_s - max(shown, default=group.start_s)
    at_s = max(0.0, group.start_s - lead_s)
    return at_s if demuxer(facts) == COPY_CONTAINER else seek_to(source, facts, at_s)


# -- sound -----------------------------------------------------------------------------------------------------------


def make_sound(
    source: Path,
    facts: probe.Facts,
    start_s: float,
    duration_s: float,
    out: Path,
    *,
    check: Check = go_on,
    on_progress: OnProgress = ffmpeg.ignore,
    timeout_s: float | None = None,
    decode: bool = False,
) -> dict[str, Any]:
    """Encode the clip's sound, as long as its pictures, and verify it; its codec."""
    seek_s = seek_to(source, facts, start_s)
    seek = {"ss": f"{seek_s:.6f}"} if seek_s > 0 else {}
    opened = ffmpeg.opened(source, f=demuxer(facts), **seek)
    length = f"{duration_s:.6f}"
    heard = sound_of(opened, facts, f"{start_s - seek_s:.6f}", length)
    graph = ffmpeg.written([heard], out, t=length, **ENCODE_AUDIO, **MUX, fflags="+bitexact")
    ffmpeg.run_graph(graph, output=out, cwd=out.parent, check=check, on_progress=on_progress, timeout_s=timeout_s)
    measured = verify(out, Expected(duration_s, 0.05, has_video=False, has_audio=True), check, decode=decode)
    return {"codec": codec_of(out), "duration_s": measured.duration_s}


def split_sound(sound: Path, segment_s: float, folder: Path, *, check: Check = go_on) -> dict[str, Any]:
    """Cut encoded sound into a map and segments in the folder, near where the pictures' begin; how long each is."""
    listed = folder / "listed.m3u8"
    names = {"hls_segment_filename": str(folder / f"%05d{WORK}.m4s"), "hls_fmp4_init_filename": f"init{WORK}.mp4"}
    options = {"hls_time": f"{segment_s:.6f}", "hls_segment_type": "fmp4", "hls_playlist_type": "vod"}
    graph = ffmpeg.written(
        [ffmpeg.opened(sound, f="mov")["a:0"]],
        listed,
        # What is before 0 is the encoder's delay: the map says so, and players leave it out.
        **{"c": "copy", "f": "hls", "avoid_negative_ts": "disabled", **options, **names, **EXACT},
    )
    ffmpeg.run_graph(graph, output=listed, cwd=folder, check=check)
    seconds = [segment.seconds for segment in playlist.read(listed.read_text(encoding="utf-8")).segments]
    listed.unlink()
    return {"seconds": seconds}


def codec_of(path: Path) -> str:
    """What a playlist calls the codec of a file's only stream (RFC 6381), from the stream's own header."""
    with reading(path) as media:
        stream = media.streams[0]
        head = bytes(stream.codec_context.extradata or b"")
        if stream.type == "video" and stream.codec_context.name == "h264" and len(head) > 3 and head[0] == 1:
            return f"avc1.{head[1:4].hex()}"
        if stream.type == "audio" and stream.codec_context.name == "aac" and head:
            return f"mp4a.40.{head[0] >> 3}"
    raise OutputInvalid(f"{path.name} has no codec that a playlist can name.")


def total(facts: Sequence[Mapping[str, Any]]) -> list[float]:
    """The seconds of all segments of several groups."""
    return [float(s) for one in facts for s in one["seconds"]]
