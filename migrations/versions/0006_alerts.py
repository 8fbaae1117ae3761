"""What happened that somebody outside should hear of? Noted by triggers, in the commit in which it happened.

`outbox` holds it until the relay has made deliveries of it; nothing is lost by a crash, and nothing is searched for.
The triggers look at the few kinds of events that matter (the WHEN clauses), so a stage pays nothing for them and a job
one small insert. `alert_cooldowns` keeps operators from hearing the same thing twice in five minutes, fleet-wide.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"

UPGRADE = """
SET LOCAL lock_timeout = '10s';

CREATE TABLE outbox (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    type     text NOT NULL,
    job_id   uuid,
    event_id bigint,
    data     jsonb NOT NULL DEFAULT '{}',
    at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE alert_cooldowns (
    type      text PRIMARY KEY,
    told_at   timestamptz NOT NULL,
    held      int NOT NULL DEFAULT 0,
    last_held jsonb
);

-- A job's callback and ALERT_WEBHOOK_URL are deliveries without an endpoint. `claimed_until`: somebody is sending it.
ALTER TABLE webhook_deliveries
    ALTER COLUMN endpoint_id DROP NOT NULL,
    ADD COLUMN url text NOT NULL DEFAULT '',
    ADD COLUMN origin text GENERATED ALWAYS AS (coalesce(substring(url FROM '^[a-z]+://[^/?#]*'), '')) STORED,
    ADD COLUMN account_id text,
    ADD COLUMN job_id uuid,
    ADD COLUMN claimed_until timestamptz;
UPDATE webhook_deliveries d SET url = e.url FROM webhook_endpoints e WHERE e.id = d.endpoint_id;
DROP INDEX idx_webhooks_due;
-- Origin by origin: a dead one with a long backlog is stepped over, never read.
CREATE INDEX idx_webhooks_due ON webhook_deliveries (origin, next_attempt_at) WHERE status = 'pending';
CREATE INDEX idx_webhooks_sending ON webhook_deliveries (origin) WHERE claimed_until IS NOT NULL;
CREATE INDEX idx_webhooks_history ON webhook_deliveries (created_at DESC);
CREATE INDEX idx_webhooks_job ON webhook_deliveries (job_id) WHERE job_id IS NOT NULL;

ALTER TABLE workers ADD COLUMN ended_by text;

-- Patterns of failures are looked for among the failures of the last minutes only.
CREATE INDEX idx_job_events_failed ON job_events (at) WHERE type = 'failed';

CREATE FUNCTION note_job_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO outbox (type, job_id, event_id, data, at)
    VALUES (NEW.type, NEW.job_id, NEW.id,
            NEW.data || jsonb_build_object('stage', NEW.stage, 'attempt', NEW.attempt, 'table', NEW."table"), NEW.at);
    RETURN NULL;
END $$;
CREATE TRIGGER note_job_event AFTER INSERT ON job_events FOR EACH ROW
    WHEN (NEW.type IN ('completed', 'failed', 'cancelled', 'requeued:stale', 'stalled'))
    EXECUTE FUNCTION note_job_event();

CREATE FUNCTION note_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO outbox (type, data)
    VALUES (TG_ARGV[0], jsonb_build_object('worker', NEW.id, 'name', NEW.name, 'hostname', NEW.hostname,
            'queues', NEW.queues, 'slots', NEW.slots)
            || CASE TG_ARGV[0] WHEN 'worker_shutdown' THEN jsonb_build_object('ended_by', NEW.ended_by,
               'silent_s', round(extract(epoch FROM clock_timestamp() - NEW.last_heartbeat))) ELSE '{}' END);
    RETURN NULL;
END $$;
CREATE TRIGGER note_worker_startup AFTER INSERT ON workers FOR EACH ROW EXECUTE FUNCTION note_worker('worker_startup');
CREATE TRIGGER note_worker_shutdown AFTER UPDATE OF status ON workers FOR EACH ROW
    WHEN (OLD.status <> 'offline' AND NEW.status = 'offline') EXECUTE FUNCTION note_worker('worker_shutdown');

CREATE FUNCTION note_breaker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO outbox (type, data)
    VALUES (CASE NEW.state WHEN 'open' THEN 'breaker_opened' ELSE 'breaker_closed' END,
            jsonb_build_object('service', NEW.service, 'until', NEW.opens_at, 'openings', NEW.openings,
                               'reason', NEW.last_failure));
    RETURN NULL;
END $$;
-- An opening is told once, not again when its trial fails; a closing when it ends that.
CREATE TRIGGER note_breaker_born AFTER INSERT ON circuit_breakers FOR EACH ROW
    WHEN (NEW.state = 'open') EXECUTE FUNCTION note_breaker();
CREATE TRIGGER note_breaker AFTER UPDATE OF state ON circuit_breakers FOR EACH ROW
    WHEN (OLD.state = 'closed' AND NEW.state = 'open' OR OLD.state <> 'closed' AND NEW.state = 'closed')
    EXECUTE FUNCTION note_breaker();
"""

DOWNGRADE = """
SET LOCAL lock_timeout = '10s';

DROP TRIGGER note_breaker ON circuit_breakers;
DROP TRIGGER note_breaker_born ON circuit_breakers;
DROP TRIGGER note_worker_shutdown ON workers;
DROP TRIGGER note_worker_startup ON workers;
DROP TRIGGER note_job_event ON job_events;
DROP FUNCTION note_breaker();
DROP FUNCTION note_worker();
DROP FUNCTION note_job_event();
DROP INDEX idx_job_events_failed;
ALTER TABLE workers DROP COLUMN ended_by;
DELETE FROM webhook_deliveries WHERE endpoint_id IS NULL;
DROP INDEX idx_webhooks_due, idx_webhooks_sending, idx_webhooks_history, idx_webhooks_job;
ALTER TABLE webhook_deliveries
    ALTER COLUMN endpoint_id SET NOT NULL,
    DROP COLUMN origin, DROP COLUMN url, DROP COLUMN account_id, DROP COLUMN job_id, DROP COLUMN claimed_until;
CREATE INDEX idx_webhooks_due ON webhook_deliveries (next_attempt_at) WHERE status = 'pending';
DROP TABLE alert_cooldowns, outbox;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
