"""Does anything that a stranger hands in make us read another file, or ask another address?

Media that are really lists, addresses in ffmpeg's own spellings, names with `..`, secrets in the log. The rest of the
battery is beside what it guards: downloads in test_source.py, sites and their guard in test_site.py. The forbidden
address is 127.0.0.2, the forbidden file one of our own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest

from pipeline import log
from pipeline.core.errors import BadRequest, IronclipError, SourceUnreadable
from pipeline.media import ffmpeg, probe, source
from tests.media.conftest import run_ffmpeg
from tests.media.webserver import Request, Web, media

Use = Callable[..., None]

LISTS = {
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{entry}\n#EXT-X-ENDLIST\n",
    "master": "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{entry}\n",
    "key": '#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXT-X-KEY:METHOD=AES-128,URI="{entry}"\n#EXTINF:9,\nx.ts\n',
    "concat": "ffconcat version 1.0\nfile '{entry}'\n",
    "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" mediaPresentationDuration="PT9S">'
    '<Period><AdaptationSet mimeType="video/mp4"><Representation id="1" bandwidth="1"><BaseURL>{entry}</BaseURL>'
    "<SegmentBase/></Representation></AdaptationSet></Period></MPD>",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.2\ns=x\nc=IN IP4 127.0.0.2\nt=0 0\nm=video 9 RTP/AVP 96\n",
    "asx": '<ASX version="3.0"><Entry><Ref href="{entry}"/></Entry></ASX>',
}
ENTRIES = [
    "file://{film}",
    "{film}",
    "{web}/film.ts",
    "beside.ts",
    "../beside.ts",
    "concat:{film}|{film}",
    "subfile,,start,0,end,0,,:{film}",
]


@pytest.fixture(scope="module")
def secret() -> Iterator[Web]:
    web = Web("127.0.0.2")
    yield web
    web.stop()


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("private") / "film.ts"
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25", "-t", "0.4", "-f", "mpegts", path)
    return path


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("kind", LISTS)
def test_a_list_that_is_called_a_film_is_not_followed(
    kind: str, entry: str, secret: Web, film: Path, tmp_path: Path
) -> None:
    """By PyAV, which opens every source first, wherever the list leads."""
    bait = tmp_path / "here" / "film.mp4"
    bait.parent.mkdir()
    for place in (tmp_path, bait.parent):
        (place / "beside.ts").write_bytes(film.read_bytes())
    bait.write_text(LISTS[kind].format(entry=entry.format(film=film, web=secret.base)))

    with pytest.raises(SourceUnreadable):
        probe.probe(bait)

    assert secret.asked == []


@pytest.mark.parametrize("kind", ["hls", "concat"])
@pytest.mark.parametrize("entry", ENTRIES[1:3])
def test_ffmpeg_reads_a_film_in_the_container_that_was_found_and_no_other(
    kind: str, entry: str, secret: Web, film: Path, tmp_path: Path
) -> None:
    """What was a film when it was looked at, and is a list when ffmpeg opens it."""
    bait, output = tmp_path / "film.ts", tmp_path / "out.mp4"
    bait.write_text(LISTS[kind].format(entry=entry.format(film=film, web=secret.base)))
    found = probe.probe(film).container.split(",")[0]

    with pytest.raises(IronclipError):
        ffmpeg.run_graph(
            ffmpeg.written([ffmpeg.opened(bait, f=found)["v:0"]], output, c="copy"), output=output, cwd=tmp_path
        )

    assert secret.asked == []


def test_ffmpeg_asks_no_address_even_for_a_list_that_nobody_looked_at(secret: Web, tmp_path: Path) -> None:
    bait, output = tmp_path / "list.m3u8", tmp_path / "out.mp4"
    bait.write_text(LISTS["hls"].format(entry=f"{secret.base}/film.ts"))
    graph = ffmpeg.written([ffmpeg.opened(bait)["v:0"]], output)

    with pytest.raises(IronclipError):
        ffmpeg.run_graph(graph, output=output, cwd=tmp_path)

    assert secret.asked == []
    # Newer builds of ffmpeg would refuse this by themselves; older ones need to be told.
    assert " ".join(ffmpeg.graph.get_args(graph)).startswith("-protocol_whitelist file,pipe -i ")


@pytest.mark.parametrize(
    "text",
    [
        *("concat:{film}|{film}", "subfile,,start,0,end,9,,:{film}", "data:video/mp4;base64,AAAA", "pipe:0", "fd:0"),
        *("crypto:{film}", "cache:{film}", "async:{film}", "tee:{film}", "unix:{film}", "gopher://h/", "rtmp://h/x"),
        *("file:../{film}", "file://otherhost{film}", "http:{film}", "s3:{film}"),
    ],
)
def test_spellings_of_ffmpeg_and_others_are_no_sources(text: str, film: Path, env: Use) -> None:
    env(SOURCE_ROOTS="")

    with pytest.raises(BadRequest):
        source.validate(text.format(film=film))


def test_a_folder_cannot_be_left_by_dots(film: Path, tmp_path: Path, env: Use) -> None:
    env(SOURCE_ROOTS=str(tmp_path))
    dots = "/".join([".."] * len(tmp_path.parts))

    for text in (
        f"{tmp_path}/{dots}{film}",
        f"file://{tmp_path}/{dots}{film}",
        f"file://{tmp_path}/%2e%2e/{dots}{film}",
    ):
        with pytest.raises(BadRequest) as caught:
            source.validate(text)

        assert caught.value.reason in ("SOURCE_OUTSIDE_ROOTS", "SOURCE_MISSING")


@pytest.fixture
def web(env: Use) -> Iterator[Web]:
    env(SOURCE_ALLOW_HOSTS="127.0.0.1")
    server = Web()
    yield server
    server.stop()


def test_names_that_a_server_gives_name_no_file_of_ours(web: Web, tmp_path: Path) -> None:
    def named(request: Request) -> None:
        request.send(200, b"x", Content_Disposition='attachment; filename="../../escape.mp4"')

    url = web.serve("/%2e%2e/%2e%2e/escape.mp4", named)

    got = source.fetch(url, tmp_path / "a/b")

    assert got == tmp_path / "a/b/source"
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["source"]


def test_no_log_holds_a_password_or_a_signature(web: Web, tmp_path: Path) -> None:
    written = StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    url = web.serve("/film.mp4", media(b"x")).replace("//", "//user:hunter2@") + "?sig=abcdef"
    log.set_up("DEBUG", written)
    try:
        source.fetch(url, tmp_path)
    finally:
        root.handlers[:], level = before
        root.setLevel(level)

    assert web.asked[-1].headers["Authorization"] == "Basic dXNlcjpodW50ZXIy"
    assert not any(word in written.getvalue() for word in ("hunter2", "abcdef", "dXNlcjpodW50ZXIy"))
