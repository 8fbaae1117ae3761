"""What dispatch needs to know of transcriptions that stand alone: which of them have a message on its way.

The index holds living rows only, and transcriptions that belong to a job are never in it.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"

UPGRADE = """
SET LOCAL lock_timeout = '10s';

CREATE INDEX idx_asr_jobs_on_the_way ON asr_jobs (published_at)
    WHERE status = 'queued' AND published_at IS NOT NULL AND job_id IS NULL;
"""

DOWNGRADE = """
SET LOCAL lock_timeout = '10s';

DROP INDEX idx_asr_jobs_on_the_way;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
