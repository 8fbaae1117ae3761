"""Can whoever looks after the system see what is wrong and do something about it, and is everybody else kept out?"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect
from sqlalchemy import text

from pipeline.store import credits as ledger
from pipeline.store.engine import dumps
from tests.cluster.system import wait_for
from tests.web.visitor import Stack, Visitor

pytestmark = pytest.mark.web

Visit = Callable[..., Visitor]
EVIL = "<img src=x onerror=window.hacked=1>"


def test_a_tripped_breaker_is_the_reason_on_the_job_until_it_is_reset(visit: Visit, stack: Stack) -> None:
    visitor = visit("operator")
    page = visitor.page
    visitor.go("breakers")

    page.get_by_label("Service").fill("target:local")
    page.get_by_role("button", name="Trip").first.click()
    visitor.confirm("Trip")
    breaker = page.locator('[data-service="target:local"]')
    expect(breaker).to_have_attribute("data-state", "open")
    job = stack.submit()
    visitor.go(f"job/{job}")
    expect(visitor.why()).to_contain_text("target:local is down")
    expect(page.locator('.attempt[data-ended="deferred"]')).to_contain_text("the attempt was given back")
    visitor.go("breakers")
    expect(breaker).to_contain_text("waits for it")
    breaker.get_by_role("button", name="Reset").click()
    visitor.confirm("Reset")

    expect(breaker).to_have_attribute("data-state", "closed")
    visitor.go(f"job/{job}")
    expect(visitor.why()).to_contain_text("It completed in full")


def test_recovery_is_triggered_and_its_result_is_told(visit: Visit, stack: Stack) -> None:
    visitor = visit("admin")
    page = visitor.page
    job = stack.submit(source="https://nowhere.invalid/a.mp4")
    wait_for("the job to wait", lambda: stack.show(job)["status"] == "queued" and stack.show(job)["waiting_on"])
    _strand(stack, job)

    visitor.go("recovery")
    page.locator("#recover").click()
    visitor.confirm("Recover")

    expect(page.locator("#recovery-result")).to_have_text("1 job recovered, 0 failed.")
    expect(page.locator(".recover")).to_contain_text("Last run")
    wait_for("the job to be taken up again", lambda: stack.show(job)["locked_by"] != "somebody who died")
    stack.act(job, "cancel")
    with stack.api.client("admin") as http:
        acts = [act["act"] for act in http.get("/api/audit").json()["acts"]]
    assert "POST /api/recovery/trigger" in acts


def _strand(stack: Stack, job: str) -> None:
    """As if its worker had died long ago and nobody had seen it."""
    stack.api.db.run(
        text("""
            UPDATE jobs SET status = 'processing', locked_by = 'somebody who died', fence = gen_random_uuid(),
                   lease_expires_at = clock_timestamp() - interval '40 min', skip_until = NULL, waiting_on = NULL,
                   next_earliest_run_at = NULL, published_at = NULL, attempt_count = greatest(attempt_count, 1),
                   processing_started_at = clock_timestamp() - interval '45 min',
                   last_heartbeat_at = clock_timestamp() - interval '45 min',
                   deadline_at = clock_timestamp() + interval '1 h'
             WHERE id = :id"""),
        id=job,
    )


def test_workers_are_shown_and_one_is_taken_out_of_service(visit: Visit, stack: Stack) -> None:
    visitor = visit("operator")
    page = visitor.page
    visitor.go("workers")
    line = page.locator("tr[data-worker]").first

    line.get_by_role("button", name="Disable").click()
    visitor.confirm("Disable")
    expect(line).to_contain_text("disabled")
    line.get_by_role("button", name="Enable").click()

    expect(line.get_by_role("button", name="Disable")).to_be_visible()


def test_a_client_sees_its_own_jobs_and_ledger_and_nothing_of_the_operators(
    visit: Visit, stack: Stack, tmp_path: Path
) -> None:
    ledger.grant(stack.api.db, "ann", 50, reference="for ann")
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"not a film")
    mine, other, failed = stack.submit(account="ann"), stack.submit(), stack.submit(account="ann", source=str(broken))
    stack.until(mine, "completed")
    stack.until(other, "completed")
    stack.until(failed, "failed")
    visitor = visit("client", account="ann")
    page = visitor.page

    expect(visitor.row(mine)).to_be_visible()
    assert page.locator("#jobs .row").count() == 2
    assert page.get_by_role("navigation").get_by_role("link").all_inner_texts() == ["Jobs", "Webhooks", "Ledger"]
    visitor.go(f"job/{mine}")
    expect(page.get_by_role("button", name="Rerender")).to_be_visible()
    visitor.go(f"job/{failed}")
    expect(visitor.why()).to_contain_text("It failed")
    assert page.get_by_role("button", name="Requeue").count() == 0
    visitor.go("breakers")
    expect(page.locator("#jobs")).to_be_visible()
    visitor.go("ledger")
    expect(page.locator("table")).to_contain_text("charged: delivered")
    expect(page.locator(".number-value").first).to_have_text("49")
    visitor.go(f"job/{other}")
    expect(page.locator(".empty")).to_contain_text("No such job")
    visitor.forgive("404")


def test_what_people_send_is_shown_as_text_and_never_run(visit: Visit, stack: Stack, tmp_path: Path) -> None:
    evil = tmp_path / f"{EVIL}.mp4"
    evil.write_bytes(b"not a film")
    job = stack.submit(source=str(evil))
    stack.until(job, "failed")
    error = {
        "code": EVIL,
        "reason": f"{EVIL}\n[mov] {EVIL}",
        "stage": "resolve",
        "attempt": 1,
        "at": "2026-01-01T00:00:00+00:00",
    }
    stack.api.db.run(
        text(
            "UPDATE jobs SET fail_reason = :evil, last_error = :evil, error_history = CAST(:h AS jsonb) WHERE id = :id"
        ),
        evil=EVIL,
        h=dumps([error]),
        id=job,
    )
    visitor = visit("operator")
    page = visitor.page

    expect(visitor.row(job)).to_contain_text(f"{EVIL}.mp4")
    visitor.go(f"job/{job}")
    expect(page.locator("h1")).to_have_text(f"{EVIL}.mp4")
    expect(visitor.why()).to_contain_text(EVIL)
    expect(page.locator(".errors .log")).to_contain_text(f"[mov] {EVIL}")

    assert page.locator('img[src="x"]').count() == 0
    assert page.evaluate("window.hacked") is None


def test_a_failed_job_shows_the_last_lines_of_ffmpeg(visit: Visit, stack: Stack, tmp_path: Path) -> None:
    job = stack.submit(source=str(_noise(stack.sample, tmp_path)), clips=[{"start": 0.3, "end": 5}])
    stack.until(job, "failed")
    visitor = visit("operator")
    errors = visitor.page.locator(".errors")

    visitor.go(f"job/{job}")

    expect(errors.locator(".error-code").first).to_have_text("FFMPEG_FAILED")
    expect(errors.locator(".log").first).to_be_visible()
    told = stack.show(job)["error_history"][-1]["reason"]
    assert "h264" in told
    assert len(told.splitlines()) > 3
    assert errors.locator(".log").first.inner_text().splitlines() == told.splitlines()
    expect(visitor.page.locator('.attempt[data-ended="failed"]')).to_contain_text("failed for good")


def _noise(film: Path, folder: Path) -> Path:
    """The same headers, and noise where pictures and sound were."""
    data = film.read_bytes()
    media = data.index(b"mdat") + 4
    path = folder / "noise.mp4"
    path.write_bytes(data[:media] + random.Random(1).randbytes(len(data) - media))
    return path
