"""Does one job become what was asked for, through real workers?"""

from __future__ import annotations

import hashlib
import json
from difflib import SequenceMatcher
from fractions import Fraction
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pipeline import submit
from pipeline.media import probe
from pipeline.media.sample import SPEECH_TEXT
from tests.cluster.system import System

FRAME_S = float(Fraction(1, 30))


def path_of(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def words_of(text: str) -> list[str]:
    return "".join(c for c in text.lower() if c.isalpha() or c.isspace()).split()


def word_errors(heard: list[str], said: list[str]) -> int:
    """How many words were not heard as they were said."""
    same = SequenceMatcher(None, heard, said, autojunk=False).get_matching_blocks()
    return len(said) - sum(block.size for block in same)


def test_a_submitted_job_becomes_the_clip_the_words_and_the_manifest_that_were_asked_for(
    warm: System, sample: Path
) -> None:
    asked = submit.apply_async(kwargs={"source": str(sample), "clips": [{"start": 0.1, "end": 7.8}]})

    told = asked.get(timeout=90)

    assert asked.state == "SUCCESS"
    assert told["outcome"] == "full"
    outputs = {output["name"]: output for output in told["outputs"]}
    clip = path_of(outputs["clip1-source"]["deliveries"][0]["files"][0]["url"])
    assert abs(probe.probe(clip).duration_s - 7.7) <= FRAME_S
    spoken = next(f for f in outputs["clip1-captions"]["deliveries"][0]["files"] if f["key"].endswith(".json"))
    heard = words_of(json.loads(path_of(spoken["url"]).read_text())["text"])
    assert word_errors(heard, words_of(SPEECH_TEXT.read_text())[: len(heard)]) <= len(heard) / 10, heard
    assert len(heard) > 12
    manifest = json.loads(path_of(told["manifest"]["local"]).read_text())
    listed = {path_of(file["url"]): file["sha256"] for entry in manifest["outputs"] for file in entry["files"]}
    assert sorted(path.suffix for path in listed) == [".json", ".mp4", ".srt", ".vtt"]
    assert {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in listed} == listed
    assert not (warm.scratch / "jobs" / asked.id).exists()
