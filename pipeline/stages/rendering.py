"""clip, for HLS: each rendition is made group by group, and a master playlist names what there is.

The grid of a clip is written down when it is first needed: whatever the settings are by then, renditions that are made
later have their segments where the others have theirs.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from pipeline.core import ladder
from pipeline.core.errors import NothingSucceeded
from pipeline.core.ladder import Grid
from pipeline.core.output import RENDITION, File, Output
from pipeline.media import hls, playlist
from pipeline.media.clip import end_of
from pipeline.media.ffmpeg import Progress
from pipeline.stages.context import Bundle, Context, Unit
from pipeline.stages.delivering import published
from pipeline.stages.making import Making

INIT = "init.mp4"
SOUND = "sound"
SOUND_TOLERANCE_S = 0.1  # packets of sound do not end where pictures do, and the first one is the encoder's delay


def make_rendition(making: Making) -> Bundle:
    """Every segment of a rendition, and the playlist that names them."""
    ctx, output, facts = making.ctx, making.output, making.facts
    assert facts.video is not None
    grid = _grid(making)
    width, height = ladder.size_for(output.quality or ladder.SOURCE, *facts.video.shown_size)
    bundles: list[Bundle] = []
    made = 0
    for first, count in grid.groups():
        group = hls.Group(grid, first, count, width, height)
        bundles.append(ctx.files_once(f"{output.name}-{group.number:05d}", _of_group(making, group)))
        made += len(grid.lengths(first, count))
        ctx.advanced(output, 100 * made / grid.segments, (made, grid.segments))
    files, segments = _joined(bundles)
    text = playlist.media(segments)
    playlist.check_media(text, {f.path: f.size for f in files}, grid.duration_s, float(1 / grid.fps) / 2)
    listed = _written(ctx, f"{output.name}-playlist", text, playlist.NAME)
    return Bundle(
        (*files, listed),
        {
            "mode": "encode",
            "reason": "segments begin with keyframes on a grid",
            "width": width,
            "height": height,
            "fps": str(grid.fps),
            "codec": bundles[0].facts["codec"],
            "duration_s": grid.duration_s,
            "video_packets": grid.pictures,
            **asdict(playlist.rates_of(segments)),
        },
    )


def make_master(making: Making) -> Bundle:
    """The clip's sound, and the playlist that names it and every rendition. NothingSucceeded if there is none."""
    ctx, output = making.ctx, making.output
    rungs = [o for o in ctx.outputs() if (o.kind, o.clip) == (RENDITION, output.clip) and o.files and not o.is_out]
    if not rungs:
        raise NothingSucceeded("No rendition of the clip was made.")
    files: list[File] = []
    sound, unit = None, None
    if making.facts.audio:
        unit = _sound(making)
        sound, files = _sound_segments(making, unit)
    renditions = [_rendition(ctx, rung) for rung in rungs]
    text = playlist.master(renditions, sound)
    playlist.check_master(text, [*(r.uri for r in renditions), *([sound.uri] if sound else [])])
    listed = _written(ctx, f"{output.name}-playlist", text, playlist.MASTER)
    told: dict[str, Any] = {"mode": "list", "renditions": [rung.name for rung in rungs]}
    if unit is not None:
        told["sound"] = asdict(unit.file)
    return Bundle((*files, listed), told)


# -- pictures --------------------------------------------------------------------------------------------------------


def _grid(making: Making) -> Grid:
    ctx, clip = making.ctx, making.clip
    assert making.facts.video is not None
    key = f"{clip.name}-grid"
    if ctx.record(key) is None:
        end_s = end_of(making.facts, clip.start_s, clip.end_s)
        grid = ladder.grid_for(
            clip.start_s,
            end_s,
            making.facts.video.steady_fps,
            ctx.settings.hls_segment_sec,
            ctx.settings.hls_group_segments,
        )
        ctx.remember(key, {**asdict(grid), "fps": str(grid.fps)})
    record = ctx.record(key)
    assert record is not None
    return Grid(**{**record, "fps": Fraction(record["fps"])})


def _of_group(making: Making, group: hls.Group) -> Callable[[Path], Mapping[str, Any]]:
    before_s = float(group.first / group.grid.fps)

    def make(folder: Path) -> Mapping[str, Any]:
        def on_progress(seen: Progress) -> None:
            making.at(before_s + seen.media_time_s, group.grid.duration_s)

        return hls.make_group(
            making.source,
            making.facts,
            group,
            folder,
            check=making.ctx.check,
            on_progress=on_progress,
            timeout_s=making.ctx.allowed_s,
            decode=making.ctx.settings.verify_decode,
        )

    return make


def _joined(bundles: Sequence[Bundle]) -> tuple[list[File], list[playlist.Segment]]:
    """All files of a stream under the names they get, each map once; and its segments in their order."""
    maps: dict[str, File] = {}
    files: list[File] = []
    segments: list[playlist.Segment] = []
    for bundle in bundles:
        head = next(f for f in bundle.files if f.path == INIT)
        name = INIT if not maps else f"init-{len(maps) + 1}.mp4"
        used = maps.setdefault(head.sha256, replace(head, path=name))
        pieces = [f for f in bundle.files if f.path != INIT]
        files += pieces
        segments += [
            playlist.Segment(piece.path, seconds, used.path, piece.size)
            for piece, seconds in zip(pieces, bundle.facts["seconds"], strict=True)
        ]
    return [*maps.values(), *files], segments


def _rendition(ctx: Context, rung: Output) -> playlist.Rendition:
    told = rung.facts
    return playlist.Rendition(
        uri=_uri(ctx, rung),
        rates=playlist.Rates(told["peak"], told["average"]),
        codec=told["codec"],
        width=told["width"],
        height=told["height"],
        fps=Fraction(told["fps"]),
    )


def _uri(ctx: Context, rung: Output) -> str:
    """Where a rendition's playlist lies, seen from the master's folder; it may be that of an earlier generation."""
    keys = [key for key, file in published(ctx, rung) if file.path == playlist.NAME]
    if rung.id in ctx.settled():
        keys = [f["key"] for d in ctx.deliveries() if d["output_id"] == rung.id for f in d["files"]]
    key = next(key for key in keys if posixpath.basename(key) == playlist.NAME)
    return posixpath.relpath(key, f"jobs/{ctx.job.id}/g{ctx.job.building}/master")


# -- sound -----------------------------------------------------------------------------------------------------------


def _sound(making: Making) -> Unit:
    ctx, clip, duration_s = making.ctx, making.clip, _grid(making).duration_s

    def make(work: Path) -> Mapping[str, Any]:
        def on_progress(seen: Progress) -> None:
            making.at(seen.media_time_s, duration_s)

        return hls.make_sound(
            making.source,
            making.facts,
            clip.start_s,
            duration_s,
            work,
            check=ctx.check,
            on_progress=on_progress,
            timeout_s=ctx.allowed_s,
            decode=ctx.settings.verify_decode,
        )

    return ctx.file_once(f"{clip.name}-sound", ".m4a", make)


def _sound_segments(making: Making, unit: Unit) -> tuple[playlist.Sound, list[File]]:
    ctx, track, grid = making.ctx, making.facts.audio[0], _grid(making)
    segment_s = float(grid.per_segment / grid.fps)
    bundle = ctx.files_once(
        f"{making.clip.name}-sound-segments",
        lambda folder: hls.split_sound(unit.path, segment_s, folder, check=ctx.check),
    )
    files, segments = _joined([bundle])
    text = playlist.media(segments)
    playlist.check_media(text, {f.path: f.size for f in files}, unit.facts["duration_s"], SOUND_TOLERANCE_S)
    listed = _written(ctx, f"{making.clip.name}-sound-playlist", text, playlist.NAME)
    sound = playlist.Sound(
        uri=f"{SOUND}/{playlist.NAME}",
        rates=playlist.rates_of(segments),
        codec=unit.facts["codec"],
        channels=2,
        language=playlist.language(track.language),
    )
    return sound, [replace(f, path=f"{SOUND}/{f.path}") for f in (*files, listed)]


def _written(ctx: Context, key: str, text: str, path: str) -> File:
    """A playlist as a file. Its unit carries what it says: when that changes, it is another unit."""

    def make(work: Path) -> Mapping[str, Any]:
        work.write_text(text, encoding="utf-8")
        return {}

    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return replace(ctx.file_once(f"{key}-{digest}", ".m3u8", make).file, path=path)
