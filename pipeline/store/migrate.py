"""How does a database get its tables? By Alembic, under a lock, as often as one likes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from pipeline.core.errors import BadRequest, DatabaseUnavailable, ToolMissing

LOCK = text("SELECT pg_advisory_lock(hashtext('ironclip migrations'))")
UNLOCK = text("SELECT pg_advisory_unlock(hashtext('ironclip migrations'))")


def upgrade(url: str, revision: str = "head") -> str:
    """Bring the database up to a revision; the revision that it has then. Others wait while one migrates."""
    return _migrate(url, revision, up=True)


def downgrade(url: str, revision: str) -> str:
    """Take the database back to a revision ('base': without tables)."""
    return _migrate(url, revision, up=False)


def head() -> str:
    """The newest revision that this code knows."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ""


def _migrate(url: str, revision: str, *, up: bool) -> str:
    config = _config()
    engine = create_engine(url, connect_args={"connect_timeout": 5})
    try:
        with engine.connect() as guard, engine.connect() as conn:
            guard.execute(LOCK)
            config.attributes["connection"] = conn
            (command.upgrade if up else command.downgrade)(config, revision)
            conn.commit()
            now = MigrationContext.configure(conn).get_current_revision() or "base"
            guard.execute(UNLOCK)
            return now
    except OperationalError as exc:
        raise DatabaseUnavailable("Postgres cannot be reached.") from exc
    except CommandError as exc:
        raise BadRequest("UNKNOWN_REVISION", f"There is no way to revision {revision!r}.", field="revision") from exc
    finally:
        engine.dispose()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_folder()))
    return config


def _folder() -> Path:
    """Where the migrations are: inside an installed wheel, or beside the package in a checkout."""
    spec = find_spec("pipeline")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise ToolMissing("The migrations are not installed with this package.")
