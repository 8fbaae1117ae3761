"""Does an OpenAI-compatible service do as an engine, and what if it misbehaves?"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipeline import settings
from pipeline.core.breaker import blamed
from pipeline.core.errors import AsrBadAnswer, AsrDown, AsrFailed, IronclipError, Kind, LeaseLost, SettingInvalid
from pipeline.media import asr
from pipeline.media.asr.http import Http

KEY = "sk-very-secret"
SAID = {
    "task": "transcribe",
    "language": "english",
    "duration": 2.0,
    "text": "Hello there. Goodbye!",
    "words": [
        {"word": "Hello", "start": 0.1, "end": 0.5},
        {"word": "there", "start": 0.5, "end": 0.9},
        {"word": "Goodbye", "start": 1.2, "end": 1.8},
    ],
}


@dataclass
class Asked:
    """One request as the service got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def part(self, name: str) -> str:
        found = re.search(rf'name="{re.escape(name)}"\r\n\r\n(.*?)\r\n--'.encode(), self.body, re.DOTALL)
        return found[1].decode() if found else ""


@dataclass
class Service:
    """A service like OpenAI's, that answers as it is told to."""

    status: int = 200
    answer: bytes = json.dumps(SAID).encode()
    headers: dict[str, str] = field(default_factory=dict)
    hangs: threading.Event | None = None  # no answer before this
    drips: bool = False
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        body = http.rfile.read(int(http.headers.get("Content-Length") or 0)) or _chunked(http)
        self.asked.append(Asked(http.command, http.path, dict(http.headers), body))
        if self.hangs is not None:
            self.hangs.wait(20)
        http.close_connection = True
        http.send_response(self.status)
        for name, value in self.headers.items():
            http.send_header(name, value)
        http.send_header("Content-Length", str(len(self.answer)))
        http.end_headers()
        if self.drips:
            while http.wfile.write(b" ") and not (self.hangs and self.hangs.is_set()):
                time.sleep(0.05)
        http.wfile.write(self.answer)


def _chunked(http: BaseHTTPRequestHandler) -> bytes:
    body = b""
    while "chunked" in http.headers.get("Transfer-Encoding", "") and (size := int(http.rfile.readline(), 16)):
        body += http.rfile.read(size)
        http.rfile.readline()
    return body


@pytest.fixture
def service() -> Iterator[Service]:
    it = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with suppress(OSError):  # whoever asked has hung up
                it.handle(self)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    it.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield it
    if it.hangs is not None:
        it.hangs.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    with wave.open(str(tmp_path / "s.wav"), "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", ""))
        sound.writeframes(b"\1\0" * 32000)
    return tmp_path / "s.wav"


def engine(service: Service, **more: Any) -> Http:
    return Http(service.url, KEY, **more)


def trouble(service: Service, wav: Path, **more: Any) -> IronclipError:
    with pytest.raises(IronclipError) as caught:
        engine(service, **more).transcribe(wav)
    return caught.value


def test_the_sound_goes_there_and_the_words_come_back(service: Service, wav: Path) -> None:
    said = engine(service, model="large-v3").transcribe(wav, language="en-GB")

    (asked,) = service.asked
    assert (asked.method, asked.path) == ("POST", "/v1/audio/transcriptions")
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    assert {name: asked.part(name) for name in ("model", "language", "response_format")} == {
        "model": "large-v3",
        "language": "en",
        "response_format": "verbose_json",
    }
    assert asked.part("timestamp_granularities[]") == "word"
    assert wav.read_bytes() in asked.body
    assert [(w.text, w.start_s, w.end_s) for w in said.words] == [
        ("Hello", 0.1, 0.5),
        ("there.", 0.5, 0.9),
        ("Goodbye!", 1.2, 1.8),
    ]
    assert [line.text for line in said.lines] == ["Hello there.", "Goodbye!"]
    assert (said.language, said.engine) == ("en", "http:large-v3")


def test_the_settings_choose_it(service: Service, wav: Path, env: Callable[..., None]) -> None:
    env(ASR_ENGINE="http", ASR_URL=f"{service.url}/", ASR_API_KEY=KEY)
    chosen = asr.engine(settings.current())

    chosen.transcribe(wav, language=None, check=lambda: None, on_progress=lambda *_: None)

    assert service.asked[0].part("model") == "whisper-1"
    assert service.asked[0].part("language") == ""


def test_it_is_no_engine_without_an_address(env: Callable[..., None]) -> None:
    env(ASR_ENGINE="http")
    with pytest.raises(SettingInvalid, match="ASR_URL"):
        asr.engine(settings.current())

    env(ASR_URL="ftp://asr.example.org")
    with pytest.raises(SettingInvalid, match="ASR_URL"):
        settings.current()


def test_words_inside_of_segments_are_found(service: Service, wav: Path) -> None:
    service.answer = json.dumps({"text": "Hi", "segments": [{"words": [SAID["words"][0]]}], "language": "ja"}).encode()

    said = engine(service).transcribe(wav)

    assert ([word.text for word in said.words], said.language) == (["Hello"], "ja")


def test_silence_is_an_answer(service: Service, wav: Path) -> None:
    service.answer = b'{"text": "", "words": [], "duration": 2.0}'

    assert engine(service).transcribe(wav).words == ()


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_service_that_has_no_time_is_down(service: Service, wav: Path, status: int) -> None:
    service.status, service.answer = status, b"try later"

    error = trouble(service, wav)

    assert isinstance(error, AsrDown)
    assert (error.kind, blamed(error)) == (Kind.DEFER, "asr:http")
    assert "try later" in error.message


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 415, 422])
def test_a_service_that_refuses_has_failed_for_good(service: Service, wav: Path, status: int) -> None:
    service.status, service.answer = status, f"no: {KEY} is wrong".encode()

    error = trouble(service, wav)

    assert isinstance(error, AsrFailed)
    assert (error.kind, blamed(error)) == (Kind.FAIL, None)
    assert str(status) in error.message
    assert KEY not in error.message


def test_the_key_follows_no_redirect(service: Service, wav: Path) -> None:
    service.status, service.headers = 307, {"Location": f"{service.url}/elsewhere"}

    assert isinstance(trouble(service, wav), AsrFailed)
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>welcome</html>",
        b"[]",
        b'{"text": "words without times"}',
        b'{"text": "x", "words": [{"word": "x"}]}',
        b'{"text": "x", "words": [{"word": "x", "start": "soon", "end": 1}]}',
        b'{"text": "x", "words": 7}',
        b"\xff\xfe",
    ],
)
def test_an_answer_that_is_no_transcript_is_tried_again(service: Service, wav: Path, answer: bytes) -> None:
    service.answer = answer

    error = trouble(service, wav)

    assert isinstance(error, AsrBadAnswer)
    assert (error.kind, blamed(error)) == (Kind.RETRY, "asr:http")


def test_an_answer_that_never_ends_is_cut_off(service: Service, wav: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.media.asr.http.LARGEST_ANSWER", 1000)
    service.answer = b" " * 100_000

    assert isinstance(trouble(service, wav), AsrBadAnswer)


def test_nobody_there_is_down() -> None:
    with pytest.raises(AsrDown) as caught:
        Http("http://127.0.0.1:9/v1").ping()

    assert caught.value.service == "asr:http"


@pytest.mark.parametrize("drips", [False, True])
def test_an_answer_that_takes_too_long_is_down(service: Service, wav: Path, drips: bool) -> None:
    service.hangs = threading.Event()
    if drips:
        service.hangs, service.drips = None, True

    error = trouble(service, wav, timeout_s=0.6)

    service.hangs = service.hangs or threading.Event()
    assert isinstance(error, AsrDown)


def test_a_lost_lease_hangs_up(service: Service, wav: Path) -> None:
    service.hangs = threading.Event()

    def lost() -> None:
        if service.asked:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        engine(service).transcribe(wav, check=lost)


@pytest.mark.parametrize(("status", "is_up"), [(200, True), (404, True), (401, True), (429, False), (503, False)])
def test_a_probe_asks_whether_it_answers(service: Service, status: int, is_up: bool) -> None:
    service.status = status

    if is_up:
        engine(service).ping()
    else:
        with pytest.raises(AsrDown):
            engine(service).ping()
    assert service.asked[0].path == "/v1/models"


def test_the_key_is_never_shown(
    service: Service, wav: Path, env: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    env(ASR_ENGINE="http", ASR_URL=service.url, ASR_API_KEY=KEY)
    service.status = 500

    with caplog.at_level(logging.DEBUG), pytest.raises(AsrDown):
        engine(service).transcribe(wav)

    assert KEY not in caplog.text
    assert KEY not in repr(settings.current())
    (shown,) = [each for each in settings.describe() if each.name == "ASR_API_KEY"]
    assert shown.value
    assert KEY not in shown.value
