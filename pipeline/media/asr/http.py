"""How does a service on the network hear words? By the interface that OpenAI's servers and many others share.

The sound is posted to `ASR_URL/audio/transcriptions`, the words come back with their times (`verbose_json`). The
operator chose the address, so it may be in his own network. His key goes to that address and nowhere else: no redirect
is followed, and no message shows it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.errors import AsrBadAnswer, AsrDown, AsrFailed, IronclipError
from pipeline.files import Check, go_on
from pipeline.media.captions import Transcript, Word, base_language, transcript

if TYPE_CHECKING:
    import httpx

SERVICE = "asr:http"
MODEL = "whisper-1"
CONNECT_S = 10.0
CHECK_EVERY_S = 0.25
LARGEST_ANSWER = 32 * 1024 * 1024
EVIDENCE_CHARS = 300
BUSY = (408, 425, 429)  # beside 5xx: come back later
# Some servers name the language in English. These matter for joining words; the most common ones stand with them.
CODES = {
    "arabic": "ar",
    "cantonese": "yue",
    "chinese": "zh",
    "english": "en",
    "french": "fr",
    "german": "de",
    "japanese": "ja",
    "khmer": "km",
    "lao": "lo",
    "myanmar": "my",
    "portuguese": "pt",
    "russian": "ru",
    "spanish": "es",
    "thai": "th",
}


def _nobody(_done_s: float, _total_s: float) -> None:
    """Nobody wants to know."""


class Http:
    """A transcriber behind an address."""

    def __init__(self, url: str, key: str = "", model: str = "", timeout_s: float = 300.0) -> None:
        self._url, self._key, self._model, self._timeout_s = url.rstrip("/"), key, model or MODEL, timeout_s

    @property
    def name(self) -> str:
        """The engine and its model; whose server it is stays with the operator."""
        return f"http:{self._model}"

    def ping(self) -> None:
        """AsrDown if the service cannot be reached or has no time."""
        self._ask("GET", "/models", go_on, lambda answer: answer.status_code >= 500 or answer.status_code in BUSY)

    def must_know(self, language: str | None) -> None:
        """Only the service can say which languages it knows."""

    def transcribe(
        self,
        audio_path: Path,
        *,
        language: str | None = None,
        check: Check = go_on,
        on_progress: Callable[[float, float], None] = _nobody,
    ) -> Transcript:
        """The words of a wav file, in one answer; `check` is asked while it is waited for."""
        check()
        fields = {"model": self._model, "response_format": "verbose_json", "timestamp_granularities[]": "word"}
        wanted = base_language(language)
        if wanted is not None:
            fields["language"] = wanted
        with audio_path.open("rb") as sound:
            files = {"file": ("sound.wav", sound, "audio/wav")}
            told = self._ask("POST", "/audio/transcriptions", check, lambda _: True, data=fields, files=files)
        spoken = self._read(told, wanted)
        on_progress(spoken.duration_s, spoken.duration_s)
        return spoken

    # -- the answer --------------------------------------------------------------------------------------------------

    def _read(self, told: bytes, wanted: str | None) -> Transcript:
        try:
            data = json.loads(told)
            words = [Word(float(w["start"]), float(w["end"]), str(w["word"])) for w in _said(data)]
            duration_s = float(data.get("duration") or max((w.end_s for w in words), default=0.0))
            named = str(data.get("language") or "").lower()
            text = str(data.get("text") or "")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
            raise AsrBadAnswer("The answer is no transcript with words and times.", service=SERVICE) from exc
        if text.strip() and not words:
            raise AsrBadAnswer("The answer has a text and no times of its words.", service=SERVICE)
        language = wanted or CODES.get(named, named) or "und"
        return transcript(_marked(words, text), language=language, engine=self.name, duration_s=duration_s)

    # -- the question ------------------------------------------------------------------------------------------------

    def _ask(
        self, method: str, path: str, check: Check, is_bad: Callable[[httpx.Response], bool], **content: Any
    ) -> bytes:
        """The body of the answer. The asking is done by a thread of its own, so that `check` can hang up at any time.

        An answer other than 200 that `is_bad` becomes an error.
        """
        import httpx

        limits = httpx.Timeout(self._timeout_s, connect=min(CONNECT_S, self._timeout_s))
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        asked = _Asked()
        with httpx.Client(timeout=limits, headers=headers, follow_redirects=False) as client:

            def ask() -> None:
                with client.stream(method, self._url + path, **content) as answer:
                    body = _bounded(answer)
                    if answer.status_code != 200 and is_bad(answer):
                        raise self._refusal(answer.status_code, body)
                    asked.body = body

            asked.begin(ask)
            latest = time.monotonic() + self._timeout_s
            while not asked.ended(CHECK_EVERY_S):
                check()  # whatever it raises closes the client, and with it the connection
                if time.monotonic() > latest:  # each byte may come in time, and the whole never
                    raise AsrDown("The service did not answer in time.", service=SERVICE)
        return self._answer(asked)

    def _answer(self, asked: _Asked) -> bytes:
        import httpx

        match asked.error:
            case None:
                return asked.body
            case IronclipError():
                raise asked.error
            case httpx.TimeoutException():
                raise AsrDown("The service did not answer in time.", service=SERVICE) from asked.error
            case httpx.TransportError():
                raise AsrDown("The service cannot be reached.", service=SERVICE) from asked.error
            case httpx.HTTPError() | httpx.InvalidURL() | OSError():
                raise AsrFailed(f"The service could not be asked ({type(asked.error).__name__}).") from asked.error
            case _:
                raise asked.error

    def _refusal(self, status: int, body: bytes) -> IronclipError:
        said = " ".join(body[:4000].decode("utf-8", "replace").split())
        shown = (said.replace(self._key, "***") if self._key else said)[:EVIDENCE_CHARS]
        message = f"The service answered {status}{f': {shown}' if shown else ''}"
        if status >= 500 or status in BUSY:
            return AsrDown(message, service=SERVICE)
        return AsrFailed(message)


class _Asked:
    """A question under way in a thread, and what became of it."""

    def __init__(self) -> None:
        self.body = b""
        self.error: BaseException | None = None
        self._done = threading.Event()

    def begin(self, ask: Callable[[], None]) -> None:
        threading.Thread(target=self._run, args=(ask,), name="asr", daemon=True).start()

    def ended(self, within_s: float) -> bool:
        return self._done.wait(within_s)

    def _run(self, ask: Callable[[], None]) -> None:
        try:
            ask()
        except BaseException as exc:
            self.error = exc
        finally:
            self._done.set()


def _bounded(answer: httpx.Response) -> bytes:
    body = bytearray()
    for piece in answer.iter_bytes():
        body += piece
        if len(body) > LARGEST_ANSWER:
            raise AsrBadAnswer("The answer never ends.", service=SERVICE)
    return bytes(body)


def _said(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The words of an answer: beside its text, or inside of its segments."""
    if data.get("words"):
        yield from data["words"]
        return
    for segment in data.get("segments") or ():
        yield from segment.get("words") or ()


def _marked(words: list[Word], text: str) -> list[Word]:
    """The words with the marks that they have in the text, where both are the same words: marks end sentences."""
    tokens = text.split()
    if [_plain(t) for t in tokens] != [_plain(w.text) for w in words]:
        return words
    return [Word(w.start_s, w.end_s, token, w.probability) for w, token in zip(words, tokens, strict=True)]


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())
