"""Can admins give keys and credits, see what was done, and have work done again, all from the page?"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import expect
from sqlalchemy import text

from pipeline.store import credits as ledger
from tests.web.visitor import Stack, Visitor

pytestmark = pytest.mark.web

Visit = Callable[..., Visitor]
NO_HLS = "HTMLMediaElement.prototype.canPlayType = () => ''"


def opens(stack: Stack, key: str) -> int:
    return httpx.get(f"{stack.api.url}/api/jobs", headers={"Authorization": f"Bearer {key}"}).status_code


def test_a_key_is_made_shown_once_and_revoked_and_the_audit_says_so(visit: Visit, stack: Stack) -> None:
    visitor = visit("admin")
    page = visitor.page
    visitor.go("keys")

    page.locator("#new-key").click()
    page.get_by_label("Account").fill("no such/name")
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("alert")).to_contain_text("does not fit")
    visitor.forgive("422")
    page.get_by_label("Account").fill("keyed")
    page.get_by_label("What it is for").fill("the shop")
    page.get_by_role("button", name="Make it").click()
    shown = page.get_by_role("textbox", name="Your new key")
    key = shown.input_value()
    page.get_by_role("button", name="I have kept it").click()
    expect(page.locator(".secret")).to_have_count(0)  # not even where nobody sees it
    line = page.locator("tr", has_text=key[:8])
    expect(line).to_contain_text("the shop")
    before = opens(stack, key)
    assert key not in page.content()
    line.get_by_role("button", name="Revoke").click()
    visitor.confirm("Revoke")
    expect(line).to_contain_text("revoked")

    assert (before, opens(stack, key)) == (200, 401)
    expect(line.get_by_role("button")).to_have_count(0)
    visitor.go("audit")
    acts = page.locator("tr[data-act]")
    expect(acts.nth(0)).to_contain_text("revoked key")
    expect(page.locator("table")).to_contain_text("made a key: client, keyed, the shop")
    assert key not in page.content()


def test_credits_are_granted_after_a_question_and_stand_in_the_ledger_of_all(visit: Visit, stack: Stack) -> None:
    visitor = visit("admin")
    page = visitor.page
    ledger.grant(stack.api.db, "poor", 5, reference="for the poor")
    visitor.go("ledger")

    page.locator("#grant").click()
    page.get_by_label("Account", exact=True).fill("rich")
    page.get_by_label("Amount").fill("1200")
    page.get_by_label("Note").fill("a good customer")
    page.get_by_role("button", name="Continue").click()
    question = page.get_by_role("dialog", name="Give 1,200 credits to rich?")
    question.get_by_role("button", name="Not now").click()
    assert [each["account"] for each in ledger.balances(stack.api.db) if each["account"] == "rich"] == []
    page.get_by_role("button", name="Continue").click()
    question.get_by_role("button", name="Grant").click()

    expect(page.locator("tr", has_text="rich")).to_contain_text("1,200")
    expect(page.locator("tr", has_text="poor")).to_contain_text("5")
    page.locator("tr", has_text="rich").get_by_role("link", name="Entries").click()
    expect(page.locator("table")).to_contain_text("a good customer")
    visitor.go("audit")
    expect(page.locator("tr[data-act]").nth(0)).to_contain_text("granted 1,200 credits to rich")


def test_a_completed_job_is_made_anew_from_its_page(visit: Visit, stack: Stack) -> None:
    job = stack.submit()
    stack.until(job, "completed")
    visitor = visit("operator")
    page = visitor.page
    visitor.go(f"job/{job}")

    page.get_by_role("button", name="Rerender").click()
    visitor.confirm("Rerender")

    expect(page.locator(".events")).to_contain_text("made anew by operator")
    expect(page.locator(".facts")).to_contain_text("Generation2")
    assert stack.show(job)["generation"] == 2


def test_failed_jobs_are_requeued_at_once_when_their_source_is_mended(
    visit: Visit, stack: Stack, tmp_path: Path
) -> None:
    film = tmp_path / "broken.mp4"
    film.write_bytes(b"not a film")
    ledger.grant(stack.api.db, "again", 100, reference="for another try")
    jobs = [stack.submit(source=str(film), account="again") for _ in range(2)]
    for job in jobs:
        stack.until(job, "failed")
    shutil.copy(stack.sample, film)
    visitor = visit("operator")
    page = visitor.page
    page.get_by_label("Account").fill("again")
    expect(page.locator("#jobs .row")).to_have_count(2)

    page.get_by_label("Select all jobs that are shown").check()
    page.get_by_role("region", name="Selected jobs").get_by_role("button", name="Requeue").click()
    visitor.confirm("Requeue 2")

    expect(page.locator("#jobs .pill", has_text="completed")).to_have_count(2)


def test_a_job_of_hls_alone_says_so_and_leads_to_its_playlist(visit: Visit, stack: Stack) -> None:
    job = stack.submit(formats=["hls"])
    stack.until(job, "completed")
    visitor = visit("operator")
    page = visitor.page
    page.add_init_script(NO_HLS)
    page.reload()
    visitor.go(f"job/{job}")

    told = page.locator(".only-hls")
    expect(told).to_contain_text("HLS only, which this browser cannot play by itself")
    link = told.get_by_role("link", name="master playlist").get_attribute("href")

    assert link is not None
    assert httpx.get(link).text.startswith("#EXTM3U")
    expect(page.locator("video")).to_have_count(0)


def test_an_account_adds_an_endpoint_sees_its_secret_once_and_removes_it(visit: Visit, stack: Stack) -> None:
    visitor = visit("client", account="hooked")
    page = visitor.page
    visitor.go("webhooks")

    page.locator("#new-endpoint").click()
    page.get_by_label("Address").fill("https://hooked.example.org/a?token=very-secret")
    page.get_by_role("button", name="Add it").click()
    secret = page.get_by_role("textbox", name="Its secret").input_value()
    page.get_by_role("button", name="I have kept it").click()
    expect(page.locator(".secret")).to_have_count(0)
    line = page.locator("tr", has_text="hooked.example.org")
    expect(line).to_contain_text("job_completed")
    told = page.content()
    line.get_by_role("button", name="Remove").click()
    visitor.confirm("Remove")

    expect(line).to_have_count(0)
    assert len(secret) == 64
    assert secret not in told
    assert "very-secret" not in told


def test_a_webhook_that_was_given_up_is_seen_and_sent_again(visit: Visit, stack: Stack) -> None:
    delivery = str(uuid4())
    stack.api.db.run(
        text("""
            INSERT INTO webhook_deliveries (id, type, payload, url, status, attempt_count, last_error)
            VALUES (:id, 'job_stalled', '{}', 'http://127.0.0.1:9/very-secret', 'failed', 8, 'HTTP 500')"""),
        id=delivery,
    )
    visitor = visit("operator")
    page = visitor.page
    visitor.go("webhooks")
    page.get_by_label("Filter by state").select_option("failed")
    line = page.locator(f'[data-delivery="{delivery}"]')
    expect(line).to_contain_text("HTTP 500")
    assert "very-secret" not in page.content()

    line.get_by_role("button", name="Replay").click()
    visitor.confirm("Replay")

    expect(page.locator("#said")).to_contain_text("sent again within seconds")
    page.get_by_label("Filter by state").select_option("")
    expect(line).not_to_contain_text("HTTP 500")  # it may not go to our own network
