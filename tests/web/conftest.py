"""What may a test in a browser count on? The real API with a real worker behind it, and a page that is logged in.

Without a chromium these tests are skipped, with the reason; with CI set they fail.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from pipeline.media import ffmpeg
from pipeline.media.sample import SPEECH
from pipeline.store.engine import Database
from tests.api.conftest import Api
from tests.cluster.system import System
from tests.needs import missing
from tests.web.visitor import Stack, Visitor

CHROMIUM = Path("/usr/bin/chromium")
ARGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
]

TOLD = {
    "API_RATE_PER_SEC": "1000",
    "API_BURST": "1000",
    "FLOWER_URL": "http://127.0.0.1:5555",
    "REAPER_INTERVAL_SEC": "3600",  # a test of the recovery button wants to come first
}


@pytest.fixture(scope="session")
def chromium() -> Path:
    if not CHROMIUM.exists():
        missing(f"there is no {CHROMIUM}; scripts/test-packages installs it")
    return CHROMIUM


# No longer than its file: Playwright keeps an event loop running in this thread, and other tests want their own.
@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(chromium), args=ARGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def stack(
    chromium: Path, tmp_path_factory: pytest.TempPathFactory, make_database: Callable[..., str]
) -> Iterator[Stack]:
    """API, worker and beat on a Redis and a database of the file's own. Its tests share them: look at your own jobs."""
    home = tmp_path_factory.mktemp("web")
    system = System(home / "home", make_database(), **TOLD)
    api = Api(system.env, home, Database(system.env["DATABASE_URL"]))
    try:
        system.worker(wait=False)
        system.beat(wait=False)
        api.start()
        sample = make_talk(home / "town-hall.mp4")
        for node in system.nodes:
            assert node.ready()
        yield Stack(api, system, sample)
    finally:
        if api.process.poll() is None:
            api.end()
        api.db.dispose()
        system.close()


def make_talk(path: Path) -> Path:
    """20 s of speech under a slow play of colours, with a keyframe every 2 s."""
    colours = "gradients=size=1280x720:rate=30:speed=0.01:c0=0x1b2a6b:c1=0x6c4bd8:c2=0xe58b6b:nb_colors=3:seed=7"
    encoded = ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "60", "-c:a", "aac"]
    made = ["-f", "lavfi", "-i", colours, "-i", str(SPEECH), *encoded, "-t", "20", "-movflags", "+faststart", str(path)]
    subprocess.run([ffmpeg.locate(), "-v", "error", *made], check=True)
    return path


@pytest.fixture
def visit(browser: Browser, stack: Stack) -> Iterator[Callable[..., Visitor]]:
    """Call it for somebody with a browser; whatever their console calls an error fails the test."""
    came: list[Visitor] = []

    def come(role: str | None = "admin", **how: object) -> Visitor:
        visitor = Visitor(browser, stack, **how)  # type: ignore[arg-type]
        came.append(visitor)
        if role is not None:
            visitor.log_in(role)
        return visitor

    yield come
    for visitor in came:
        visitor.close()
    for visitor in came:
        assert visitor.complaints == []


@pytest.fixture
def down(stack: Stack) -> Iterator[str]:
    """A service that is given up until the test is over: jobs wait for it at upload."""
    service = "target:local"
    with stack.http() as http:
        assert http.post(f"/api/breakers/{service}/trip").is_success
        yield service
        assert http.post(f"/api/breakers/{service}/reset").is_success
