"""Where a message was sent, if not to the usual queue of its stage."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"

TABLES = ("jobs", "asr_jobs")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '10s'")
    for table in TABLES:
        op.execute(
            f"ALTER TABLE {table} ADD COLUMN queue text CONSTRAINT queue_is_known CHECK (queue IN ('gpu', 'media'))"
        )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '10s'")
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} DROP COLUMN queue")
