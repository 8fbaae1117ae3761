"""Does compose.yaml say what we run, and does everything that it names exist?

There may be no engine to start it with: so each command in it is compared with one that other tests do run, and the
scripts that only it uses are run here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from redis.backoff import NoBackoff
from redis.retry import Retry

from pipeline import settings
from pipeline.embedded.redis import program as redis_program
from pipeline.embedded.server import free_port
from pipeline.processes import wait_until
from pipeline.supervisor import WORKER_ENV, commands

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ["migrate", "worker", "beat", "flower", "api"]


def test_it_is_a_valid_compose_file() -> None:
    check = Path(sys.executable).with_name("check-jsonschema")

    done = subprocess.run(
        [check, "--builtin-schema", "vendor.compose-spec", "compose.yaml"], cwd=ROOT, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_whatever_a_service_refers_to_exists(name: str) -> None:
    service = SERVICES[name]
    mounts = [volume.split(":")[0] for volume in service.get("volumes", [])]

    assert set(service.get("depends_on", {})) <= set(SERVICES)
    assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])
    assert {m for m in mounts if not m.startswith(".")} <= set(COMPOSE["volumes"])
    assert all((ROOT / m).exists() for m in mounts if m.startswith("."))


def test_nothing_is_declared_that_nobody_uses() -> None:
    used = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])]
    secrets = [secret for service in SERVICES.values() for secret in service.get("secrets", [])]

    assert set(COMPOSE["volumes"]) == {name for name in used if not name.startswith(".")}
    assert set(COMPOSE["secrets"]) == set(secrets)


def test_who_waits_for_health_waits_for_somebody_that_is_asked_for_it() -> None:
    for service in SERVICES.values():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other]


@pytest.mark.parametrize("position", range(4))
def test_worker_beat_flower_and_the_api_run_the_commands_that_we_run_everywhere(position: int) -> None:
    everywhere = {"flower_address": "0.0.0.0", "api_address": "0.0.0.0"}
    child = commands(
        {}, home=Path("/var/lib/ironclip"), flower_port=5555, flower_login="x:y", api_port=8000, **everywhere
    )[position]

    assert SERVICES[child.name]["command"] == [Path(child.argv[0]).name, *child.argv[1:]]


def test_the_worker_is_stopped_the_way_celery_needs_it() -> None:
    worker = SERVICES["worker"]
    grace_s = int(worker["environment"]["SHUTDOWN_GRACE_SEC"])

    assert worker["environment"].items() >= WORKER_ENV.items()
    assert int(worker["stop_grace_period"].removesuffix("s")) >= grace_s + 5


@pytest.mark.parametrize("name", OURS)
def test_variables_are_settings_that_exist_and_hold_no_secret(name: str) -> None:
    known = {alias for field in settings.Settings.model_fields for alias in settings.env_names(field)}
    environment = SERVICES[name]["environment"]

    assert set(environment) <= known | {"REMAP_SIGTERM", "FLOWER_BASIC_AUTH"}
    for value in environment.values():
        assert set(re.findall(r"\{(\w+)\}", value)) <= set(SERVICES[name]["secrets"])
        assert not re.search(r"://\w*:(?!\{)", value)


def test_only_flower_and_the_api_are_reachable_and_only_from_this_machine() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert ports == {"flower": ["127.0.0.1:5555:5555"], "api": ["127.0.0.1:8000:8000"]}


def test_a_prometheus_in_the_network_finds_every_worker_where_the_docs_say() -> None:
    worker = SERVICES["worker"]
    shown = re.search(r"```yaml\n(.*?)```", (ROOT / "docs/how-to/metrics.md").read_text(), re.DOTALL)
    assert shown is not None
    workers, fleet = yaml.safe_load(shown.group(1))["scrape_configs"]
    (found,) = workers["dns_sd_configs"]

    assert found["names"] == ["worker"]
    assert str(found["port"]) == worker["environment"]["METRICS_PORT"]
    assert worker["expose"] == [worker["environment"]["METRICS_PORT"]]
    assert worker["environment"]["METRICS_ADDRESS"] == "0.0.0.0"
    assert fleet["static_configs"] == [{"targets": ["api:8000"]}]


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    subprocess.run(["sh", "deploy/make-secrets", str(folder)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return folder


def test_secrets_are_made_once_and_under_the_names_that_compose_reads(secrets: Path) -> None:
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    subprocess.run(["sh", "deploy/make-secrets", str(secrets)], cwd=ROOT, check=True)

    assert {path.name: path.read_text() for path in secrets.iterdir()} == before
    assert {Path(each["file"]).name for each in COMPOSE["secrets"].values()} == set(before)
    assert all(re.fullmatch("[0-9a-f]{48}", value) for value in before.values())


def enter(command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    whole = {"PATH": os.environ["PATH"], **env}
    return subprocess.run(
        ["sh", str(ROOT / "deploy" / "entrypoint"), *command], env=whole, capture_output=True, text=True
    )


def test_the_entrypoint_puts_secrets_into_addresses_and_nothing_else(secrets: Path) -> None:
    told = SERVICES["flower"]["environment"]

    done = enter(["env"], SECRETS_DIR=str(secrets), OTHER="{postgres_password}", **told)

    seen = dict(line.split("=", 1) for line in done.stdout.splitlines())
    password = (secrets / "postgres_password").read_text()
    assert seen["DATABASE_URL"] == f"postgresql+psycopg2://ironclip:{password}@postgres:5432/ironclip"
    assert seen["BROKER_URL"] == f"redis://:{(secrets / 'redis_password').read_text()}@redis:6379/0"
    assert seen["FLOWER_BASIC_AUTH"] == f"ironclip:{(secrets / 'flower_password').read_text()}"
    assert seen["OTHER"] == "{postgres_password}"


def test_the_entrypoint_says_which_secret_is_missing_or_cannot_stand_in_an_address(secrets: Path) -> None:
    url = "redis://:{redis_password}@redis"

    missing = enter(["true"], SECRETS_DIR="/nowhere", BROKER_URL=url)
    (secrets / "redis_password").write_text("p@ss/word&")
    unfit = enter(["true"], SECRETS_DIR=str(secrets), BROKER_URL=url)

    assert missing.returncode == unfit.returncode == 1
    assert missing.stderr == "BROKER_URL needs the secret /nowhere/redis_password, which cannot be read\n"
    assert unfit.stderr == "the secret redis_password may hold only letters, digits, - and _\n"


def test_redis_starts_as_compose_starts_it_and_forgets_nothing(secrets: Path, tmp_path: Path) -> None:
    port = free_port()
    command = ["sh", "deploy/redis", str(tmp_path), str(port)]
    assert SERVICES["redis"]["command"] == ["sh", "/deploy/redis", "/data"]
    password = (secrets / "redis_password").read_text()
    env = {**os.environ, "SECRETS_DIR": str(secrets), "REDIS_SERVER": redis_program()}
    client = redis.Redis(port=port, password=password, retry=Retry(NoBackoff(), 0), decode_responses=True)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False

    server = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    try:
        assert wait_until(answers, 10)
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        assert client.config_get("appendfsync") == {"appendfsync": "everysec"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert password not in Path(f"/proc/{server.pid}/cmdline").read_text()
    finally:
        client.close()
        server.terminate()
        server.wait(10)
