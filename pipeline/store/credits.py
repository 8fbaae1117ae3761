"""Who pays, and who gets back?

Every entry names its job, output, run and kind, once. A hold is taken when a run begins, and ends once: charged where
the output was delivered, given back where it was not. The balance moves in the same statement as the entries, and
the account's CHECK refuses to overdraw: then nothing of the statement happens.
"""

from __future__ import annotations

from sqlalchemy.exc import IntegrityError

from pipeline.core.errors import BadRequest, InsufficientCredits, IronclipError
from pipeline.core.moves import Settlement

# Both lists are parts of a WITH clause; `moved` and `born` are the job rows that the statement just wrote.
_BALANCE = """paid AS (
    UPDATE accounts SET balance = balance + s.amount
      FROM (SELECT account_id, sum(amount) AS amount FROM entered GROUP BY account_id) s
     WHERE accounts.id = s.account_id)"""

HOLD_AT_BIRTH = (
    """entered AS (
        INSERT INTO credit_entries (account_id, job_id, output_id, run, kind, amount)
        SELECT born.account_id, born.id, made.id, born.run, 'hold', -made.price
          FROM born JOIN made ON made.job_id = born.id WHERE born.account_id IS NOT NULL AND made.price > 0
        RETURNING account_id, amount)""",
    _BALANCE,
)

# What was charged in an earlier run is paid for; what was made then and given back is not.
_HOLD_AGAIN = """entered AS (
    INSERT INTO credit_entries (account_id, job_id, output_id, run, kind, amount)
    SELECT moved.account_id, moved.id, o.id, moved.run, 'hold', -o.price
      FROM moved JOIN outputs o ON o.job_id = moved.id AND o.generation = moved.building
     WHERE moved.account_id IS NOT NULL AND o.price > 0
       AND NOT EXISTS (SELECT FROM credit_entries c
                        WHERE c.job_id = moved.id AND c.output_id = o.id AND c.kind = 'charge')
    ON CONFLICT DO NOTHING RETURNING account_id, amount)"""


def _end_holds(charged: str) -> str:
    return f"""entered AS (
    INSERT INTO credit_entries (account_id, job_id, output_id, run, kind, amount)
    SELECT h.account_id, h.job_id, h.output_id, h.run,
           CASE WHEN {charged} THEN 'charge' ELSE 'refund' END, CASE WHEN {charged} THEN 0 ELSE -h.amount END
      FROM moved
      JOIN credit_entries h ON h.job_id = moved.id AND h.run = moved.run AND h.kind = 'hold'
      JOIN outputs o ON o.id = h.output_id
    ON CONFLICT DO NOTHING RETURNING account_id, amount)"""


def entries_for(settlement: Settlement) -> list[str]:
    """The parts of a statement that carry a settlement out."""
    entered = {
        Settlement.HOLD: _HOLD_AGAIN,
        Settlement.SETTLE: _end_holds("o.status = 'completed'"),
        Settlement.REFUND: _end_holds("false"),
    }
    return [entered[settlement], _BALANCE]


def refused(exc: IntegrityError, account: str | None = None) -> IronclipError | IntegrityError:
    """What the database's refusal means for whoever asked."""
    constraint = getattr(getattr(exc.orig, "diag", None), "constraint_name", None)
    if constraint == "nobody_overdraws":
        return InsufficientCredits(f"{f'Account {account!r}' if account else 'The account'} has not enough credits.")
    if constraint == "jobs_account_id_fkey":
        return BadRequest("UNKNOWN_ACCOUNT", f"There is no account {account!r}.", field="account")
    return exc
