"""Does the top of the dashboard say where the jobs are?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from pipeline.store import credits as ledger
from tests.cluster.system import wait_for
from tests.web import pictures
from tests.web.visitor import Stack, Visitor

pytestmark = pytest.mark.web

Visit = Callable[..., Visitor]


def test_the_flow_counts_who_waits_who_failed_and_what_was_completed(
    visit: Visit, stack: Stack, down: str, tmp_path: Path
) -> None:
    ledger.grant(stack.api.db, "flow", 100, reference="for the flow test")
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"not a film")
    failed = stack.submit(source=str(broken), account="flow")
    waiting = [stack.submit(account="flow") for _ in range(2)]
    stack.until(failed, "failed")
    for job in waiting:
        wait_for("the job to wait", lambda job=job: stack.show(job)["waiting_on"] == down)
    page = visit("client", account="flow").page

    expect(_stage(page, "upload")).to_contain_text("2 queued")
    expect(_stage(page, "resolve")).to_contain_text("1 failed")
    expect(page.locator(".chart")).to_have_attribute("aria-label", "0 jobs completed and 1 failed in the last hour")
    _stage(page, "upload").click()
    expect(page.locator("#jobs .row")).to_have_count(2)
    _stage(page, "upload").click()
    expect(page.locator("#jobs .row")).to_have_count(3)
    for job in waiting:
        stack.act(job, "cancel")
    expect(_stage(page, "upload")).to_contain_text("0 queued")


def _stage(page: Page, name: str):  # type: ignore[no-untyped-def]
    return page.locator(f'[data-stage="{name}"]')


if pictures.WANTED:

    def test_pictures_of_a_busy_hour(visit: Visit, stack: Stack, tmp_path: Path) -> None:
        pictures.busy_hour(stack, tmp_path)
        looks = [("home-light", {}), ("home-dark", {"dark": True}), ("phone", {"phone": True})]

        for name, how in looks:
            visitor = visit("admin", **how)
            expect(visitor.page.locator(".chart .bar").first).to_be_visible()
            expect(visitor.page.locator("#jobs .row").first).to_be_visible()
            visitor.picture(name)
