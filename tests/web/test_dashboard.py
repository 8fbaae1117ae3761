"""Can people log in, submit, watch and play with nothing but a browser?"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from pipeline.store import credits as ledger
from tests.web.visitor import Stack, Visitor

pytestmark = pytest.mark.web

Visit = Callable[..., Visitor]

# What the bar of a job showed, whenever it changed.
WATCH = """job => {
  window.seen = [];
  const look = () => {
    const bar = document.querySelector(`#jobs [data-key="${job}"] .progress`);
    const value = bar && Number(bar.getAttribute('aria-valuenow'));
    if (bar && window.seen.at(-1) !== value) window.seen.push(value);
  };
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true, attributes: true});
}"""
STAGE = 25  # percent: a job without captions has four stages


def test_a_wrong_key_is_told_and_a_right_one_opens_the_dashboard(visit: Visit, stack: Stack) -> None:
    visitor = visit(None)
    page = visitor.page

    page.get_by_label("API key").fill("not-a-key")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("This API key is not valid.")
    visitor.forgive("401")
    visitor.log_in("operator")
    page.reload()

    expect(page.get_by_role("link", name="Breakers")).to_be_visible()
    expect(page.get_by_role("link", name="Flower")).to_have_attribute("href", "http://127.0.0.1:5555")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    assert "ironclip_session" not in [cookie.get("name") for cookie in page.context.cookies()]


def test_a_job_is_submitted_and_played_with_captions(visit: Visit, stack: Stack) -> None:
    visitor = visit("operator")
    page = visitor.page

    page.locator("#new-job").click()
    page.get_by_label("or a file from this computer").set_input_files(str(stack.sample))
    page.get_by_label("Name of clip 1").fill("opening")
    page.get_by_label("Start of clip 1").fill("0:01")
    page.get_by_label("End of clip 1").fill("0:08.5")
    page.get_by_role("button", name="Submit", exact=True).click()
    row = page.locator("#jobs .row").first
    expect(row.locator(".pill")).to_have_text("completed")
    row.get_by_role("link").click()
    expect(visitor.why()).to_contain_text("It completed in full")
    video = page.locator("video")
    video.evaluate("video => { video.muted = true; return video.play() }")
    visitor.until("the clip to play", "document.querySelector('video').currentTime > 0.5")
    cues = video.evaluate("video => [...video.textTracks[0].cues].map(cue => cue.text)")
    assert " ".join(cues).strip()
    visitor.until("a caption", "document.querySelector('video').textTracks[0].activeCues?.length > 0")
    track = video.evaluate("video => [video.textTracks[0].kind, video.textTracks[0].mode]")
    assert track == ["captions", "showing"]
    visitor.picture("job")
    with page.expect_download() as kept:
        page.get_by_role("link", name="mp4").first.click()
    assert kept.value.path().stat().st_size > 10_000


def test_progress_moves_until_a_job_is_cancelled_and_on_when_it_is_requeued(visit: Visit, stack: Stack) -> None:
    visitor = visit("operator")
    page = visitor.page
    job = stack.submit(clips=[{"start": 0.5, "end": 19.5}], qualities=["source", "480p", "360p"])
    page.evaluate(WATCH, job)

    visitor.until("its bar to move within a stage", f"window.seen.filter(value => value % {STAGE}).length >= 2")
    seen = page.evaluate("window.seen")
    assert seen == sorted(seen)
    visitor.row(job).get_by_role("link").click()
    page.get_by_role("button", name="Cancel").click()
    visitor.confirm("Not now")
    assert stack.show(job)["status"] == "processing"
    page.get_by_role("button", name="Cancel").click()
    visitor.confirm("Cancel")
    expect(visitor.why()).to_contain_text("It was cancelled by operator")
    page.get_by_role("button", name="Requeue").click()
    visitor.confirm("Requeue")

    expect(page.locator(".events")).to_contain_text("requeued by operator")
    stack.until(job, "completed")
    expect(visitor.why()).to_contain_text("It completed in full")
    expect(page.locator('.attempt[data-ended="cancelled"]')).to_have_count(1)


def test_many_jobs_are_found_by_search_and_cancelled_at_once(visit: Visit, stack: Stack, down: str) -> None:
    visitor = visit("operator")
    page = visitor.page
    ledger.grant(stack.api.db, "bulk", 1000, reference="for the bulk test")
    jobs = [stack.submit(account="bulk") for _ in range(3)]
    other = stack.submit()

    page.get_by_label("Account").fill("bulk")
    expect(page.locator("#jobs .row")).to_have_count(3)
    page.get_by_label("Select all jobs that are shown").check()
    page.get_by_role("region", name="Selected jobs").get_by_role("button", name="Cancel").click()
    visitor.confirm("Cancel 3")
    expect(page.locator("#jobs .pill", has_text="cancelled")).to_have_count(3)

    assert {stack.show(job)["status"] for job in jobs} == {"cancelled"}
    assert stack.show(other)["status"] != "cancelled"
    page.get_by_label("Filter by status").select_option("queued")
    expect(page.locator(".empty")).to_contain_text("Nothing fits")
