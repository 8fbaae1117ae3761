"""Can a browser play what was made, by a link that ends, and nobody else? And what becomes of what people send?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from pipeline.core.job import Job
from pipeline.store.engine import dumps
from tests.api.conftest import Api
from tests.cluster.system import wait_for
from tests.store.world import enqueue, outputs_of

FILM = bytes(range(256)) * 40


def delivered(api: Api, job: Job, name: str = "a.mp4", content: bytes = FILM) -> str:
    """A file of this job that lies at the local target, and is known to."""
    digest = hashlib.sha256(content).hexdigest()
    key = f"jobs/{job.id}/g1/{Path(name).stem}-{digest[:16]}{Path(name).suffix}"
    place = Path(api.env["OUTPUT_DIR"]) / key
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    file = {"key": key, "url": place.as_uri(), "size": len(content), "sha256": digest}
    (output,) = outputs_of(api.db, job)
    api.db.run(
        text("""
        INSERT INTO deliveries (output_id, target, job_id, status, files)
        VALUES (:output, 'local', :job, 'delivered', CAST(:files AS jsonb))
        ON CONFLICT (output_id, target) DO UPDATE SET files = deliveries.files || excluded.files"""),
        output=output,
        job=job.id,
        files=dumps([file]),
    )
    return key


def shown(http: httpx.Client, job: Job) -> dict[str, Any]:
    (output,) = http.get(f"/api/jobs/{job.id}").json()["outputs"]
    return output


@pytest.fixture
def film(api: Api) -> Job:
    job = enqueue(api.db)
    delivered(api, job)
    return job


def test_a_link_plays_with_byte_ranges_and_without_a_key(api: Api, film: Job) -> None:
    with api.client("operator") as http, api.client(None) as browser:
        (file,) = shown(http, film)["files"]
        whole = browser.get(file["link"])
        part = browser.get(file["link"], headers={"Range": "bytes=100-199"})
        tail = browser.get(file["link"], headers={"Range": "bytes=-10"})
        beyond = browser.get(file["link"], headers={"Range": "bytes=99999999-"})

    assert (whole.status_code, whole.content, whole.headers["content-type"]) == (200, FILM, "video/mp4")
    assert (part.status_code, part.content) == (206, FILM[100:200])
    assert part.headers["content-range"] == f"bytes 100-199/{len(FILM)}"
    assert tail.content == FILM[-10:]
    assert beyond.status_code == 416
    assert str(api.home) not in str(file)


def test_a_link_opens_nothing_but_the_files_of_its_job(api: Api, film: Job, tmp_path: Path) -> None:
    other = enqueue(api.db)
    delivered(api, other)
    Path(api.env["OUTPUT_DIR"], "secret.txt").write_text("secret")
    with api.client("operator") as http, api.client(None) as browser:
        link = shown(http, film)["files"][0]["link"]
        _, _, _, grant, _job, _ = link.split("/", 5)
        until, _, signature = grant.partition(".")
        refused = [
            link.replace(str(film.id), str(other.id)),
            link.replace(grant, f"{int(until) + 300}.{signature}"),
            link.replace(grant, f"{until}.{'0' * 64}"),
            link.replace(grant, "x"),
        ]
        missing = [
            f"/api/files/{grant}/{film.id}/../../secret.txt",
            f"/api/files/{grant}/{film.id}/..%2f..%2fsecret.txt",
            f"/api/files/{grant}/{film.id}/g1/other.mp4",
            f"/api/files/{grant}/{film.id}/",
        ]
        answers = [browser.get(each) for each in refused]
        nothing = [browser.get(each) for each in missing]

    assert {(a.status_code, a.json()["code"]) for a in answers} == {(403, "LINK_INVALID")}
    assert {a.status_code for a in nothing} <= {404, 422}
    assert not any(a.text == "secret" for a in nothing)


def test_a_link_ends(make_api: Callable[..., Api], monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.api import links

    monkeypatch.setattr(links, "sign", lambda *_: "signed")
    job = UUID(int=1)
    grant = links.to(job, "jobs/x").split("/")[3]
    monkeypatch.setattr(links.time, "time", lambda: 0.0)
    left = links.check(grant, job)
    monkeypatch.setattr(links.time, "time", lambda: 1e11)

    with pytest.raises(links.LinkInvalid, match="expired"):
        links.check(grant, job)

    assert left > 0


def test_the_newest_file_has_an_address_that_stays(api: Api, film: Job) -> None:
    with api.client("operator") as http:
        address = shown(http, film)["newest"]
        early = http.get(address)
        api.db.run(text("UPDATE jobs SET generation = 1 WHERE id = :id"), id=film.id)
        found = http.get(address)
        played = http.get(found.headers["location"])
        by_suffix = [http.get(address, params={"suffix": each}).status_code for each in ("mp4", "vtt")]

    assert (early.status_code, early.json()["code"]) == (404, "NO_SUCH_FILE")
    assert (found.status_code, played.content) == (307, FILM)
    assert by_suffix == [307, 404]


def test_names_in_a_playlist_lead_to_links_that_work(api: Api) -> None:
    job = enqueue(api.db)
    playlist = delivered(api, job, "list.m3u8", b"#EXTM3U\n")
    segment = delivered(api, job, "seg.ts", b"segment")

    with api.client("operator") as http, api.client(None) as browser:
        files = {file["key"]: file["link"] for file in shown(http, job)["files"]}
        beside = httpx.URL(files[playlist]).join(Path(segment).name)
        answer = browser.get(str(beside))

    assert answer.content == b"segment"


# -- what people send ------------------------------------------------------------------------------------------------


def test_an_upload_is_streamed_to_disk_and_becomes_the_source_of_a_job(api: Api) -> None:
    content = b"film" * 500_000
    chunks = (content[at : at + 70_000] for at in range(0, len(content), 70_000))

    with api.client("client") as ann, api.client("client") as bob, api.client("operator") as staff:
        sent = ann.post("/api/sources", params={"name": "Film.MP4"}, content=chunks)
        body = {"source": sent.json()["source"], "clips": [{"start": 0, "end": 1}]}
        mine = ann.post("/api/jobs", json=body)
        theirs = bob.post("/api/jobs", json=body)
        shown = ann.get(f"/api/jobs/{mine.json()['id']}").json()
        listed = staff.get("/api/jobs", params={"search": mine.json()["id"]}).json()["jobs"]

    assert sent.status_code == 201
    assert (sent.json()["size"], sent.json()["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert mine.status_code == 201
    assert (theirs.status_code, theirs.json()["code"]) == (422, "SOURCE_MISSING")
    assert {shown["request"]["source"], listed[0]["request"]["source"]} == {body["source"]}
    assert str(api.home) not in str(shown)


def test_an_upload_has_a_largest_size_and_leaves_nothing_when_it_is_refused(make_api: Callable[..., Api]) -> None:
    small = make_api(UPLOAD_MAX_BYTES="1000")
    uploads = Path(small.env["SCRATCH_DIR"]) / "uploads"

    def parts():
        for _ in range(100):
            yield b"x" * 100

    with small.client("operator") as http:
        declared = http.post("/api/sources", content=b"x" * 1001)
        undeclared = http.post("/api/sources", content=parts())
        empty = http.post("/api/sources", content=b"")
        fits = http.post("/api/sources", content=b"x" * 1000)

    assert {(a.status_code, a.json()["code"]) for a in (declared, undeclared)} == {(413, "BODY_TOO_LARGE")}
    assert (empty.status_code, empty.json()["code"]) == (422, "SOURCE_EMPTY")
    assert fits.status_code == 201
    assert [path.stat().st_size for path in uploads.rglob("*") if path.is_file()] == [1000]


def test_an_upload_that_breaks_off_leaves_nothing(api: Api) -> None:
    import socket

    key = api.key("operator")
    uploads = Path(api.env["SCRATCH_DIR"]) / "uploads" / "_staff"
    before = set(uploads.glob("*"))
    with socket.create_connection(("127.0.0.1", api.port)) as line:
        head = f"POST /api/sources HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nContent-Length: 100000\r\n\r\n"
        line.sendall(head.encode() + b"x" * 2000)
        wait_for("it to begin", lambda: set(uploads.glob(".*.part")))

    gone = wait_for("it to be cleared away", lambda: not set(uploads.glob(".*.part")))

    assert gone
    assert set(uploads.glob("*")) == before


def test_a_client_cannot_read_files_of_this_machine(api: Api, source: str) -> None:
    with api.client("client") as http, api.client("operator") as staff:
        refused = [
            http.post("/api/jobs", json={"source": each, "clips": [{"start": 0, "end": 1}]})
            for each in (source, f"file://{source}", "upload:../../etc/passwd", "upload:")
        ]
        allowed = staff.post("/api/jobs", json={"source": source, "clips": [{"start": 0, "end": 1}]})

    assert [answer.status_code for answer in refused] == [403, 403, 422, 422]
    assert allowed.status_code == 201
