"""Does it go on when the server is away, fit a phone, and keep to its own policy?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from pipeline.api.pages import DASHBOARD
from tests.web.visitor import Stack, Visitor

pytestmark = pytest.mark.web

Visit = Callable[..., Visitor]


def test_the_page_follows_again_when_the_server_is_back(visit: Visit, stack: Stack) -> None:
    visitor = visit("operator")
    pulse = visitor.page.locator("#pulse")
    port = stack.api.port

    visitor.may_be_cut_off = True
    stack.api.kill()
    expect(pulse).to_have_attribute("data-state", "polling")
    stack.api.start(port)
    expect(pulse).to_have_attribute("data-state", "live")
    job = stack.submit()

    expect(visitor.row(job).locator(".pill")).to_have_text("completed")


def test_without_a_stream_the_page_asks_again_and_again(visit: Visit, stack: Stack) -> None:
    visitor = visit(None)
    visitor.page.route("**/api/events*", lambda route: route.abort())
    visitor.may_be_cut_off = True
    visitor.page.get_by_label("API key").fill(stack.api.key("operator"))
    visitor.page.get_by_role("button", name="Log in").click()
    expect(visitor.page.locator("#pulse")).to_have_attribute("data-state", "polling")

    job = stack.submit()

    expect(visitor.row(job).locator(".pill")).to_have_text("completed")


@pytest.mark.parametrize("dark", [False, True])
def test_every_page_fits_a_phone(visit: Visit, stack: Stack, dark: bool) -> None:
    job = stack.submit(source=str(stack.sample), clips=[{"name": "a" * 60, "start": 0, "end": 1}])
    stack.until(job, "completed")
    visitor = visit("admin", phone=True, dark=dark)
    expect(visitor.row(job)).to_be_visible()

    wide = {"jobs": visitor.sticks_out()}
    for page in (f"job/{job}", "workers", "breakers", "recovery", "webhooks", "ledger", "keys", "audit"):
        visitor.go(page)
        expect(visitor.page.locator("h1")).to_be_visible()
        expect(visitor.page.locator("[aria-busy]")).to_have_count(0)
        wide[page] = visitor.sticks_out()
    visitor.go("jobs")
    visitor.page.locator("#new-job").click()
    wide["submit"] = visitor.sticks_out()

    assert {page: found for page, found in wide.items() if found} == {}


def test_a_job_is_cancelled_by_keyboard_alone(visit: Visit, stack: Stack, down: str) -> None:
    visitor = visit("operator")
    page = visitor.page
    job = stack.submit()
    expect(visitor.row(job).locator(".pill")).to_contain_text(f"waits for {down}")

    visitor.row(job).get_by_role("link").press("Enter")
    cancel = page.get_by_role("button", name="Cancel")
    cancel.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert cancel.evaluate("button => getComputedStyle(button).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Enter")

    expect(visitor.why()).to_contain_text("It was cancelled by operator")


def test_the_policy_forbids_scripts_that_are_not_ours(stack: Stack) -> None:
    answer = httpx.get(stack.api.url)

    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-cache"
    assert "<script>" not in answer.text


def test_nothing_that_was_sent_can_become_html_and_nothing_comes_from_elsewhere() -> None:
    scripts = list(DASHBOARD.rglob("*.js"))
    code = {path.name: path.read_text() for path in (*scripts, *DASHBOARD.rglob("*.css"), DASHBOARD / "index.html")}
    forbidden = (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "DOMParser",
        "@import",
        "//cdn",
    )

    found = {(name, word) for name, told in code.items() for word in forbidden if word in told}

    assert scripts
    assert found == set()
    assert {_long(path) for path in scripts} == {None}


def _long(path: Path) -> str | None:
    return path.name if len(path.read_text().splitlines()) >= 300 else None
