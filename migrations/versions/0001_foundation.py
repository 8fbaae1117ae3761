"""The tables that a job lives in, and the sentences that the database itself enforces.

`jobs` and `asr_jobs` share their lease columns and CHECKs to the letter: the same code moves both.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None

# What the machine looks at: the same in both tables. Where a row belongs to a parent, the parent's fence guards it.
MOVING = """
    status                text NOT NULL DEFAULT 'queued',
    stage                 text NOT NULL,
    plan                  text[] NOT NULL,
    version               bigint NOT NULL DEFAULT 0,
    run                   int NOT NULL DEFAULT 1,
    generation            int NOT NULL DEFAULT 0,
    building              int NOT NULL DEFAULT 1,
    outcome               text,
    priority              text NOT NULL DEFAULT 'normal',
    recovery              boolean NOT NULL DEFAULT false,
    request               jsonb NOT NULL DEFAULT '{}',
    context               jsonb NOT NULL DEFAULT '{}',

    locked_by             text,
    fence                 uuid,
    request_id            text,
    lease_expires_at      timestamptz,
    deadline_at           timestamptz,
    processing_started_at timestamptz,
    last_heartbeat_at     timestamptz,

    attempt_count         int NOT NULL DEFAULT 0,
    max_attempts          int NOT NULL DEFAULT 3,
    crash_count           int NOT NULL DEFAULT 0,
    release_count         int NOT NULL DEFAULT 0,
    rewind_count          int NOT NULL DEFAULT 0,

    next_earliest_run_at  timestamptz,
    skip_until            timestamptz,
    waiting_on            text,
    first_deferred_at     timestamptz,
    published_at          timestamptz,

    progress              double precision NOT NULL DEFAULT 0,
    last_progress_value   double precision,
    last_progress_update  timestamptz,
    checkpoint            jsonb NOT NULL DEFAULT '{}',

    expected_duration_ms  bigint,
    deadline_ms           bigint,
    fail_code             text,
    fail_reason           text,
    last_error            text,
    error_history         jsonb NOT NULL DEFAULT '[]',
    created_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at           timestamptz,

    CONSTRAINT status_is_known CHECK (status IN ('queued', 'processing', 'completed', 'failed', 'cancelled')),
    CONSTRAINT stage_is_in_the_plan CHECK (stage = ANY (plan)),
    CONSTRAINT outcome_is_known CHECK (outcome IN ('full', 'partial')),
    CONSTRAINT priority_is_known CHECK (priority IN ('high', 'normal', 'low')),
    CONSTRAINT a_lease_is_whole CHECK (
        num_nonnulls(locked_by, fence, lease_expires_at, deadline_at, last_heartbeat_at) IN (0, 5)),
    CONSTRAINT attempts_stay_within_the_limit CHECK (attempt_count BETWEEN 0 AND max_attempts),
    CONSTRAINT whoever_queues_has_attempts_left CHECK (status <> 'queued' OR attempt_count < max_attempts),
    CONSTRAINT whoever_runs_has_spent_an_attempt CHECK (status <> 'processing' OR attempt_count > 0),
    CONSTRAINT counters_are_not_negative CHECK (least(crash_count, release_count, rewind_count) >= 0),
    CONSTRAINT rewinds_end CHECK (rewind_count <= 3),
    CONSTRAINT waiting_names_its_service CHECK ((skip_until IS NULL) = (waiting_on IS NULL)),
    CONSTRAINT waiting_has_a_beginning CHECK (skip_until IS NULL OR first_deferred_at IS NOT NULL),
    CONSTRAINT an_end_has_a_time CHECK ((status IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT failed_says_why CHECK ((status = 'failed') = (num_nonnulls(fail_code, fail_reason) = 2)),
    CONSTRAINT completed_is_published CHECK (status <> 'completed' OR (outcome IS NOT NULL AND generation > 0)),
    CONSTRAINT a_new_generation_is_the_next_one CHECK (building - generation IN (0, 1)),
    CONSTRAINT progress_is_a_percentage CHECK (progress BETWEEN 0 AND 100)
"""

UPGRADE = f"""
CREATE TABLE accounts (
    id         text PRIMARY KEY,
    balance    bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT nobody_overdraws CHECK (balance >= 0)
);

CREATE TABLE jobs (
    id               uuid PRIMARY KEY,
    account_id       text REFERENCES accounts (id),
    idempotency_key  text,
    request_hash     text NOT NULL,
    pipeline_version text NOT NULL DEFAULT '1',
    {MOVING},
    CONSTRAINT leased_iff_processing CHECK ((status = 'processing') = (fence IS NOT NULL))
);
CREATE UNIQUE INDEX one_job_per_idempotency_key ON jobs (coalesce(account_id, ''), idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- Hot queries look at living rows only, so a million finished ones cost them nothing.
CREATE INDEX idx_jobs_status_lease ON jobs (status, lease_expires_at) WHERE status = 'processing';
CREATE INDEX idx_jobs_holder ON jobs (locked_by) WHERE status = 'processing';
CREATE INDEX idx_jobs_started ON jobs (status, processing_started_at) WHERE status = 'processing';
CREATE INDEX idx_jobs_unpublished ON jobs (recovery DESC, priority, created_at)
    WHERE status = 'queued' AND published_at IS NULL;
CREATE INDEX idx_jobs_published ON jobs (published_at) WHERE status = 'queued' AND published_at IS NOT NULL;
CREATE INDEX idx_jobs_created ON jobs (created_at DESC, id);

CREATE TABLE outputs (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id        uuid NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    generation    int NOT NULL DEFAULT 1,
    name          text NOT NULL,
    kind          text NOT NULL,
    clip          text NOT NULL,
    quality       text,
    critical      boolean NOT NULL DEFAULT false,
    price         bigint NOT NULL DEFAULT 0,
    status        text NOT NULL DEFAULT 'pending',
    progress_percent double precision NOT NULL DEFAULT 0,
    files         jsonb NOT NULL DEFAULT '[]',
    facts         jsonb NOT NULL DEFAULT '{{}}',
    error_code    text,
    error_message text,
    started_at    timestamptz,
    completed_at  timestamptz,
    CONSTRAINT one_output_per_name UNIQUE (job_id, generation, name),
    CONSTRAINT output_kind_is_known CHECK (kind IN ('video', 'captions', 'burnin')),
    CONSTRAINT output_status_is_known CHECK (status IN ('pending', 'in_progress', 'completed', 'failed', 'skipped')),
    CONSTRAINT a_completed_output_has_files CHECK (status <> 'completed' OR jsonb_array_length(files) > 0),
    CONSTRAINT a_failed_output_says_why CHECK (status <> 'failed' OR error_code IS NOT NULL),
    CONSTRAINT output_progress_is_a_percentage CHECK (progress_percent BETWEEN 0 AND 100)
);

CREATE TABLE asr_jobs (
    id         uuid PRIMARY KEY,
    job_id     uuid REFERENCES jobs (id) ON DELETE CASCADE,
    output_id  bigint REFERENCES outputs (id) ON DELETE CASCADE,
    account_id text REFERENCES accounts (id),
    transcript jsonb,
    {MOVING},
    CONSTRAINT alone_it_is_leased_iff_processing
        CHECK ((status = 'processing' AND job_id IS NULL) = (fence IS NOT NULL))
);
CREATE UNIQUE INDEX one_transcription_per_output ON asr_jobs (output_id) WHERE output_id IS NOT NULL;
CREATE INDEX idx_asr_jobs_status_lease ON asr_jobs (status, lease_expires_at) WHERE status = 'processing';
CREATE INDEX idx_asr_jobs_unpublished ON asr_jobs (recovery DESC, priority, created_at)
    WHERE status = 'queued' AND published_at IS NULL AND job_id IS NULL;

CREATE TABLE deliveries (
    output_id    bigint NOT NULL REFERENCES outputs (id) ON DELETE CASCADE,
    target       text NOT NULL,
    job_id       uuid NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    status       text NOT NULL,
    files        jsonb NOT NULL DEFAULT '[]',
    error_code   text,
    error_message text,
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (output_id, target),
    CONSTRAINT delivery_status_is_known CHECK (status IN ('delivered', 'refused'))
);
CREATE INDEX idx_deliveries_job ON deliveries (job_id);

CREATE TABLE checkpoints (
    job_id     uuid NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    generation int NOT NULL,
    key        text NOT NULL,
    fence      uuid NOT NULL,
    record     jsonb NOT NULL,
    made_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job_id, generation, key)
);

CREATE TABLE job_events (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id  uuid NOT NULL,
    "table" text NOT NULL DEFAULT 'jobs',
    type    text NOT NULL,
    stage   text,
    attempt int,
    data    jsonb NOT NULL DEFAULT '{{}}',
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX idx_job_events_job ON job_events (job_id, id);

CREATE FUNCTION job_events_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job_events is append only';
END $$;
CREATE TRIGGER job_events_are_append_only BEFORE UPDATE ON job_events
    FOR EACH ROW EXECUTE FUNCTION job_events_are_append_only();

CREATE TABLE job_attempts (
    fence      uuid PRIMARY KEY,
    job_id     uuid NOT NULL,
    "table"    text NOT NULL DEFAULT 'jobs',
    run        int NOT NULL,
    stage      text NOT NULL,
    attempt    int NOT NULL,
    worker     text NOT NULL,
    request_id text,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz,
    ended_by   text,
    CONSTRAINT an_ended_attempt_says_how CHECK ((ended_at IS NULL) = (ended_by IS NULL))
);
CREATE INDEX idx_job_attempts_job ON job_attempts (job_id, started_at);

CREATE TABLE credit_entries (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id text NOT NULL REFERENCES accounts (id),
    job_id     uuid,
    output_id  bigint,
    run        int,
    kind       text NOT NULL,
    amount     bigint NOT NULL,
    note       text,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT an_entry_is_made_once UNIQUE (job_id, output_id, run, kind),
    CONSTRAINT entry_kind_is_known CHECK (kind IN ('grant', 'hold', 'charge', 'refund')),
    CONSTRAINT work_entries_name_their_output CHECK (kind = 'grant' OR num_nonnulls(job_id, output_id, run) = 3)
);
CREATE INDEX idx_credit_entries_account ON credit_entries (account_id, id);
-- A hold ends once: charged or given back, never both.
CREATE UNIQUE INDEX a_hold_ends_once ON credit_entries (job_id, output_id, run) WHERE kind IN ('charge', 'refund');

CREATE TABLE workers (
    id             uuid PRIMARY KEY,
    name           text NOT NULL,
    hostname       text NOT NULL,
    type           text NOT NULL DEFAULT 'local',
    status         text NOT NULL DEFAULT 'active',
    queues         text[] NOT NULL DEFAULT '{{}}',
    slots          int NOT NULL DEFAULT 1,
    boot_id        text,
    pid            int,
    pid_started    text,
    current_job_id uuid,
    capabilities   jsonb NOT NULL DEFAULT '{{}}',
    metadata       jsonb NOT NULL DEFAULT '{{}}',
    registered_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_heartbeat timestamptz,
    stopped_at     timestamptz,
    CONSTRAINT worker_type_is_known CHECK (type IN ('local', 'remote')),
    CONSTRAINT worker_status_is_known CHECK (status IN ('active', 'idle', 'busy', 'offline', 'disabled')),
    CONSTRAINT worker_notes_stay_small CHECK (
        octet_length(capabilities::text) <= 10240 AND octet_length(metadata::text) <= 10240)
);
CREATE INDEX idx_workers_alive ON workers (last_heartbeat) WHERE status NOT IN ('offline', 'disabled');

CREATE TABLE api_keys (
    id           uuid PRIMARY KEY,
    prefix       char(8) NOT NULL,
    sha256       char(64) NOT NULL UNIQUE,
    role         text NOT NULL,
    account_id   text REFERENCES accounts (id),
    worker_id    uuid REFERENCES workers (id),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_used_at timestamptz,
    revoked_at   timestamptz,
    CONSTRAINT role_is_known CHECK (role IN ('client', 'operator', 'admin', 'worker'))
);

CREATE TABLE circuit_breakers (
    service          text PRIMARY KEY,
    state            text NOT NULL DEFAULT 'closed',
    version          bigint NOT NULL DEFAULT 0,
    failures         uuid[] NOT NULL DEFAULT '{{}}',
    openings         int NOT NULL DEFAULT 0,
    opens_at         timestamptz,
    trial            uuid,
    trial_expires_at timestamptz,
    last_failure     text,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT breaker_state_is_known CHECK (state IN ('closed', 'open', 'half_open')),
    CONSTRAINT an_open_breaker_says_until_when CHECK (state <> 'open' OR opens_at IS NOT NULL),
    CONSTRAINT a_trial_expires CHECK ((trial IS NULL) = (trial_expires_at IS NULL)),
    CONSTRAINT a_trial_is_half_open CHECK ((state = 'half_open') = (trial IS NOT NULL))
);

CREATE TABLE webhook_endpoints (
    id         uuid PRIMARY KEY,
    url        text NOT NULL,
    secret     text NOT NULL,
    types      text[] NOT NULL DEFAULT '{{}}',
    account_id text REFERENCES accounts (id),
    job_id     uuid REFERENCES jobs (id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    disabled_at timestamptz
);

CREATE TABLE webhook_deliveries (
    id              uuid PRIMARY KEY,
    endpoint_id     uuid NOT NULL REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
    event_id        bigint,
    type            text NOT NULL,
    payload         jsonb NOT NULL,
    status          text NOT NULL DEFAULT 'pending',
    attempt_count   int NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_status     int,
    last_error      text,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    delivered_at    timestamptz,
    CONSTRAINT webhook_status_is_known CHECK (status IN ('pending', 'delivered', 'failed'))
);
CREATE INDEX idx_webhooks_due ON webhook_deliveries (next_attempt_at) WHERE status = 'pending';

CREATE TABLE upkeep_runs (
    name       text PRIMARY KEY,
    last_began_at timestamptz,
    last_ended_at timestamptz,
    last_result   jsonb NOT NULL DEFAULT '{{}}'
);
"""

DOWNGRADE = """
DROP TABLE upkeep_runs, webhook_deliveries, webhook_endpoints, circuit_breakers, api_keys, workers, credit_entries,
    job_attempts, job_events, checkpoints, deliveries, asr_jobs, outputs, jobs, accounts;
DROP FUNCTION job_events_are_append_only();
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
