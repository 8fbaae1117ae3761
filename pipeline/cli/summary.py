"""What came out of a job, and where does it lie?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pipeline.cli import say, words
from pipeline.media import probe

Shown = Mapping[str, Any]


def demo(jobs: list[dict[str, Any]], seconds: float, *, as_json: bool) -> None:
    """The closing words of the demo."""
    results = [result(job) for job in jobs]
    if as_json:
        say.document({"jobs": results, "seconds": round(seconds, 2)})
        return
    say.line()
    if len(results) == 1:
        _one(results[0])
    else:
        say.table(
            ("JOB", "OUTCOME", "DURATION", "ASKED FOR", "FIRST WORDS"),
            [
                (words.short(r["id"]), r["outcome"], f"{r['duration_s']:g} s", f"{r['asked_s']:g} s", r["first_words"])
                for r in results
            ],
        )
        say.line()
        say.line(f"Files: {Path(results[0]['clip']).parents[2]}")
    say.line()
    say.line(f"{len(results)} {'job' if len(results) == 1 else 'jobs'} completed in {seconds:.1f} s.", "green")


def result(job: Shown) -> dict[str, Any]:
    """What a completed job of one clip made: measured where it was delivered, not copied from what we hoped for."""
    asked = job["request"]["clips"][0]
    asked_s = asked["end"] - asked["start"]
    files = dict(paths(job))
    clip = next(path for name, path in files.items() if name.endswith(".mp4"))
    measured_s, frame_s = measure(clip)
    return {
        "id": str(job["id"]),
        "outcome": job["outcome"],
        "clip": str(clip),
        "captions": {
            p.suffix[1:]: str(p) for name, p in files.items() if not name.endswith(".mp4") and name != "manifest"
        },
        "manifest": str(files["manifest"]),
        "asked_s": round(asked_s, 3),
        "duration_s": round(measured_s, 3),
        "frame_s": round(frame_s, 4),
        "is_right_to_one_frame": abs(measured_s - asked_s) <= frame_s + 1e-6,
        "first_words": next(iter(job["context"].get("asr", {}).get("first_words", {}).values()), ""),
        "seconds": round((job["finished_at"] - job["created_at"]).total_seconds(), 2),
    }


def paths(job: Shown) -> Iterator[tuple[str, Path]]:
    """Every delivered file that lies on this machine, the manifest last."""
    for output in job["outputs"]:
        for delivery in output["deliveries"]:
            for file in delivery["files"]:
                if path := local(file["url"]):
                    yield f"{output['name']}{path.suffix}", path
    for url in job["context"].get("finalize", {}).get("manifest", {}).values():
        if path := local(url):
            yield "manifest", path


def local(url: str) -> Path | None:
    """The path behind a file:// address; None for every other one."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def measure(path: Path) -> tuple[float, float]:
    """How long the pictures of a file last, and one of them."""
    pictures = probe.pictures(path, 0.0, float("inf"))
    return max(p.at_s + p.duration_s for p in pictures) - min(p.at_s for p in pictures), pictures[0].duration_s


def _one(made: Shown) -> None:
    verdict = "right to one frame" if made["is_right_to_one_frame"] else "NOT what was asked for"
    say.facts(
        [
            ("Clip", made["clip"]),
            *((f"Captions ({kind})", path) for kind, path in made["captions"].items()),
            ("Manifest", made["manifest"]),
            ("Duration", f"{made['duration_s']:.3f} s of {made['asked_s']:.3f} s asked for: {verdict}"),
            ("First words", f'"{made["first_words"]} ..."'),
            ("Job", f"{made['id']} ({made['outcome']}, {made['seconds']:.1f} s from queued to completed)"),
        ]
    )
