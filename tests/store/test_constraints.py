"""What does the database itself refuse, whoever asks? Every rule that it has a name for, by that name.

`LAWFUL` fills each table with rows that break no rule; each example is one change to them that breaks exactly one:
without the rule, Postgres would take it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from pipeline.store.engine import Database
from pipeline.store.jobs import Table
from tests.store.world import rows

RULES = """
    SELECT conrelid::regclass::text AS "table", conname AS rule FROM pg_constraint
     WHERE contype = 'c' AND connamespace = 'public'::regnamespace
    UNION
    SELECT indrelid::regclass::text, indexrelid::regclass::text FROM pg_index JOIN pg_class c ON c.oid = indexrelid
     WHERE indisunique AND NOT indisprimary AND c.relnamespace = 'public'::regnamespace"""

LAWFUL = """
    INSERT INTO accounts (id) VALUES ('ann'), ('bob');

    INSERT INTO jobs (id, request_hash, stage, plan, account_id, idempotency_key)
    VALUES (uuid(1), '', 'asr', '{asr}', 'ann', 'key'), (uuid(2), '', 'asr', '{asr}', 'ann', 'other'),
           (uuid(3), '', 'asr', '{asr}', NULL, 'key'), (uuid(4), '', 'asr', '{asr}', NULL, NULL),
           (uuid(5), '', 'asr', '{asr}', NULL, NULL);
    INSERT INTO jobs (id, request_hash, stage, plan, status, attempt_count,
                      locked_by, fence, lease_expires_at, deadline_at, last_heartbeat_at)
    VALUES (uuid(9), '', 'asr', '{asr}', 'processing', 1, 'ann', uuid(9), now(), now(), now());

    INSERT INTO outputs (job_id, name, kind, clip) VALUES (uuid(1), 'a', 'video', 'a'), (uuid(1), 'b', 'video', 'b');

    INSERT INTO asr_jobs (id, stage, plan, job_id, output_id)
    SELECT uuid(10 + row_number() OVER ()::int), 'asr', '{asr}', job_id, id FROM outputs;
    INSERT INTO asr_jobs (id, stage, plan) VALUES (uuid(1), 'asr', '{asr}'), (uuid(2), 'asr', '{asr}');
    INSERT INTO asr_jobs (id, stage, plan, status, attempt_count,
                          locked_by, fence, lease_expires_at, deadline_at, last_heartbeat_at)
    VALUES (uuid(9), 'asr', '{asr}', 'processing', 1, 'ann', uuid(9), now(), now(), now());

    INSERT INTO deliveries (output_id, target, job_id, status) SELECT id, 'nas', job_id, 'delivered' FROM outputs;

    INSERT INTO job_attempts (fence, job_id, run, stage, attempt, worker) VALUES (uuid(1), uuid(1), 1, 'asr', 1, 'w');

    INSERT INTO credit_entries (account_id, job_id, output_id, run, kind, amount)
    VALUES ('ann', uuid(1), 1, 1, 'hold', -1), ('ann', uuid(1), 1, 1, 'charge', 0),
           ('ann', uuid(1), 1, 2, 'hold', -1), ('ann', uuid(1), 1, 2, 'refund', 1);
    INSERT INTO credit_entries (account_id, kind, amount) VALUES ('ann', 'grant', 1), ('ann', 'grant', 1);

    INSERT INTO workers (id, name, hostname) VALUES (uuid(1), 'w', 'h');

    INSERT INTO api_keys (id, prefix, sha256, role) VALUES (uuid(1), 'a', 'a', 'admin'), (uuid(2), 'a', 'b', 'admin');

    INSERT INTO job_events (job_id, type) VALUES (uuid(1), 'queued'), (uuid(2), 'queued');
    INSERT INTO event_feed (seq, event_id, job_id) SELECT id, id, job_id FROM job_events;

    INSERT INTO circuit_breakers (service) VALUES ('asr:tiny');

    INSERT INTO queue_markers (queue, sent, seen) VALUES ('media', 2, 1);

    INSERT INTO webhook_endpoints (id, url, secret) VALUES (uuid(1), '', '');
    INSERT INTO webhook_deliveries (id, endpoint_id, type, payload) VALUES (uuid(1), uuid(1), '', '{}')"""

QUEUED, RUNNING = "WHERE id = uuid(1)", "WHERE id = uuid(9)"
A_LEASE = """
    locked_by = 'ann', fence = uuid(7), lease_expires_at = now(), deadline_at = now(), last_heartbeat_at = now()"""
NO_LEASE = "locked_by = NULL, fence = NULL, lease_expires_at = NULL, deadline_at = NULL, last_heartbeat_at = NULL"

MOVING = {
    "status_is_known": [f"status = 'pending' {QUEUED}"],
    "stage_is_in_the_plan": [f"stage = 'clip' {QUEUED}", f"plan = '{{}}' {QUEUED}"],
    "outcome_is_known": [f"outcome = 'good' {QUEUED}"],
    "queue_is_known": [f"queue = 'io' {QUEUED}"],
    "priority_is_known": [f"priority = 'urgent' {QUEUED}"],
    "a_lease_is_whole": [
        f"{column} = NULL {RUNNING}" for column in ("locked_by", "lease_expires_at", "deadline_at", "last_heartbeat_at")
    ]
    + [f"locked_by = 'ann' {QUEUED}"],
    "attempts_stay_within_the_limit": [f"attempt_count = -1 {QUEUED}", f"attempt_count = 4 {RUNNING}"],
    "whoever_queues_has_attempts_left": [f"attempt_count = 3 {QUEUED}", f"max_attempts = 0 {QUEUED}"],
    "whoever_runs_has_spent_an_attempt": [f"attempt_count = 0 {RUNNING}"],
    "counters_are_not_negative": [f"{n} = -1 {QUEUED}" for n in ("crash_count", "release_count", "rewind_count")],
    "rewinds_end": [f"rewind_count = 4 {QUEUED}"],
    "waiting_names_its_service": [
        f"skip_until = now(), first_deferred_at = now() {QUEUED}",
        f"waiting_on = 'target:nas' {QUEUED}",
    ],
    "waiting_has_a_beginning": [f"skip_until = now(), waiting_on = 'target:nas' {QUEUED}"],
    "an_end_has_a_time": [f"finished_at = now() {QUEUED}", f"status = 'cancelled' {QUEUED}"],
    "failed_says_why": [
        f"status = 'failed', finished_at = now() {QUEUED}",
        f"status = 'failed', finished_at = now(), fail_code = 'X' {QUEUED}",
        f"fail_code = 'X', fail_reason = 'y' {QUEUED}",
    ],
    "completed_is_published": [
        f"status = 'completed', finished_at = now(), generation = 1 {QUEUED}",
        f"status = 'completed', finished_at = now(), outcome = 'full' {QUEUED}",
    ],
    "a_new_generation_comes_after_the_old": [f"building = -1 {QUEUED}", f"generation = 2 {QUEUED}"],
    "progress_is_a_percentage": [f"progress = {n} {QUEUED}" for n in ("-1", "101", "'NaN'")],
}

EXAMPLES: dict[tuple[str, str], list[str]] = {
    **{(str(table), rule): examples for table in Table for rule, examples in MOVING.items()},
    ("jobs", "leased_iff_processing"): [f"{A_LEASE} {QUEUED}", f"{NO_LEASE} {RUNNING}"],
    ("jobs", "one_job_per_idempotency_key"): [
        "idempotency_key = 'key' WHERE id = uuid(2)",
        "idempotency_key = 'key' WHERE id = uuid(4)",
    ],
    ("asr_jobs", "alone_it_is_leased_iff_processing"): [
        f"{A_LEASE} {QUEUED}",
        f"{NO_LEASE} {RUNNING}",
        f"job_id = uuid(1) {RUNNING}",
    ],
    ("asr_jobs", "one_transcription_per_output"): ["output_id = (SELECT min(id) FROM outputs) WHERE job_id = uuid(1)"],
    ("accounts", "nobody_overdraws"): ["balance = -1"],
    ("outputs", "one_output_per_name"): ["name = 'a'"],
    ("outputs", "output_kind_is_known"): ["kind = 'audio'"],
    ("outputs", "output_status_is_known"): ["status = 'done'"],
    ("outputs", "a_completed_output_has_files"): ["status = 'completed'"],
    ("outputs", "a_failed_output_says_why"): ["status = 'failed'"],
    ("outputs", "only_what_was_made_is_carried"): ["carried = true"],
    ("outputs", "no_more_segments_than_there_are"): [
        "segments_completed = -1",
        "segments_completed = 1",
        "segments_total = 2, segments_completed = 3",
    ],
    ("outputs", "output_progress_is_a_percentage"): ["progress_percent = -1", "progress_percent = 101"],
    ("deliveries", "delivery_status_is_known"): ["status = 'pending'"],
    ("job_attempts", "an_ended_attempt_says_how"): ["ended_at = now()", "ended_by = 'failed'"],
    ("credit_entries", "only_grants_have_a_reference"): ["reference = 'a' WHERE run = 2 AND kind = 'hold'"],
    ("credit_entries", "a_reference_is_granted_once"): ["reference = 'a' WHERE kind = 'grant'"],
    ("credit_entries", "an_entry_is_made_once"): ["run = 1 WHERE kind = 'hold'"],
    ("credit_entries", "a_hold_ends_once"): ["run = 1 WHERE kind = 'refund'"],
    ("credit_entries", "entry_kind_is_known"): ["kind = 'gift' WHERE run = 2 AND kind = 'hold'"],
    ("credit_entries", "work_entries_name_their_output"): [
        f"{column} = NULL WHERE kind = 'charge'" for column in ("job_id", "output_id", "run")
    ],
    ("workers", "worker_type_is_known"): ["type = 'cloud'"],
    ("workers", "worker_status_is_known"): ["status = 'asleep'"],
    ("workers", "worker_notes_stay_small"): [
        f"{column} = to_jsonb(repeat('x', 10240))" for column in ("capabilities", "metadata")
    ],
    ("api_keys", "role_is_known"): ["role = 'root'"],
    ("api_keys", "a_client_has_an_account"): ["role = 'client'"],
    ("api_keys", "api_keys_sha256_key"): ["sha256 = 'a'"],
    ("event_feed", "an_event_is_numbered_once"): ["event_id = (SELECT min(id) FROM job_events)"],
    ("circuit_breakers", "breaker_state_is_known"): ["state = 'ajar'"],
    ("circuit_breakers", "an_open_breaker_says_until_when"): ["state = 'open'"],
    ("circuit_breakers", "a_trial_expires"): [
        "trial_expires_at = now()",
        "state = 'half_open', trial = uuid(1)",
    ],
    ("circuit_breakers", "a_trial_is_half_open"): ["trial = uuid(1), trial_expires_at = now()", "state = 'half_open'"],
    ("queue_markers", "nobody_sees_what_was_not_sent"): ["seen = 3"],
    ("webhook_deliveries", "webhook_status_is_known"): ["status = 'sent'"],
}


@pytest.fixture
def lawful(db: Database) -> Iterator[Connection]:
    """A transaction that ends in nothing, with lawful rows in every table that has a rule."""
    with db.transaction() as conn:
        conn.execute(text("CREATE FUNCTION uuid(n int) RETURNS uuid LANGUAGE sql RETURN lpad(n::text, 32, '0')::uuid"))
        conn.execute(text(LAWFUL))
        yield conn
        conn.rollback()


def test_every_rule_has_an_example(db: Database):
    assert {(row["table"], row["rule"]) for row in rows(db, RULES)} == EXAMPLES.keys()


@pytest.mark.parametrize(
    ("table", "rule", "change"),
    [
        pytest.param(table, rule, change, id=f"{table}-{rule}-{n}")
        for (table, rule), changes in EXAMPLES.items()
        for n, change in enumerate(changes)
    ],
)
def test_what_a_rule_forbids_is_refused_by_that_rule_and_no_other(
    lawful: Connection, table: str, rule: str, change: str
):
    change_it = text(f"UPDATE {table} SET {change}")

    with pytest.raises(IntegrityError) as refusal, lawful.begin_nested():
        lawful.execute(change_it)

    diagnosis = refusal.value.orig.diag
    assert (diagnosis.table_name, diagnosis.constraint_name) == (table, rule)
    _drop(lawful, table, rule)
    assert lawful.execute(change_it).rowcount > 0


def _drop(conn: Connection, table: str, rule: str) -> None:
    constraint = conn.execute(text("SELECT count(*) FROM pg_constraint WHERE conname = :rule"), {"rule": rule}).scalar()
    conn.execute(text(f"ALTER TABLE {table} DROP CONSTRAINT {rule}" if constraint else f"DROP INDEX {rule}"))


def test_what_happened_cannot_be_rewritten(db: Database):
    db.run(text("INSERT INTO job_events (job_id, type) VALUES (gen_random_uuid(), 'queued')"))

    with pytest.raises(DBAPIError, match="append only"):
        db.run(text("UPDATE job_events SET type = 'completed'"))

    assert rows(db, "SELECT type FROM job_events") == [{"type": "queued"}]


def test_both_tables_that_the_machine_moves_have_the_same_columns_and_rules(db: Database):
    def shape(table: str) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]]]:
        columns = rows(
            db,
            "SELECT column_name, data_type, is_nullable, column_default FROM information_schema.columns"
            " WHERE table_name = :table",
            table=table,
        )
        checks = rows(
            db,
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE contype = 'c' AND conrelid = CAST(:table AS regclass)",
            table=table,
        )
        return {tuple(row.values()) for row in columns}, {tuple(row.values()) for row in checks}

    (columns, checks), (asr_columns, asr_checks) = shape("jobs"), shape("asr_jobs")

    own = {"idempotency_key", "request_hash", "pipeline_version", "output_id", "transcript", "job_id"}
    own |= {"tidied_run", "shortened_run"}
    assert {name for name, *_ in columns ^ asr_columns} == own
    assert {name for name, _ in checks ^ asr_checks} == {"leased_iff_processing", "alone_it_is_leased_iff_processing"}
