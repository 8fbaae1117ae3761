"""What does a new run begin with? Its outputs: those of the run before it, or a new generation beside them.

A new generation has a row for each output of the published one. What is made anew begins at nothing; the rest is
carried over with its files, deliveries and words, so it refers to the same keys and is neither made nor paid for again.
"""

from __future__ import annotations

# Parts of a WITH clause; `moved` is the job's row that the statement just wrote.
_PUBLISHED = "outputs o ON o.job_id = moved.id AND o.generation = moved.generation"

# What is no longer at its targets cannot be carried anywhere.
_ANEW = """(CAST(:only AS text[]) IS NULL OR o.name = ANY (CAST(:only AS text[]))
            OR EXISTS (SELECT FROM deliveries d WHERE d.output_id = o.id AND d.status = 'expired'))"""

BESIDE = (
    f"""made AS (
        INSERT INTO outputs (job_id, generation, name, kind, clip, quality, critical, price, carried, status,
                             progress_percent, segments_total, segments_completed, files, facts, error_code,
                             error_message, started_at, completed_at)
        SELECT moved.id, moved.building, o.name, o.kind, o.clip, o.quality, o.critical, o.price,
               k.is_kept AND o.status = 'completed',
               CASE WHEN k.is_kept THEN o.status ELSE 'pending' END,
               CASE WHEN k.is_kept THEN o.progress_percent ELSE 0 END,
               CASE WHEN k.is_kept THEN o.segments_total END,
               CASE WHEN k.is_kept THEN o.segments_completed ELSE 0 END,
               CASE WHEN k.is_kept THEN o.files ELSE '[]' END,
               CASE WHEN k.is_kept THEN o.facts ELSE '{{}}' END,
               CASE WHEN k.is_kept THEN o.error_code END,
               CASE WHEN k.is_kept THEN o.error_message END,
               CASE WHEN k.is_kept THEN o.started_at END,
               CASE WHEN k.is_kept THEN o.completed_at END
          FROM moved JOIN {_PUBLISHED} CROSS JOIN LATERAL (SELECT NOT {_ANEW} AS is_kept) k
         ORDER BY o.id
        RETURNING *)""",
    f"""brought AS (
        INSERT INTO deliveries (output_id, target, job_id, status, files, error_code, error_message)
        SELECT made.id, d.target, d.job_id, d.status, d.files, d.error_code, d.error_message
          FROM moved JOIN {_PUBLISHED} JOIN deliveries d ON d.output_id = o.id
          JOIN made ON made.name = o.name AND made.status <> 'pending')""",
    f"""said AS (
        INSERT INTO asr_jobs (id, job_id, output_id, status, stage, plan, attempt_count, generation, building, outcome,
                              progress, transcript, finished_at)
        SELECT gen_random_uuid(), a.job_id, made.id, a.status, a.stage, a.plan, a.attempt_count, a.generation,
               a.building, a.outcome, a.progress, a.transcript, a.finished_at
          FROM moved JOIN {_PUBLISHED} JOIN asr_jobs a ON a.output_id = o.id
          JOIN made ON made.name = o.name AND made.status <> 'pending')""",
)

# The same generation again: whoever failed, refused or is no longer there is asked once more.
REOPEN = (
    """reopened AS (
        UPDATE outputs SET status = 'pending', error_code = NULL, error_message = NULL FROM moved
         WHERE outputs.job_id = moved.id AND outputs.generation = moved.building AND outputs.status = 'failed')""",
    """asked_again AS (
        DELETE FROM deliveries d USING moved, outputs o
         WHERE o.job_id = moved.id AND o.generation = moved.building AND d.output_id = o.id
           AND d.status IN ('refused', 'expired'))""",
)
