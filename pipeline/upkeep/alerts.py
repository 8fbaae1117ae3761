"""The relay: what happened becomes deliveries to whoever wants to hear of it.

The outbox is emptied in the same transaction in which the deliveries are written, so a crash loses nothing and doubles
nothing. Whoever asked for a job hears how it ended; operators hear alerts, paced by their cooldowns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from pipeline import log, metrics, settings
from pipeline.core.alerts import Alert, alert_of, callback_of, paced
from pipeline.core.errors import NoSuchJob
from pipeline.settings import Settings
from pipeline.store import reads
from pipeline.store.engine import Database
from pipeline.store.webhooks import Endpoint, Noted, Parcel, Relay, relaying

logger = log.get("alerts")

BATCH = 500
TOLD = (
    "status",
    "stage",
    "outcome",
    "generation",
    "account_id",
    "fail_code",
    "fail_reason",
    "created_at",
    "finished_at",
)


def relay(db: Database) -> int:
    """Make deliveries of what the outbox holds; how many happenings those were."""
    with relaying(db) as outbox:
        if outbox is None:
            return 0
        now, endpoints = settings.current(), outbox.endpoints()
        noted = outbox.take(BATCH)
        alerts = [alert for each in noted if (alert := alert_of(each.happening))]
        alerts += _patterns(outbox, noted, now)
        before = outbox.cooldowns()
        told, after = paced(alerts, before, outbox.now, timedelta(seconds=now.alert_cooldown_sec))
        if after != before:
            outbox.cool(after)
        for alert in told:
            outbox.deliver(_of_alert(alert, endpoints, now))
        for each in noted:
            outbox.deliver(_of_job(db, each, endpoints))
        if noted:
            outbox.forget(noted)
    for alert in told:
        logger.warning("alert", extra={"alert": alert.type, "repeated": alert.repeated, "about": dict(alert.data)})
        metrics.count("alerts_total", type=alert.type)
    for each in noted:
        _measure(each)
    return len(noted)


def _measure(noted: Noted) -> None:
    """Every end of a job comes by here exactly once, whoever brought it about."""
    happened = noted.happening
    if callback_of(happened) is None:
        return
    metrics.count("jobs_finished_total", status=happened.type)
    if happened.data.get("generation") == 1 and noted.age_s is not None:
        metrics.observe("job_completion_seconds", noted.age_s)


def _patterns(outbox: Relay, noted: Sequence[Noted], now: Settings) -> Iterator[Alert]:
    codes = {each.happening.data.get("code") for each in noted if each.happening.type == "failed"}
    if codes:
        span = timedelta(seconds=now.alert_pattern_sec)
        for found in outbox.patterns(now.alert_pattern_jobs, span):
            if found["code"] in codes:
                yield Alert(type="job_failed_pattern", at=outbox.now, data={**found, "within_s": now.alert_pattern_sec})


def _of_alert(alert: Alert, endpoints: Sequence[Endpoint], now: Settings) -> Iterator[Parcel]:
    payload = {"at": alert.at.isoformat(), "data": log.redacted(dict(alert.data)), "repeated": alert.repeated}
    for endpoint in endpoints:
        if endpoint.account is None and alert.type in (endpoint.types or (alert.type,)):
            yield Parcel(url=endpoint.url, type=alert.type, payload=payload, endpoint=endpoint.id)
    if now.alert_webhook_url:
        yield Parcel(url=now.alert_webhook_url, type=alert.type, payload=payload)


def _of_job(db: Database, noted: Noted, endpoints: Sequence[Endpoint]) -> Iterator[Parcel]:
    """To the address that the request names, and to every endpoint that wants the ends of jobs."""
    kind = callback_of(noted.happening)
    if kind is None:
        return
    places: list[tuple[str, Endpoint | None]] = [(noted.callback_url, None)] if noted.callback_url else []
    places += [(e.url, e) for e in endpoints if kind in e.types and e.account in (None, noted.account)]
    if not places:
        return
    payload = _story(db, noted)
    for url, endpoint in places:
        yield Parcel(
            url=url,
            type=kind,
            payload=payload,
            endpoint=endpoint.id if endpoint else None,
            account=noted.account,
            job_id=noted.happening.job_id,
            event_id=noted.event_id,
        )


def _story(db: Database, noted: Noted) -> dict[str, Any]:
    """What happened, and the job as it is now: it may have moved on since."""
    happened = noted.happening
    told: dict[str, Any] = {"at": happened.at.isoformat(), "job_id": str(happened.job_id), "data": dict(happened.data)}
    assert happened.job_id is not None
    try:
        job = reads.one(db, happened.job_id)
    except NoSuchJob:  # removed since
        return told
    shown = {name: _plain(job[name]) for name in TOLD} | {"outputs": job["outputs"]}
    manifest = job["context"].get("finalize", {}).get("manifest", {})
    return told | {"job": shown | {"id": str(job["id"]), "manifest": manifest}}


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
