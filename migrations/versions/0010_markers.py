"""Up to when is a queue known to have handed out everything, however often its markers come back?

`covered_until` speaks of the newest marker, which says nothing until whoever got a message before it had time to claim.
In a busy queue a newer one comes back before that. So one is held until its time is up, and then remembered.
"""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"

UPGRADE = """
SET LOCAL lock_timeout = '10s';

ALTER TABLE queue_markers
    ADD COLUMN held_at timestamptz,
    ADD COLUMN held_until timestamptz,
    ADD COLUMN settled_until timestamptz;
"""

DOWNGRADE = """
SET LOCAL lock_timeout = '10s';

ALTER TABLE queue_markers DROP COLUMN held_at, DROP COLUMN held_until, DROP COLUMN settled_until;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
