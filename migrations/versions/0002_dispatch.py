"""What dispatch needs to know: which rows wait in which order, and which markers came back.

The indexes hold living rows only. Building them reads the table once, and writers wait meanwhile: about a second for a
million rows. Whoever holds a lock for longer than `lock_timeout` makes the migration give up, not everybody else wait.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"

UPGRADE = """
SET LOCAL lock_timeout = '10s';

CREATE TABLE queue_markers (
    queue         text PRIMARY KEY,
    sent          bigint NOT NULL DEFAULT 0,
    sent_at       timestamptz,
    seen          bigint NOT NULL DEFAULT 0,
    seen_at       timestamptz,
    covered_until timestamptz,
    CONSTRAINT nobody_sees_what_was_not_sent CHECK (seen <= sent)
);

ALTER TABLE workers ADD COLUMN last_consumed_at timestamptz;

-- In the order in which sweep takes them: an account's rows of one stage and priority, the oldest first ...
CREATE INDEX idx_jobs_waiting ON jobs (stage, coalesce(account_id, ''), recovery, priority, created_at)
    WHERE status = 'queued' AND published_at IS NULL AND greatest(next_earliest_run_at, skip_until) IS NULL;
-- ... and those that had to wait for a time, by that time: a hundred thousand that are not due cost nothing.
CREATE INDEX idx_jobs_delayed ON jobs (stage, greatest(next_earliest_run_at, skip_until))
    WHERE status = 'queued' AND published_at IS NULL AND greatest(next_earliest_run_at, skip_until) IS NOT NULL;
CREATE INDEX idx_jobs_on_the_way ON jobs (stage, published_at) WHERE status = 'queued' AND published_at IS NOT NULL;
DROP INDEX idx_jobs_unpublished, idx_jobs_published;
"""

DOWNGRADE = """
SET LOCAL lock_timeout = '10s';

CREATE INDEX idx_jobs_unpublished ON jobs (recovery DESC, priority, created_at)
    WHERE status = 'queued' AND published_at IS NULL;
CREATE INDEX idx_jobs_published ON jobs (published_at) WHERE status = 'queued' AND published_at IS NOT NULL;
DROP INDEX idx_jobs_waiting, idx_jobs_delayed, idx_jobs_on_the_way;
ALTER TABLE workers DROP COLUMN last_consumed_at;
DROP TABLE queue_markers;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
