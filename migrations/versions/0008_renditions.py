"""HLS renditions, their master playlists and thumbnails; each rendition counts its segments."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"

UPGRADE = """
SET LOCAL lock_timeout = '10s';

ALTER TABLE outputs DROP CONSTRAINT output_kind_is_known,
    ADD CONSTRAINT output_kind_is_known
        CHECK (kind IN ('video', 'captions', 'burnin', 'hls', 'master', 'thumbnail')),
    ADD COLUMN segments_total int,
    ADD COLUMN segments_completed int NOT NULL DEFAULT 0,
    ADD CONSTRAINT no_more_segments_than_there_are
        CHECK (segments_completed BETWEEN 0 AND coalesce(segments_total, 0));
"""

DOWNGRADE = """
SET LOCAL lock_timeout = '10s';

DELETE FROM outputs WHERE kind IN ('hls', 'master', 'thumbnail');
ALTER TABLE outputs DROP COLUMN segments_total, DROP COLUMN segments_completed,
    DROP CONSTRAINT output_kind_is_known,
    ADD CONSTRAINT output_kind_is_known CHECK (kind IN ('video', 'captions', 'burnin'));
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
