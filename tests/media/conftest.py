"""What may every media test count on? Small real videos, made once, and an http server that misbehaves on demand."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline import settings
from pipeline.media import ffmpeg
from pipeline.media.sample import make_sample

Handler = Callable[[BaseHTTPRequestHandler], None]


def run_ffmpeg(*arguments: str | Path) -> None:
    subprocess.run([ffmpeg.locate(), "-v", "error", "-y", *map(str, arguments)], check=True)


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Set settings by their environment names, for one test."""

    def use(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        settings.current.cache_clear()

    yield use
    monkeypatch.undo()
    settings.current.cache_clear()


@pytest.fixture(scope="session")
def media_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("media")


@pytest.fixture(scope="session")
def sample(media_dir: Path) -> Path:
    """30 s of 640x360 with speech, a keyframe every 2 s, no B-frames."""
    return make_sample(media_dir / "sample.mp4", size="640x360")


@pytest.fixture(scope="session")
def film(media_dir: Path) -> Path:
    """12 s at 30000/1001 with B-frames, a keyframe every 60 pictures, sound."""
    path = media_dir / "film.mp4"
    run_ffmpeg(
        *("-f", "lavfi", "-i", "testsrc2=size=320x240:rate=30000/1001", "-f", "lavfi", "-i", "sine", "-t", "12"),
        *("-c:v", "libx264", "-g", "60", "-sc_threshold", "0", "-c:a", "aac", "-movflags", "+faststart", path),
    )
    return path


@pytest.fixture(scope="session")
def silent(media_dir: Path) -> Path:
    """4 s of 321x241 in Matroska, without sound."""
    path = media_dir / "silent.mkv"
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=size=321x241:rate=25", "-t", "4", "-c:v", "libx264", path)
    return path


class Server:
    """An http server on a loopback address that answers with one function."""

    def __init__(self, host: str, answer: Handler) -> None:
        class _Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.asked.append(self.path)
                self.close_connection = True
                answer(self)

            def log_message(self, *_: object) -> None:
                pass

        server = self
        self.asked: list[str] = []
        self._http = ThreadingHTTPServer((host, 0), _Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self.url = f"http://{host}:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Start servers that end with the test."""
    running: list[Server] = []

    def start(answer: Handler, host: str = "127.0.0.1") -> Server:
        running.append(Server(host, answer))
        return running[-1]

    yield start
    for server in running:
        server.stop()
