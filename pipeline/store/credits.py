"""Who pays, and who gets back?

Every entry names its job, output, run and kind, once. A hold is taken when a run begins, and ends once: charged where
the output was delivered, given back where it was not. The balance moves in the same statement as the entries, and
the account's CHECK refuses to overdraw: then nothing of the statement happens.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from pipeline.core.errors import BadRequest, IdempotencyConflict, InsufficientCredits, IronclipError
from pipeline.core.moves import Settlement
from pipeline.store.engine import Database, fetch

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

# What was charged in an earlier run, or carried over from an earlier generation, is paid; what was given back is not.
_HOLD_AGAIN = """entered AS (
    INSERT INTO credit_entries (account_id, job_id, output_id, run, kind, amount)
    SELECT moved.account_id, moved.id, o.id, moved.run, 'hold', -o.price
      FROM moved JOIN outputs o ON o.job_id = moved.id AND o.generation = moved.building
     WHERE moved.account_id IS NOT NULL AND o.price > 0 AND NOT o.carried
       AND NOT EXISTS (SELECT FROM credit_entries c
                        WHERE c.job_id = moved.id AND c.output_id = o.id AND c.kind = 'charge')
    ON CONFLICT DO NOTHING RETURNING account_id, amount)"""

# `made` are the outputs of a new generation that the statement just wrote.
HOLD_FOR_GENERATION = (
    """entered AS (
        INSERT INTO credit_entries (account_id, job_id, output_id, run, kind, amount)
        SELECT moved.account_id, moved.id, made.id, moved.run, 'hold', -made.price
          FROM moved JOIN made ON made.job_id = moved.id
         WHERE moved.account_id IS NOT NULL AND made.price > 0 AND made.status = 'pending'
        RETURNING account_id, amount)""",
    _BALANCE,
)


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


# -- what people do and see ------------------------------------------------------------------------------------------

OPEN = text("INSERT INTO accounts (id) VALUES (:account) ON CONFLICT DO NOTHING")

# Whoever says the same reference at the same time waits here, and then finds it used.
GRANT = text(f"""
    WITH entered AS (
        INSERT INTO credit_entries (account_id, kind, amount, reference, note)
        VALUES (:account, 'grant', :amount, :reference, :note)
        ON CONFLICT (reference) WHERE reference IS NOT NULL DO NOTHING RETURNING account_id, amount),
    {_BALANCE}
    SELECT account_id FROM entered""")

GRANTED = text("SELECT account_id, amount FROM credit_entries WHERE reference = :reference")

# What is held now: only unfinished jobs can hold anything.
BALANCES = text("""
    SELECT a.id AS account, a.balance, coalesce(h.held, 0)::bigint AS held, a.created_at
      FROM accounts a
      LEFT JOIN (SELECT c.account_id, sum(-c.amount) AS held
                   FROM jobs j JOIN credit_entries c ON c.job_id = j.id AND c.run = j.run AND c.kind = 'hold'
                  WHERE j.status IN ('queued', 'processing') AND j.account_id IS NOT NULL GROUP BY 1) h
             ON h.account_id = a.id
     WHERE CAST(:account AS text) IS NULL OR a.id = :account
     ORDER BY a.id""")

# Keyset pages: newest first, then everything before the last one seen.
ENTRIES = text("""
    SELECT c.id, c.kind, c.amount, c.job_id, o.name AS output, c.run, c.reference, c.note, c.at
      FROM credit_entries c LEFT JOIN outputs o ON o.id = c.output_id
     WHERE c.account_id = :account AND (CAST(:before AS bigint) IS NULL OR c.id < :before)
     ORDER BY c.id DESC LIMIT :limit""")


def grant(db: Database, account: str, amount: int, *, reference: str, note: str | None = None) -> bool:
    """Give credits to an account (or, below zero, take them), and open it if it is new; False: it was done before.

    A reference is used once: said again with the same account and amount it changes nothing, with another one it is an
    IdempotencyConflict. InsufficientCredits if more is taken than there is.
    """
    try:
        with db.transaction() as conn:
            conn.execute(OPEN, {"account": account})
            told = {"account": account, "amount": amount, "reference": reference, "note": note}
            if fetch(conn.execute(GRANT, told)):
                return True
            first = fetch(conn.execute(GRANTED, {"reference": reference}))[0]
            if (first.account_id, first.amount) != (account, amount):
                raise IdempotencyConflict(
                    f"The reference {reference!r} was used to grant {first.amount} to {first.account_id!r}."
                )
            return False
    except IntegrityError as exc:
        raise refused(exc, account) from exc


def balances(db: Database) -> list[dict[str, Any]]:
    """Every account with its balance, and what unfinished jobs hold besides."""
    return [dict(row._mapping) for row in db.run(BALANCES, account=None)]


def balance(db: Database, account: str) -> dict[str, Any]:
    """One account with its balance and what is held; BadRequest if there is none."""
    rows = db.run(BALANCES, account=account)
    if not rows:
        raise _no_such(account)
    return dict(rows[0]._mapping)


def entries(db: Database, account: str, *, before: int | None = None, limit: int = 50) -> list[dict[str, Any]]:
    """What moved an account, newest first, or what was just before an entry that was seen."""
    balance(db, account)
    return [dict(row._mapping) for row in db.run(ENTRIES, account=account, before=before, limit=limit)]


def _no_such(account: str | None) -> BadRequest:
    return BadRequest("UNKNOWN_ACCOUNT", f"There is no account {account!r}.", field="account")


def refused(exc: IntegrityError, account: str | None = None) -> IronclipError | IntegrityError:
    """What the database's refusal means for whoever asked."""
    constraint = getattr(getattr(exc.orig, "diag", None), "constraint_name", None)
    if constraint == "nobody_overdraws":
        return InsufficientCredits(f"{f'Account {account!r}' if account else 'The account'} has not enough credits.")
    if constraint == "jobs_account_id_fkey":
        return _no_such(account)
    return exc
