"""Which jobs name an upload? By its id, wherever the folder of uploads lies on each machine."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"

UPGRADE = """
SET LOCAL lock_timeout = '10s';

CREATE INDEX idx_jobs_upload ON jobs (substring(request->>'source' FROM '/uploads/[^/]+/([0-9a-f-]{36})[^/]*$'))
    WHERE substring(request->>'source' FROM '/uploads/[^/]+/([0-9a-f-]{36})[^/]*$') IS NOT NULL;
"""

DOWNGRADE = """
SET LOCAL lock_timeout = '10s';

DROP INDEX idx_jobs_upload;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
