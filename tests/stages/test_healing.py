"""What is done about a file that is gone? It is made again, from where it was made."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.core.errors import BadRequest
from pipeline.core.job import Stage
from tests.stages.conftest import Runner


def test_an_object_that_vanished_from_its_target_is_delivered_again(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent)
    runner.until(job, Stage.FINALIZE)
    (clip,) = runner.objects()
    content = clip.read_bytes()
    clip.unlink()

    shown = runner.finish(job)

    assert shown["outcome"] == "full"
    assert clip.read_bytes() == content
    assert [(e["from"], e["to"]) for e in runner.events(job, "rewound")] == [("finalize", "upload")]
    assert runner.claims(job) == ["resolve", "clip", "upload", "finalize", "upload", "finalize"]


def test_an_object_that_was_damaged_at_its_target_is_replaced(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent)
    runner.until(job, Stage.FINALIZE)
    (clip,) = runner.objects()
    content = clip.read_bytes()
    clip.write_bytes(content[:-1])

    shown = runner.finish(job)

    assert shown["outcome"] == "full"
    assert clip.read_bytes() == content


def test_a_clip_that_is_gone_from_scratch_and_target_is_made_again(runner: Runner, silent: Path) -> None:
    job = runner.submit(silent)
    runner.until(job, Stage.FINALIZE)
    shutil.rmtree(runner.output)
    shutil.rmtree(runner.scratch)

    shown = runner.finish(job)

    assert shown["outcome"] == "full"
    assert sorted(path.suffix for path in runner.objects()) == [".json", ".mp4"]
    assert [(e["from"], e["to"]) for e in runner.events(job, "rewound")] == [
        ("finalize", "upload"),
        ("upload", "clip"),
    ]


@pytest.fixture
def http(silent: Path) -> Iterator[str]:
    """The silent source at an address of this machine."""
    handler = partial(_Quiet, directory=str(silent.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/{silent.name}"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_a_source_on_an_allowed_private_host_is_fetched_and_clipped(
    runner: Runner, use: Callable[..., None], http: str
) -> None:
    use(SOURCE_ALLOW_HOSTS="127.0.0.1")
    job = runner.submit(http)

    shown = runner.finish(job)

    assert shown["outcome"] == "full"
    assert shown["context"]["resolve"]["duration_s"] == pytest.approx(4, abs=0.05)
    assert not (runner.scratch / "jobs" / str(job)).exists()


def test_a_download_that_is_gone_from_scratch_is_fetched_again(
    runner: Runner, use: Callable[..., None], http: str
) -> None:
    use(SOURCE_ALLOW_HOSTS="127.0.0.1")
    job = runner.submit(http)
    runner.until(job, Stage.CLIP)
    shutil.rmtree(runner.scratch)

    shown = runner.finish(job)

    assert shown["outcome"] == "full"
    assert runner.claims(job) == ["resolve", "clip", "upload", "finalize"]


def test_a_source_on_a_private_host_is_refused_before_there_is_a_row(runner: Runner, http: str) -> None:
    with pytest.raises(BadRequest) as refused:
        runner.submit(http)

    assert refused.value.reason == "SOURCE_FORBIDDEN"
