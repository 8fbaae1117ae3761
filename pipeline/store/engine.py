"""How do we reach Postgres?

One `Database` per process, made at first use and never inherited through a fork. A single statement is its own
transaction (`run`); several go through `transaction`. Connections that broke are replaced, for a few seconds, before
anybody hears of it.
"""

from __future__ import annotations

import json
import math
import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import psycopg2
import psycopg2.extensions
import psycopg2.extras
from sqlalchemy import Connection, CursorResult, Engine, TextClause, create_engine, event, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential_jitter

from pipeline import settings
from pipeline.core.errors import DatabaseUnavailable

if TYPE_CHECKING:  # a caller that has such a session has loaded it; nobody else must
    from sqlalchemy.orm import Session as OrmSession

psycopg2.extras.register_uuid()  # type: ignore[no-untyped-call]

CONNECT: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    # Nothing we run is slow: who waits longer than this waits for somebody who holds a lock for no good reason.
    "options": "-c statement_timeout=30s -c lock_timeout=10s -c idle_in_transaction_session_timeout=60s",
}
PATIENCE_S = 5.0
HASTE_S = 1.0
TROUBLE = (DBAPIError, NoConnectionFree)  # what a statement can end with, besides DatabaseUnavailable
BUSY = ("55P03", "57014", "40P01", "40001", "53300")  # locked, took too long, deadlock, lost a race, no connection left

T = TypeVar("T")
Session: TypeAlias = "OrmSession | Connection"  # whatever a caller's transaction is


def is_outage(exc: BaseException) -> bool:
    """Whether the database was away, as opposed to having said no."""
    if isinstance(exc, psycopg2.OperationalError | psycopg2.InterfaceError):
        return True  # as the driver says it: the connection broke while it was given back to the pool
    if not isinstance(exc, OperationalError | InterfaceError):
        return False
    return exc.connection_invalidated or not getattr(exc.orig, "pgcode", None)


def is_busy(exc: BaseException) -> bool:
    """Whether the database would have said yes at a quieter moment."""
    return isinstance(exc, NoConnectionFree) or getattr(getattr(exc, "orig", None), "pgcode", None) in BUSY


class Database:
    """A pool of connections to one Postgres. With `timeout_s`, no statement takes longer."""

    def __init__(
        self, url: str, *, pool_size: int = 4, patience_s: float = PATIENCE_S, timeout_s: float | None = None
    ) -> None:
        connect, pool_timeout_s = CONNECT, 10.0
        if timeout_s is not None:
            most = int(timeout_s * 1000)
            connect = CONNECT | {"options": f"-c statement_timeout={most} -c lock_timeout={most}"}
            pool_timeout_s = timeout_s
        self.engine: Engine = create_engine(
            url,
            connect_args=connect,
            pool_size=pool_size,
            max_overflow=8,
            pool_timeout=pool_timeout_s,
            json_serializer=dumps,
        )
        self._each = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self.patience_s = patience_s

    def run(self, statement: TextClause, /, **params: Any) -> list[Any]:
        """The rows of one statement that commits by itself. It is run again if the connection broke: harmless twice."""
        params = {name: clean(value) if isinstance(value, str) else value for name, value in params.items()}

        def once() -> list[Any]:
            with self._each.connect() as conn:
                return fetch(conn.execute(statement, params))

        return self._patiently(once)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Several statements, all or none."""
        try:
            with self._patiently(self._connected) as conn, conn.begin():
                yield conn
        except (DBAPIError, psycopg2.Error) as exc:
            if is_outage(exc):
                raise DatabaseUnavailable("Postgres cannot be reached.") from exc
            raise

    def hasty(self) -> Database:
        """The same pool for somebody who would rather ask again than wait."""
        other = copy(self)
        other.patience_s = HASTE_S
        return other

    def dispose(self) -> None:
        self.engine.dispose()

    def _connected(self) -> Connection:
        """A connection that works: one that broke while it lay in the pool shows it now, not in the middle."""
        conn = self.engine.connect()
        try:
            conn.execute(text("SELECT 1"))
            conn.rollback()
        except BaseException:
            conn.close()
            raise
        return conn

    def _patiently(self, action: Callable[[], T]) -> T:
        try:
            for attempt in Retrying(
                retry=retry_if_exception(is_outage),
                stop=stop_after_delay(self.patience_s),
                wait=wait_exponential_jitter(multiplier=0.05, max=1.0, jitter=0.05),
                reraise=True,
            ):
                with attempt:
                    return action()
        except (DBAPIError, psycopg2.Error) as exc:
            if is_outage(exc):
                raise DatabaseUnavailable("Postgres cannot be reached.") from exc
            raise
        raise AssertionError("unreachable")


@contextmanager
def savepoint(session: Session) -> Iterator[Connection]:
    """A part of the caller's transaction that can fail without taking the rest with it."""
    conn = session if isinstance(session, Connection) else session.connection()
    with conn.begin_nested():
        yield conn


def after_commit(session: Session, action: Callable[[], None]) -> None:
    """Call `action` when the caller's Session has committed. A bare Connection cannot tell: then nothing is called."""

    def when_done(_session: OrmSession) -> None:
        action()

    if not isinstance(session, Connection):
        event.listen(session, "after_commit", when_done, once=True)


def fetch(result: CursorResult[Any]) -> list[Any]:
    """The rows, or none where the statement returns none."""
    return list(result.fetchall()) if result.returns_rows else []


def clean(said: str) -> str:
    """The text without what Postgres cannot hold: NUL, and halves of characters. Tools and servers say such things."""
    return said.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def dumps(value: Any) -> str:
    """The value as JSON that Postgres takes: texts cleaned, no number that is none."""
    written = json.dumps(value, default=str, separators=(",", ":"))
    if any(odd in written for odd in ("\\u0000", "\\ud", "NaN", "Infinity")):
        return json.dumps(_cleaned(json.loads(written)), separators=(",", ":"))
    return written


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case list():
            return [_cleaned(each) for each in value]
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {clean(name): _cleaned(each) for name, each in value.items()}
        case _:
            return value


_manner: dict[str, Any] = {}


def answer_people(timeout_s: float, connections: int) -> None:
    """This process serves people who wait: no statement takes longer than this, also if Postgres is frozen."""
    _manner.update(pool_size=connections, patience_s=min(HASTE_S, timeout_s / 4), timeout_s=timeout_s)
    _of_process.cache_clear()
    psycopg2.extensions.set_wait_callback(_waiting_at_most(timeout_s + 1))


def _waiting_at_most(most_s: float) -> Callable[[Any], None]:
    """A wait for the server that ends: the driver's own reads until somebody answers, which may be never."""
    events = {psycopg2.extensions.POLL_READ: select.POLLIN, psycopg2.extensions.POLL_WRITE: select.POLLOUT}

    def wait(conn: Any) -> None:
        until = time.monotonic() + most_s
        while (state := conn.poll()) != psycopg2.extensions.POLL_OK:
            asked = select.poll()
            asked.register(conn.fileno(), events[state])
            if not asked.poll(max(0.0, until - time.monotonic()) * 1000):
                raise psycopg2.OperationalError("Postgres does not answer")

    return wait


@lru_cache(maxsize=1)
def _of_process(_pid: int) -> Database:
    now = settings.current()
    now.need("database_url")
    return Database(now.database_url, **_manner)


def database() -> Database:
    """This process's database; a forked child gets one of its own."""
    return _of_process(os.getpid())
