"""Generations beside each other, grants by reference, and what may be cleared away.

A generation is named after the run that makes it, so a number is never used twice. Going down is refused while a
rerender is on its way whose number leaves a gap: let it end first.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"

UPGRADE = """
SET LOCAL lock_timeout = '10s';

ALTER TABLE jobs DROP CONSTRAINT a_new_generation_is_the_next_one,
    ADD CONSTRAINT a_new_generation_comes_after_the_old CHECK (building >= generation);
ALTER TABLE asr_jobs DROP CONSTRAINT a_new_generation_is_the_next_one,
    ADD CONSTRAINT a_new_generation_comes_after_the_old CHECK (building >= generation);

-- Made, and paid for, in an earlier generation.
ALTER TABLE outputs ADD COLUMN carried boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT only_what_was_made_is_carried CHECK (NOT carried OR generation > 1);

ALTER TABLE deliveries DROP CONSTRAINT delivery_status_is_known,
    ADD CONSTRAINT delivery_status_is_known CHECK (status IN ('delivered', 'refused', 'expired'));
CREATE INDEX idx_deliveries_kept ON deliveries (updated_at) WHERE status = 'delivered';

ALTER TABLE credit_entries ADD COLUMN reference text,
    ADD CONSTRAINT only_grants_have_a_reference CHECK (reference IS NULL OR kind = 'grant');
CREATE UNIQUE INDEX a_reference_is_granted_once ON credit_entries (reference) WHERE reference IS NOT NULL;

-- The runs after whose end everything that nobody refers to was cleared away, and the story was shortened.
ALTER TABLE jobs ADD COLUMN tidied_run int NOT NULL DEFAULT 0, ADD COLUMN shortened_run int NOT NULL DEFAULT 0;
CREATE INDEX idx_jobs_untidied ON jobs (finished_at, id) WHERE finished_at IS NOT NULL AND tidied_run < run;
CREATE INDEX idx_jobs_unshortened ON jobs (finished_at, id) WHERE finished_at IS NOT NULL AND shortened_run < run;
"""

DOWNGRADE = """
SET LOCAL lock_timeout = '10s';

DROP INDEX idx_jobs_untidied, idx_jobs_unshortened, idx_deliveries_kept, a_reference_is_granted_once;
ALTER TABLE jobs DROP COLUMN tidied_run, DROP COLUMN shortened_run;
ALTER TABLE credit_entries DROP COLUMN reference;
DELETE FROM deliveries WHERE status = 'expired';
ALTER TABLE deliveries DROP CONSTRAINT delivery_status_is_known,
    ADD CONSTRAINT delivery_status_is_known CHECK (status IN ('delivered', 'refused'));
ALTER TABLE outputs DROP COLUMN carried;
ALTER TABLE jobs DROP CONSTRAINT a_new_generation_comes_after_the_old,
    ADD CONSTRAINT a_new_generation_is_the_next_one CHECK (building - generation IN (0, 1));
ALTER TABLE asr_jobs DROP CONSTRAINT a_new_generation_comes_after_the_old,
    ADD CONSTRAINT a_new_generation_is_the_next_one CHECK (building - generation IN (0, 1));
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
