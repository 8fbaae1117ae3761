"""How does a piece of a source become a clip?

By copying its packets when that gives what was asked for, else by encoding them anew. Copying is exact only where
the piece begins with a keyframe and ends where no stored picture still needs a later one; `plan_cut` looks at the
packets and says which it is, and why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pipeline.core import ladder
from pipeline.core.errors import SourceTooShort, SourceTruncated, SourceUnreadable
from pipeline.files import Check, go_on
from pipeline.media import ffmpeg, probe
from pipeline.media.ffmpeg import OnProgress, Stream
from pipeline.media.verify import Expected, Measured, verify

# What mp4 players take as it is, from the one container in which ffmpeg finds exactly the keyframe that is meant (in
# Matroska it begins up to a GOP earlier and hides that behind an edit list).
COPY_CONTAINER = "mov"
COPY_VIDEO = frozenset({"h264", "hevc", "av1"})
COPY_AUDIO = frozenset({"aac", "mp3", "ac3", "eac3"})

# crf 20 is hard to tell from the source; veryfast is the knee of x264's time against size on few cores. A keyframe
# every 2 s lets players seek and lets a later cut of the clip be a copy.
ENCODE_VIDEO: dict[str, Any] = {
    "c:v": "libx264",
    "preset": "veryfast",
    "crf": 20,
    "pix_fmt": "yuv420p",
    "force_key_frames": "expr:gte(t,n_forced*2)",
    "fps_mode:v": "vfr",
    "enc_time_base:v": "filter",  # the source's clock: pictures of a variable rate keep their times
}
ENCODE_AUDIO: dict[str, Any] = {"c:a": "aac", "b:a": "128k", "ar": 48000, "ac": 2}
SEEK_MARGIN_S = 2.0
SOUND_TOLERANCE_S = 0.05  # two packets of sound, where there is no picture
# No chapters or private tags of the source; the index in front, so that playing can start before the end is there.
MUX: dict[str, Any] = {"f": "mp4", "movflags": "+faststart", "map_metadata": -1, "map_chapters": -1}


@dataclass(frozen=True)
class Cut:
    """What will be done: `reason` says why a copy was or was not possible.

    Times are those of the file that comes out: for `precise=False` they are the keyframe's and the picture's that
    are really copied.
    """

    mode: Literal["copy", "encode"]
    reason: str
    start_s: float
    end_s: float
    width: int | None
    height: int | None
    tolerance_s: float  # one frame: the longest that may stand at its end
    pictures: int | None = None  # for a copy: how many are taken, in the order they are stored

    @property
    def duration_s(self) -> float:
        """How long the clip will be."""
        return self.end_s - self.start_s


def plan_cut(
    source: Path, facts: probe.Facts, start_s: float, end_s: float | None, quality: str = "source", precise: bool = True
) -> Cut:
    """Decide how to make a clip; an end past the source's is the source's. SourceTooShort if nothing is left."""
    video = facts.video
    end_s = end_of(facts, start_s, end_s)
    width, height = ladder.size_for(quality, *video.shown_size) if video else (None, None)
    obstacle = _why_not_copied(facts, quality)
    if obstacle is None and video is not None:
        copy = _plan_copy(source, video, start_s, end_s, precise)
        if isinstance(copy, Cut):
            return copy
        obstacle = copy
    tolerance_s = _frame_at(source, video, end_s) if video else SOUND_TOLERANCE_S
    return Cut("encode", obstacle or "there is no picture", start_s, end_s, width, height, tolerance_s)


def end_of(facts: probe.Facts, start_s: float, end_s: float | None) -> float:
    """Where a clip really ends: an end past the source's is the source's.

    SourceTooShort if nothing is left, SourceTruncated if the piece reaches into what the source claims and lacks.
    """
    video = facts.video
    # A stream of pictures may be shorter than the sound; the clip is as long as what can be seen.
    available_s = min(facts.duration_s, video.duration_s or facts.duration_s) if video else facts.duration_s
    if facts.claimed_s is not None and (end_s is None or end_s > available_s):
        raise SourceTruncated(f"The source claims {facts.claimed_s:.3f} s and breaks off at {available_s:.3f} s.")
    end_s = available_s if end_s is None else min(end_s, available_s)
    if end_s - start_s < (video.frame_s if video else 0.02) / 2:
        raise SourceTooShort(f"The clip begins at {start_s:g} s, but the source ends at {available_s:.3f} s.")
    return end_s


def _why_not_copied(facts: probe.Facts, quality: str) -> str | None:
    """The first reason, if any, for which the packets cannot go into an mp4 as they are."""
    if quality != ladder.SOURCE:
        return f"{quality} is another size"
    if facts.video is None:
        return "there is no picture"
    if demuxer(facts) != COPY_CONTAINER:
        return f"{demuxer(facts)} cannot be cut exactly at a keyframe"
    if facts.video.codec not in COPY_VIDEO:
        return f"{facts.video.codec} video does not belong in mp4"
    if facts.audio and facts.audio[0].codec not in COPY_AUDIO:
        return f"{facts.audio[0].codec} sound does not belong in mp4"
    return None


def _plan_copy(source: Path, video: probe.Video, start_s: float, end_s: float, precise: bool) -> Cut | str:
    """A copy that is right to a frame (or nearly, if not precise), or the reason why there is none."""
    packets = probe.pictures(source, start_s, end_s)
    if not packets:
        return "no keyframe was found"
    first_s, frame_s = packets[0].at_s, video.frame_s
    if precise and abs(first_s - start_s) > frame_s / 2:
        return f"the start is not on a keyframe (the last one is at {first_s:.3f} s)"
    count, last_s = _closed_end(packets, end_s, frame_s)
    if not count:
        return "its first pictures need earlier ones"
    if precise and abs(last_s - first_s - (end_s - start_s)) > frame_s:
        return f"the pictures stored up to the end belong together until {last_s:.3f} s"
    reason = "it begins with a keyframe" if precise else "keyframes are precise enough"
    return Cut("copy", reason, first_s, last_s, video.width, video.height, frame_s, count)


def _frame_at(source: Path, video: probe.Video, at_s: float) -> float:
    """How long the picture stands that is shown at this time: longer than most, where the clock leaps or varies."""
    shown = sorted(p.at_s for p in probe.pictures(source, at_s, at_s))
    return max([video.frame_s, *(later - earlier for earlier, later in pairwise(shown) if earlier <= at_s <= later)])


def _closed_end(packets: list[probe.Packet], end_s: float, frame_s: float) -> tuple[int, float]:
    """How many stored packets to take so that no shown picture is missing, and when they end, nearest to `end_s`.

    Pictures are stored in another order than they are shown. A stretch is closed when what it shows has no gap:
    when as many pictures were stored as fit between its first and its last.
    """
    first_s = packets[0].at_s
    best, best_end_s = 0, math.inf
    last_s = first_s
    earliest_open = _earliest_after(packets)
    for count, packet in enumerate(packets, start=1):
        if packet.at_s < first_s - frame_s / 2:
            return 0, 0.0
        last_s = max(last_s, packet.at_s + packet.duration_s)
        closed = earliest_open[count] >= last_s - frame_s / 2
        if closed and abs(last_s - end_s) < abs(best_end_s - end_s):
            best, best_end_s = count, last_s
    return best, best_end_s


def _earliest_after(packets: list[probe.Packet]) -> list[float]:
    """For each count of packets taken: when the earliest of those left would be shown."""
    earliest = [math.inf]
    for packet in reversed(packets):
        earliest.append(min(earliest[-1], packet.at_s))
    return earliest[::-1]


# -- making it -------------------------------------------------------------------------------------------------------


def make_clip(
    source: Path,
    facts: probe.Facts,
    cut: Cut,
    out_path: Path,
    *,
    check: Check = go_on,
    on_progress: OnProgress = ffmpeg.ignore,
    timeout_s: float | None = None,
    decode: bool = False,
) -> Measured:
    """Make the clip and verify it; what was measured is given back. The file is `out_path`, not yet published."""
    graph = _copied(source, facts, cut) if cut.mode == "copy" else _encoded(source, facts, cut)
    ffmpeg.run_graph(
        graph.output_to(out_path),
        output=out_path,
        cwd=out_path.parent,
        check=check,
        on_progress=on_progress,
        timeout_s=timeout_s,
    )
    return verify(out_path, expected(facts, cut), check, decode=decode)


def expected(facts: probe.Facts, cut: Cut) -> Expected:
    """What the finished clip must measure: right to one frame."""
    return Expected(
        duration_s=cut.duration_s,
        tolerance_s=cut.tolerance_s + 0.001,  # some containers round their timestamps to milliseconds
        has_video=facts.video is not None,
        has_audio=None if cut.mode == "copy" else facts.has_audio,  # a copy has the source's silences
        width=cut.width,
        height=cut.height,
        pictures=cut.pictures,
    )


@dataclass(frozen=True)
class _Graph:
    """Streams and options that wait for the name of their file."""

    streams: tuple[Stream, ...]
    options: dict[str, Any]

    def output_to(self, path: Path) -> Stream:
        return ffmpeg.written(self.streams, path, **self.options)


def _copied(source: Path, facts: probe.Facts, cut: Cut) -> _Graph:
    assert facts.video is not None
    # A microsecond up: a start that was rounded below its keyframe would begin with the one before.
    start = math.ceil(cut.start_s * 1e6) / 1e6
    opened = ffmpeg.opened(source, ss=f"{start:.6f}", f=demuxer(facts))
    streams = [opened[str(facts.video.index)]]
    options = {"c": "copy", "t": f"{cut.duration_s:.6f}", "frames:v": cut.pictures, **MUX}
    if facts.video.codec == "hevc":
        options["tag:v"] = "hvc1"  # the one that Apple's players know
    if facts.audio:
        streams.append(opened[str(facts.audio[0].index)])
    return _Graph(tuple(streams), options)


def _encoded(source: Path, facts: probe.Facts, cut: Cut) -> _Graph:
    if facts.video is None and not facts.audio:
        raise SourceUnreadable("The source has neither video nor audio.")
    seek_s = seek_to(source, facts, cut.start_s)
    # Not even to 0 when it need not seek: some demuxers land behind the first keyframe.
    seek = {"ss": f"{seek_s:.6f}"} if seek_s > 0 else {}
    opened = ffmpeg.opened(source, f=demuxer(facts), **seek)
    length = f"{cut.duration_s:.6f}"
    lead = f"{cut.start_s - seek_s:.6f}"
    options: dict[str, Any] = {"t": length, **MUX}
    streams = []
    if facts.video is not None:
        # The first picture is shown from the beginning, also when it came a part of a frame later. ffmpeg has turned
        # the pictures upright before the first filter sees them.
        picture = opened[str(facts.video.index)].filter("trim", start=lead)
        picture = picture.filter("setpts", f"if(eq(N,0),0,PTS-{lead}/TB)")
        streams.append(picture.filter("scale", cut.width, cut.height).filter("setsar", 1))
        options |= ENCODE_VIDEO
    if facts.audio:
        streams.append(sound_of(opened, facts, lead, length))
        options |= ENCODE_AUDIO
    return _Graph(tuple(streams), options)


def sound_of(opened: Stream, facts: probe.Facts, lead: str, length: str) -> Stream:
    """The first track from `lead` on. Silence fills gaps and a missing beginning or end: it stays with the picture."""
    sound = opened[str(facts.audio[0].index)].filter("atrim", start=lead).filter("asetpts", f"PTS-{lead}/TB")
    return sound.filter("aresample", **{"async": 1, "first_pts": 0}).filter("apad", whole_dur=length)


def demuxer(facts: probe.Facts) -> str:
    """Read the file as what the probe took it for, whatever its first bytes say by then."""
    return facts.container.split(",")[0]


def seek_to(source: Path, facts: probe.Facts, start_s: float) -> float:
    """Where ffmpeg is sent to before it decodes towards the start.

    With an index it finds the keyframe by itself. Without one it may land behind it and lose the first pictures, so
    it is sent to well before the keyframe that is needed.
    """
    if demuxer(facts) == COPY_CONTAINER or start_s <= SEEK_MARGIN_S:
        return start_s if demuxer(facts) == COPY_CONTAINER else 0.0
    if facts.video is None:
        return start_s - SEEK_MARGIN_S
    before = probe.keyframes(source, start_s, span_s=0.0)
    return max(0.0, before[0] - SEEK_MARGIN_S) if before else 0.0
