"""Which database does a command mean, and which job?

DATABASE_URL and BROKER_URL decide. Where they are not set, the servers of a running home (`ironclip up` in this
folder, or IRONCLIP_HOME) are meant.
"""

from __future__ import annotations

import getpass
import os
import string
from uuid import UUID

from pipeline import embedded, settings
from pipeline.core.errors import NoSuchJob, SettingInvalid
from pipeline.store import reads
from pipeline.store.engine import Database, database
from pipeline.store.jobs import Table

NOWHERE = (
    "Neither DATABASE_URL and BROKER_URL are set nor is a server running in {home}: "
    "set them, or run `ironclip up` in another shell."
)
DIGITS = 32  # of an id, beside its dashes
COMMANDS = {Table.JOBS: "ironclip show", Table.ASR_JOBS: "ironclip transcriptions show"}


def environment() -> dict[str, str]:
    """Point this process at a running home if nothing else is said; what was set for that. Call it first."""
    if os.environ.get("DATABASE_URL"):
        return {}
    running = embedded.running()
    if running is None:
        return {}
    env = running.env()
    # Somebody may have said where the broker is, and mean it.
    found = {name: value for name, value in env.items() if not os.environ.get(name)}
    os.environ.update(found)
    settings.current.cache_clear()
    return found


def connect(*, broker: bool = False) -> Database:
    """The database that is meant; SettingInvalid if none is, or if there is no broker where one is needed."""
    environment()
    now = settings.current()
    if not now.database_url:
        raise SettingInvalid(NOWHERE.format(home=embedded.default_home()))
    if broker:
        now.need("broker_url")
    return database()


def job_id(db: Database, given: str, table: Table = Table.JOBS) -> UUID:
    """The job (or transcription) that is meant by an id or by the beginning of one."""
    digits = given.replace("-", "")
    if not 0 < len(digits) <= DIGITS or not set(digits) <= set(string.hexdigits):
        raise NoSuchJob(f"{given[:80]!r} is not a {table.noun}'s id, nor the beginning of one.")
    found = reads.beginning_with(db, digits, table)
    if len(found) == 1:
        return found[0]
    if found:
        raise NoSuchJob(f"More than one {table.noun} begins with {given!r}.")
    (other,) = set(Table) - {table}
    if reads.beginning_with(db, digits, other):
        raise NoSuchJob(f"{given} is not a {table.noun} but a {other.noun}: `{COMMANDS[other]} {given}`.")
    raise NoSuchJob(f"There is no {table.noun} {given}.")


def me() -> str:
    """Who is acting, for the job's story."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"
