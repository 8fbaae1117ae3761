"""What people who come over HTTP need: named keys, a secret to sign with, an audit, and events numbered after commit.

`job_events.id` is given out before commit, so it becomes visible out of order. `event_feed` holds the order in which
events became visible; a number that was given out is never followed by a lower one. `feed_head` is where the relay
stands, and its lock. `feed_gaps` holds the ids that it passed by because nobody could see them yet.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"

UPGRADE = """
SET LOCAL lock_timeout = '10s';

ALTER TABLE api_keys ADD COLUMN name text NOT NULL DEFAULT '', ADD COLUMN created_by text NOT NULL DEFAULT '',
    ADD CONSTRAINT a_client_has_an_account CHECK (role <> 'client' OR account_id IS NOT NULL) NOT VALID;
CREATE INDEX idx_api_keys_prefix ON api_keys (prefix) WHERE revoked_at IS NULL;

CREATE TABLE signing_keys (
    name   text PRIMARY KEY,
    secret text NOT NULL
);

CREATE TABLE audit_log (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    key_id     uuid,
    by         text NOT NULL,
    act        text NOT NULL,
    data       jsonb NOT NULL DEFAULT '{}',
    request_id text
);

CREATE TABLE event_feed (
    seq      bigint PRIMARY KEY,
    event_id bigint NOT NULL REFERENCES job_events (id) ON DELETE CASCADE,
    job_id   uuid NOT NULL,
    CONSTRAINT an_event_is_numbered_once UNIQUE (event_id)
);
CREATE INDEX idx_event_feed_job ON event_feed (job_id, seq);

CREATE TABLE feed_head (
    name     text PRIMARY KEY,
    event_id bigint NOT NULL,
    seq      bigint NOT NULL
);

CREATE TABLE feed_gaps (
    event_id bigint PRIMARY KEY,
    horizon  xid8 NOT NULL,
    seen_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX idx_jobs_account_created ON jobs (account_id, created_at DESC, id DESC) WHERE account_id IS NOT NULL;
CREATE INDEX idx_jobs_gone_wrong ON jobs (status, created_at DESC, id DESC) WHERE status IN ('failed', 'cancelled');
"""

DOWNGRADE = """
SET LOCAL lock_timeout = '10s';

DROP INDEX idx_jobs_account_created, idx_jobs_gone_wrong;
DROP TABLE feed_gaps, feed_head, event_feed, audit_log, signing_keys;
DROP INDEX idx_api_keys_prefix;
ALTER TABLE api_keys DROP CONSTRAINT a_client_has_an_account, DROP COLUMN created_by, DROP COLUMN name;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
