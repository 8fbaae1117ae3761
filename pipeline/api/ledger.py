"""Who has how many credits, and where did they go? Over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from pipeline import intake
from pipeline.api.access import Doors
from pipeline.api.caller import Asking
from pipeline.core.errors import BadRequest, Forbidden
from pipeline.core.request import NAME
from pipeline.store import credits as store
from pipeline.store.engine import database

router = Doors(tags=["credits"])


class Account(BaseModel):
    model_config = ConfigDict(extra="ignore")

    account: str
    balance: int
    held: int = Field(description="Of unfinished jobs; not part of the balance any more.")


class Entry(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: int
    kind: str
    amount: int
    job_id: UUID | None
    output: str | None
    reference: str | None
    note: str | None
    at: datetime


class Credits(BaseModel):
    accounts: list[Account]
    entries: list[Entry] = Field(description="Of the one account that was asked for, newest first.")
    next: int | None = Field(description="`before` of the next page of entries.")


class Grant(BaseModel):
    model_config = ConfigDict(extra="forbid")

    account: str = Field(pattern=f"^{NAME.pattern}$")
    amount: int = Field(ge=-(10**12), le=10**12, description="Below zero: taken.")
    reference: str = Field(min_length=1, max_length=200, description="Used once: the same again changes nothing.")
    note: str | None = Field(default=None, max_length=500)


class Granted(BaseModel):
    granted: bool = Field(description="false: it was done before")


@router.get("/api/credits", summary="Balances, and the ledger of one account")
def credits_of(
    asking: Asking,
    account: Annotated[str | None, Query(max_length=64)] = None,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Credits:
    if asking.account is not None and account not in (None, asking.account):
        raise Forbidden("A client sees its own account only.")
    wanted = asking.account or account
    if wanted is None:
        return Credits(accounts=[Account(**row) for row in store.balances(database())], entries=[], next=None)
    one = Account(**store.balance(database(), wanted))
    rows = store.entries(database(), wanted, before=before, limit=limit)
    return Credits(
        accounts=[one], entries=[Entry(**row) for row in rows], next=rows[-1]["id"] if len(rows) == limit else None
    )


@router.post("/api/credits", summary="Give credits to an account")
def grant(asking: Asking, wanted: Grant) -> Granted:
    if wanted.amount == 0:
        raise BadRequest("BAD_AMOUNT", "Nothing would change.", field="amount")
    asking.means(account=wanted.account, amount=wanted.amount, reference=wanted.reference)
    return Granted(granted=intake.grant(wanted.account, wanted.amount, reference=wanted.reference, note=wanted.note))
