"""What may be configured, under which name, and where did a value come from?

Everything is read once from the environment, under the names that operators know. Where two names mean the same
thing, the first one listed wins. A bad value stops the start with one sentence that names it.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pipeline.core.credits import Prices, special
from pipeline.core.errors import SettingInvalid
from pipeline.core.request import web_address
from pipeline.core.window import Shape, Silence, limits

HIDDEN = frozenset({"webhook_secret", "alert_webhook_url"})  # a path may be a secret too
POSTGRES_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg2")  # each means our driver, whatever the default is


def _named(*names: str, default: Any, why: str, **limits: Any) -> Any:
    return Field(default=default, description=why, validation_alias=AliasChoices(*names), **limits)


class Settings(BaseSettings):
    """Every setting, its default and its limits."""

    model_config = SettingsConfigDict(extra="ignore", frozen=True, env_ignore_empty=True)

    # -- where things are
    database_url: str = _named("DATABASE_URL", default="", why="Postgres, the only truth")
    broker_url: str = _named("BROKER_URL", "REDIS_URL", default="", why="where hints travel: redis:// or amqp://")
    scratch_dir: Path = _named(
        "SCRATCH_DIR", default=Path(tempfile.gettempdir()) / "ironclip", why="working files, a folder per job and lease"
    )
    output_dir: Path = _named("OUTPUT_DIR", default=Path("output"), why="folder of the file target named 'local'")
    targets_file: Path | None = _named("TARGETS_FILE", default=None, why="TOML file with further targets")
    min_free_disk_bytes: int = _named(
        "MIN_FREE_DISK_BYTES", default=1024**3, why="with less free scratch a worker takes no new work", ge=0
    )
    min_free_memory_bytes: int = _named(
        "MIN_FREE_MEMORY_BYTES", default=128 * 1024**2, why="with less free memory a worker takes no new work", ge=0
    )
    ffmpeg: str = _named("FFMPEG", default="", why="path of ffmpeg; empty: the one from the wheel, then PATH")

    # -- leases
    default_lease_sec: float = _named(
        "DEFAULT_LEASE_SEC", "LEASE_TIMEOUT_SEC", "QUEUE_VISIBILITY_SEC", default=300, why="life of a lease", gt=0
    )
    heartbeat_sec: float = _named(
        "HEARTBEAT_SEC", "HEARTBEAT_INTERVAL_SEC", default=15, why="a worker renews its leases this often", gt=0
    )
    stall_interval_sec: float = _named(
        "STALL_INTERVAL_SEC", default=30, why="standstills are looked for this often", gt=0
    )
    recovery_scan_interval_sec: float = _named(
        "RECOVERY_SCAN_INTERVAL_SEC", default=1800, why="the deep scan for what is stuck runs this often", gt=0
    )
    stuck_after_sec: float = _named(
        "STUCK_AFTER_SEC", default=1800, why="the deep scan looks at what has been running for longer than this", gt=0
    )
    recovery_limit_sec: float = _named(
        "RECOVERY_LIMIT_SEC", default=7200, why="what the deep scan finds stuck for longer than this has failed", gt=0
    )
    canary_sec: float = _named(
        "CANARY_SEC", default=30, why="a worker sends itself a message this often; three lost ones stop it", gt=0
    )
    database_grace_sec: float = _named(
        "DATABASE_GRACE_SEC", default=120, why="after an outage of Postgres silence proves nothing this long", ge=0
    )
    pulse_sec: float = _named("PULSE_SEC", default=1, why="a running stage checks its fence this often", gt=0, le=2)
    worker_offline_sec: float = _named(
        "WORKER_OFFLINE_SEC", default=90, why="silence after which a worker is dead", gt=0
    )
    reaper_interval_sec: float = _named(
        "REAPER_INTERVAL_SEC", "STALE_JOB_CHECK_INTERVAL", default=60, why="the reaper runs this often", gt=0
    )
    shutdown_grace_sec: float = _named(
        "SHUTDOWN_GRACE_SEC", default=20, why="how long a stopping worker lets its stages finish", ge=0
    )

    # -- attempts
    job_max_attempts: int = _named(
        "JOB_MAX_ATTEMPTS",
        "QUEUE_MAX_ATTEMPTS",
        "MAX_RETRY_ATTEMPTS",
        default=3,
        why="runs of a stage; the row wins",
        ge=1,
    )
    backoff_base_ms: int = _named(
        "JOB_RETRY_BACKOFF_MS_BASE", "QUEUE_RETRY_BACKOFF_MS_BASE", default=60_000, why="first retry delay", ge=0
    )
    backoff_max_ms: int = _named(
        "JOB_RETRY_BACKOFF_MS_MAX", "QUEUE_RETRY_BACKOFF_MS_MAX", default=1_800_000, why="longest retry delay", ge=0
    )
    max_wait_sec: float = _named("MAX_WAIT_SEC", default=86_400, why="longest wait for a service that is down", gt=0)
    probe_interval_sec: float = _named(
        "PROBE_INTERVAL_SEC", default=15, why="services that were given up are tried this often, when it is time", gt=0
    )
    clip_sla_factor: float = _named(
        "CLIP_SLA_FACTOR", default=6, why="deadline of clip: expected duration x this", gt=0
    )
    asr_sla_factor: float = _named("ASR_SLA_FACTOR", default=12, why="deadline of asr: expected duration x this", gt=0)
    burnin_sla_factor: float = _named("BURNIN_SLA_FACTOR", default=8, why="deadline of burn-in: duration x this", gt=0)

    # -- dispatch
    sweep_interval_sec: float = _named("SWEEP_INTERVAL_SEC", default=5, why="due rows are published this often", gt=0)
    republish_sec: float = _named(
        "REPUBLISH_SEC", default=60, why="a queue's marker is missed after this, and the broker is asked", gt=0
    )
    sweep_batch: int = _named("SWEEP_BATCH", default=500, why="rows published by one sweep at most", ge=1)
    window_per_slot: int = _named("WINDOW_PER_SLOT", default=4, why="jobs published for each slot of a queue", ge=1)
    window_min: int = _named("WINDOW_MIN", default=8, why="jobs published to a queue that somebody serves", ge=1)
    marker_grace_sec: float = _named(
        "MARKER_GRACE_SEC", default=5, why="time from a hint to its message, and from its delivery to the claim", gt=0
    )
    ageing_sec: float = _named("AGEING_SEC", default=600, why="a job moves up one priority for each wait of this", gt=0)
    stage_limits: str = _named(
        "STAGE_LIMITS", default="resolve=10,clip=5,upload=2", why="how many of a stage one worker runs at once"
    )
    fleet_limits: str = _named(
        "FLEET_LIMITS", default="", why="how many of a stage all workers together run at once, like asr=2,clip=20"
    )
    max_concurrency: int | None = _named("MAX_CONCURRENCY", default=None, why="worker slots; empty: one per core", ge=1)

    # -- sources
    source_max_bytes: int = _named("SOURCE_MAX_BYTES", default=20 * 1024**3, why="largest source that is fetched", gt=0)
    source_timeout_sec: float = _named("SOURCE_TIMEOUT_SEC", default=3600, why="longest download of a source", gt=0)
    source_stall_sec: float = _named(
        "SOURCE_STALL_SEC", default=60, why="a source's server that sends nothing for so long has broken off", gt=0
    )
    ytdlp_timeout_sec: float = _named(
        "YTDLP_TIMEOUT_SEC", "YTDLP_TIMEOUT", default=3600, why="longest visit to a site, its download included", gt=0
    )
    source_roots: str = _named(
        "SOURCE_ROOTS", default="", why="folders that local sources may come from, ':' between them; empty: any"
    )
    source_buckets: str = _named(
        "SOURCE_BUCKETS", default="", why="buckets that s3:// sources may come from, with ',' between; empty: ours"
    )
    source_allow_hosts: str = _named(
        "SOURCE_ALLOW_HOSTS", default="", why="private hosts or networks that may be fetched from, ',' between them"
    )

    # -- clips
    hls_segment_sec: float = _named(
        "HLS_SEGMENT_SEC", default=4, why="length of an HLS segment, to the nearest picture", ge=0.2, le=30
    )
    hls_group_segments: int = _named(
        "HLS_GROUP_SEGMENTS", default=6, why="segments that are made together; a crash costs at most one group", ge=1
    )
    verify_decode: bool = _named(
        "VERIFY_DECODE", default=False, why="decode every file that was made, besides counting its packets"
    )

    # -- captions
    asr_engine: str = _named("ASR_ENGINE", default="whisper", why="engine that makes captions: whisper or http")
    asr_model: str = _named(
        "ASR_MODEL", default="", why="folder or name of a Whisper model; empty: the embedded tiny.en (http: whisper-1)"
    )
    asr_threads: int = _named("ASR_THREADS", default=0, why="threads of one transcription; 0: the engine decides", ge=0)
    asr_window_sec: float = _named(
        "ASR_WINDOW_SEC", default=300, why="longer sound is heard in windows of about this, each remembered", ge=1
    )
    asr_url: str = _named("ASR_URL", default="", why="of engine http: an OpenAI-compatible address that ends in /v1")
    asr_api_key: SecretStr = _named("ASR_API_KEY", default=SecretStr(""), why="of engine http: its key")
    asr_timeout_sec: float = _named("ASR_TIMEOUT_SEC", default=300, why="of engine http: one answer's time", gt=0)

    # -- HTTP
    api_timeout_sec: float = _named(
        "API_TIMEOUT_SEC", default=5, why="longest that a request waits for Postgres before it gets a 503", gt=0
    )
    api_rate_per_sec: float = _named(
        "API_RATE_PER_SEC", default=50, why="requests a second that one API key may make, on average", gt=0
    )
    api_burst: int = _named("API_BURST", default=200, why="requests that one API key may make at once", ge=1)
    upload_max_bytes: int = _named(
        "UPLOAD_MAX_BYTES", default=20 * 1024**3, why="largest source that is taken over HTTP", gt=0
    )
    link_sec: float = _named("LINK_SEC", default=3600, why="life of a signed link to a file", gt=0)
    session_sec: float = _named("SESSION_SEC", default=43_200, why="life of a login at the dashboard", gt=0)
    flower_url: str = _named("FLOWER_URL", default="", why="where the dashboard's link to Flower leads; empty: no link")

    # -- credits and clean-up
    credits_per_output: int = _named("CREDITS_PER_OUTPUT", default=1, why="what an account pays for one output", ge=0)
    credit_prices: str = _named(
        "CREDIT_PRICES", default="", why="kinds of output with a price of their own, like captions=2,burnin=3"
    )
    prune_interval_sec: float = _named(
        "PRUNE_INTERVAL_SEC", default=600, why="what nobody needs is cleared away this often", gt=0
    )
    prune_delay_sec: float = _named(
        "PRUNE_DELAY_SEC", default=3600, why="what nobody refers to any more is left alone this long", ge=60
    )
    retention_jobs_days: float = _named(
        "RETENTION_JOBS_DAYS", default=0, why="ended jobs are forgotten after this; 0: never", ge=0
    )
    retention_events_days: float = _named(
        "RETENTION_EVENTS_DAYS", default=0, why="of an ended job's story only both ends stay after this; 0: all", ge=0
    )
    retention_artifacts_days: float = _named(
        "RETENTION_ARTIFACTS_DAYS", default=0, why="an ended job's files are deleted after this; 0: never", ge=0
    )
    retention_uploads_days: float = _named(
        "RETENTION_UPLOADS_DAYS", default=7, why="uploads go when no job has needed them for this; 0: never", ge=0
    )
    retention_workers_days: float = _named(
        "RETENTION_WORKERS_DAYS", default=30, why="dead workers are forgotten after this; 0: never", ge=0
    )

    # -- who is told, and how
    webhook_secret: str = _named(
        "WEBHOOK_SECRET", default="", why="signs callbacks and what goes to ALERT_WEBHOOK_URL; without it none is sent"
    )
    alert_webhook_url: str = _named(
        "ALERT_WEBHOOK_URL", default="", why="where alerts go, besides the endpoints that were added"
    )
    alert_cooldown_sec: float = _named(
        "ALERT_RATE_LIMIT_SECONDS", default=300, why="an alert of one type is told once in this time", ge=0
    )
    alert_pattern_jobs: int = _named(
        "ALERT_PATTERN_JOBS", default=5, why="so many jobs that fail by the same code are a pattern ...", ge=2
    )
    alert_pattern_sec: float = _named("ALERT_PATTERN_SEC", default=600, why="... within this time", gt=0)
    webhook_timeout_sec: float = _named(
        "WEBHOOK_TIMEOUT_SEC", "ALERT_WEBHOOK_TIMEOUT", default=10, why="an endpoint answers within this time", gt=0
    )
    webhook_interval_sec: float = _named(
        "WEBHOOK_INTERVAL_SEC", default=5, why="webhooks that are due are sent this often", gt=0
    )
    webhook_max_tries: int = _named("WEBHOOK_MAX_TRIES", default=8, why="tries before a webhook is given up", ge=1)
    webhook_keep_days: float = _named(
        "WEBHOOK_KEEP_DAYS", default=30, why="what was sent or given up is remembered so long", gt=0
    )
    webhook_allow_hosts: str = _named(
        "WEBHOOK_ALLOW_HOSTS", default="", why="private hosts or networks that webhooks may go to, ',' between them"
    )
    metrics_port: int = _named(
        "METRICS_PORT", default=0, why="a worker answers Prometheus at this port; 0: it does not", ge=0, le=65535
    )
    metrics_address: str = _named(
        "METRICS_ADDRESS", default="127.0.0.1", why="where it listens for that; there is no password"
    )
    log_level: str = _named("LOG_LEVEL", default="INFO", why="DEBUG, INFO, WARNING or ERROR")
    log_format: str = _named("LOG_FORMAT", default="json", why="json: an object a line; text: for people")

    @field_validator("database_url")
    @classmethod
    def _our_driver(cls, value: str) -> str:
        scheme, mark, rest = value.partition("://")
        if value and (not mark or scheme not in POSTGRES_SCHEMES):
            raise ValueError("must be an address like postgresql://user:password@host:5432/name")
        return f"postgresql+psycopg2://{rest}" if value else value

    @field_validator("broker_url")
    @classmethod
    def _an_address(cls, value: str) -> str:
        if value and "://" not in value:
            raise ValueError("must be an address like redis://:password@host:6379/0")
        return value

    @field_validator("asr_url")
    @classmethod
    def _an_engines_address(cls, value: str) -> str:
        if value and not (value.startswith(("http://", "https://")) and urlsplit(value).hostname):
            raise ValueError("must be an address like https://asr.example.org/v1")
        return value.rstrip("/")

    @field_validator("stage_limits", "fleet_limits")
    @classmethod
    def _known_stages(cls, value: str) -> str:
        limits(value)
        return value

    @field_validator("alert_webhook_url")
    @classmethod
    def _an_alert_address(cls, value: str) -> str:
        if value and web_address(value) is None:
            raise ValueError("must be an address like https://example.org/alerts")
        return value

    @field_validator("log_format")
    @classmethod
    def _known_format(cls, value: str) -> str:
        if value.lower() not in {"json", "text"}:
            raise ValueError("must be json or text")
        return value.lower()

    @field_validator("credit_prices")
    @classmethod
    def _known_kinds(cls, value: str) -> str:
        special(value)
        return value

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
            raise ValueError("must be DEBUG, INFO, WARNING or ERROR")
        return value.upper()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (env_settings,)

    def prices(self) -> Prices:
        """What each kind of output costs."""
        return Prices(self.credits_per_output, special(self.credit_prices))

    def shape(self) -> Shape:
        """How much may be on its way, and how many of a stage may run at once."""
        return Shape(
            per_slot=self.window_per_slot,
            at_least=self.window_min,
            per_worker=limits(self.stage_limits),
            fleet=limits(self.fleet_limits),
        )

    def silence(self) -> Silence:
        """For how long a worker may be silent."""
        offline, fresh = self.worker_offline_sec, 2 * self.heartbeat_sec
        return Silence(timedelta(seconds=offline), timedelta(seconds=min(offline, fresh)))

    @property
    def uploads(self) -> Path:
        """Where sources lie that came over HTTP, a folder for each account."""
        return self.scratch_dir / "uploads"

    def need(self, *names: str) -> None:
        """Refuse to go on while one of these settings is empty."""
        missing = [env_names(n)[0] for n in names if not getattr(self, n)]
        if missing:
            verb = "are" if len(missing) > 1 else "is"
            raise SettingInvalid(f"{' and '.join(missing)} {verb} not set; `ironclip config` lists every setting.")


def env_names(field: str) -> list[str]:
    """The environment names of a setting, the one that wins first."""
    alias = Settings.model_fields[field].validation_alias
    assert isinstance(alias, AliasChoices)
    return [str(name) for name in alias.choices]


@cache
def current() -> Settings:
    """The settings of this process, read from the environment at the first call."""
    try:
        return Settings()
    except ValidationError as exc:
        first = exc.errors()[0]
        name = str(first["loc"][0]).upper()
        raise SettingInvalid(
            f"{name} cannot be used: {first['msg'].removeprefix('Value error, ').rstrip('.')}."
        ) from None


@dataclass(frozen=True)
class Shown:
    """One setting as `ironclip config` prints it."""

    name: str
    value: str
    origin: str
    why: str


def describe() -> list[Shown]:
    """Every setting with its value (secrets hidden) and the environment name that it came from."""
    now = current()
    rows = []
    for field, info in Settings.model_fields.items():
        names = env_names(field)
        origin = next((n for n in names if os.environ.get(n)), None)
        value = getattr(now, field)
        shown = "" if value in (None, "") else "***" if field in HIDDEN else without_secret(str(value))
        rows.append(Shown(names[0], shown, f"environment ({origin})" if origin else "default", info.description or ""))
    return rows


def without_secret(url: str) -> str:
    """The URL with its password and query replaced, so that it can be shown."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = parts.username or ""
    netloc = f"{user}:***@{host}" if parts.password else parts.netloc
    return urlunsplit(parts._replace(netloc=netloc, query="***" if parts.query else ""))
