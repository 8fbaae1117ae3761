"""Somebody in front of the dashboard, and the system behind it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect

from tests.api.conftest import ROOT, Api
from tests.cluster.system import System, wait_for

PATIENCE_MS = 15_000
PICTURES = ROOT / "docs" / "pictures"
DESKTOP = {"width": 1400, "height": 900}
PHONE = {"width": 390, "height": 844}
NOT_THERE = "net::ERR_"  # what a browser says of a server that is away

STICKS_OUT = """() => [document.documentElement, ...document.querySelectorAll('header, main *, dialog *')]
  .filter(each => each.getBoundingClientRect().right > innerWidth + 1 || each === document.documentElement
    && each.scrollWidth > each.clientWidth)
  .map(each => `${each.tagName}.${each.className}`)"""


@dataclass(frozen=True)
class Stack:
    """What the tests share."""

    api: Api
    system: System
    sample: Path

    def submit(self, *, account: str | None = None, **more: Any) -> str:
        """A job of one short clip without captions, unless told otherwise; its id."""
        body = {"source": str(self.sample), "clips": [{"start": 0, "end": 2}], "captions": False, **more}
        if account:
            body["account"] = account
        with self.http() as http:
            answer = http.post("/api/jobs", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def show(self, job: str) -> dict[str, Any]:
        with self.http() as http:
            told: dict[str, Any] = http.get(f"/api/jobs/{job}").json()
        return told

    def until(self, job: str, status: str) -> None:
        wait_for(f"job {job} to be {status}", lambda: self.show(job)["status"] == status)

    def act(self, job: str, act: str) -> None:
        with self.http() as http:
            assert http.post(f"/api/jobs/{job}/{act}").is_success

    def http(self) -> httpx.Client:
        return self.api.client("operator")


class Visitor:
    """One browser window, with its own cookies."""

    def __init__(
        self, browser: Browser, stack: Stack, *, phone: bool = False, dark: bool = False, account: str | None = None
    ):
        self.stack = stack
        self.account = account
        self.may_be_cut_off = False  # set while the server is away on purpose
        self._said: list[str] = []
        self._window = browser.new_context(
            viewport=PHONE if phone else DESKTOP,  # type: ignore[arg-type]
            color_scheme="dark" if dark else "light",
            locale="en-GB",
            timezone_id="UTC",
        )
        self._window.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        self.page: Page = self._window.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self._said.append(f"uncaught: {error}"))
        self.page.goto(stack.api.url)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not (self.may_be_cut_off and NOT_THERE in message.text):
            self._said.append(message.text)

    @property
    def complaints(self) -> list[str]:
        """What the browser called an error."""
        return self._said

    def forgive(self, text: str) -> None:
        """Take back an error that the test has caused on purpose."""
        kept = [said for said in self._said if text not in said]
        assert len(kept) < len(self._said), self._said
        self._said = kept

    def close(self) -> None:
        self._window.close()

    # -- what people do ----------------------------------------------------------------------------------------------

    def log_in(self, role: str) -> None:
        self.page.get_by_label("API key").fill(self.stack.api.key(role, self.account))
        self.page.get_by_role("button", name="Log in").click()
        expect(self.page.locator("#pulse")).to_have_attribute("data-state", "live")

    def go(self, where: str) -> None:
        """To a page of the dashboard, without loading it again."""
        self.page.evaluate("where => { location.hash = where }", f"#/{where}")

    def row(self, job: str | UUID) -> Locator:
        return self.page.locator(f'#jobs [data-key="{job}"]')

    def confirm(self, act: str) -> None:
        self.page.get_by_role("dialog").get_by_role("button", name=act).click()

    def why(self) -> Locator:
        return self.page.locator("#why")

    def until(self, what: str, script: str) -> None:
        """Wait until this is true in the page; its policy forbids Playwright's own way."""
        wait_for(what, lambda: self.page.evaluate(script))

    def sticks_out(self) -> list[str]:
        """Whatever ends to the right of the window, also where it is only cut off; empty: the page fits."""
        found: list[str] = self.page.evaluate(STICKS_OUT)
        return found

    def picture(self, name: str, *, whole: bool = False) -> None:
        """Keep what is seen for the docs, if somebody asked for pictures."""
        if os.environ.get("IRONCLIP_PICTURES"):
            self.page.wait_for_timeout(700)  # bars glide to their place
            self.page.screenshot(path=PICTURES / f"dashboard-{name}.png", full_page=whole)
