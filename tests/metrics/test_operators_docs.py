"""Is every alert explained, every figure documented, and every rule made of figures that there are?"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline import webhooks
from pipeline.core.alerts import ALERTS, CALLBACKS, TEST
from pipeline.metrics import METRICS, Kind

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "ironclip.rules.yml"
NIGHT = (ROOT / "docs/how-to/run-it-at-night.md").read_text()
LOADED = yaml.safe_load(RULES.read_text())
ALL: list[dict[str, Any]] = [rule for group in LOADED["groups"] for rule in group["rules"]]
SERIES = re.compile(r"\b([a-z][a-z0-9_]{5,})\b(?:\{([^}]*)\})?")
WORDS = {"humanizeDuration", "histogram_quantile", "increase", "vector", "instance", "invariant", "service"}


def rows(page: str) -> dict[str, list[str]]:
    text = (ROOT / "docs/reference" / page).read_text()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")]
    return {line[0].strip("`"): line[1:] for line in cells}


def paragraph(name: str) -> str:
    found = re.search(rf"^### {re.escape(name)}\n\n(.+?)(?=^#|\Z)", NIGHT, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: str(rule["alert"]))
def test_every_rule_is_whole_and_made_of_figures_that_there_are(rule: dict[str, Any]) -> None:
    shown = {
        name + suffix: about.labels
        for name, about in METRICS.items()
        for suffix in (("_bucket", "_sum", "_count") if about.kind is Kind.HISTOGRAM else ("",))
    }
    named = [(name, told) for name, told in SERIES.findall(rule["expr"]) if "_" in name and name not in WORDS]

    assert named
    for name, told in named:
        assert name in shown, name
        assert set(re.findall(r"(\w+)\s*=", told)) <= set(shown[name]), told
    assert rule["expr"].count("(") == rule["expr"].count(")")
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    assert re.fullmatch(r"\d+[mh]", rule.get("for", "0m"))


def test_promtool_takes_the_rules_where_there_is_one() -> None:
    assert len({rule["alert"] for rule in ALL}) == len(ALL)
    promtool = shutil.which("promtool")
    if promtool:
        checked = subprocess.run([promtool, "check", "rules", str(RULES)], capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", [rule["alert"] for rule in ALL])
def test_whoever_is_woken_finds_what_it_means_and_what_to_do(name: str) -> None:
    assert len(paragraph(name)) > 80
    assert re.search(r"\*\*Do:\*\*|remedy", paragraph(name))


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_by_webhook_has_its_paragraph(name: str) -> None:
    assert len(paragraph(name)) > 60


def test_no_paragraph_explains_an_alert_that_there_is_not() -> None:
    told = set(re.findall(r"^### (\w+)$", NIGHT, re.MULTILINE))

    assert told == {rule["alert"] for rule in ALL} | ALERTS.keys()


def test_the_table_of_metrics_equals_the_code() -> None:
    documented = {name: (c[0], re.findall(r"\w+", c[1]), c[2]) for name, c in rows("metrics.md").items()}

    assert documented == {name: (m.kind, list(m.labels), m.help) for name, m in METRICS.items()}


def test_the_table_of_webhooks_equals_the_code() -> None:
    told = rows("webhooks.md")
    types = {name: told[name] for name in told if name.startswith(("job_", "worker_", "breaker_", "stale_", TEST))}
    types.pop("job_id")  # a field of the body

    assert types.keys() == {*CALLBACKS.values(), *ALERTS, TEST}
    assert {name: types[name][1] for name in ALERTS} == dict(ALERTS)


def test_the_snippet_that_checks_a_signature_works_as_it_stands_in_the_docs() -> None:
    page = (ROOT / "docs/how-to/webhooks.md").read_text()
    (snippet,) = [b for b in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "is_ours" in b]
    scope: dict[str, Any] = {}
    exec(snippet, scope)
    is_ours, now = scope["is_ours"], int(time.time())
    good = webhooks.sign("secret", now, b"body")

    assert is_ours("secret", good, b"body")
    assert not is_ours("another", good, b"body")
    assert not is_ours("secret", good, b"body!")
    assert not is_ours("secret", webhooks.sign("secret", now - 301, b"body"), b"body")
    assert not is_ours("secret", good.replace(f"t={now}", f"t={now - 1}"), b"body")
    assert not is_ours("secret", "nonsense", b"body")
    assert not is_ours("secret", "", b"body")
