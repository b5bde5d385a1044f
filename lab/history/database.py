"""The history's database: which one, opened, brought up to date, and what is said when it does not answer.

Bringing a database up to date, by the steps in `lab/history/versions`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError, DBAPIError

from lab.core import paths, toml
from lab.core.errors import HostFailed, UserError
from lab.core.records import Record
from lab.history.schema import HEAD, series

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

VARIABLE = "LAB_DATABASE"
_SAFE = "no result is lost by that: `lab history rebuild` makes the index again from the stored results"
_PATIENCE_S = 10.0


class Database:
    """A database that is up to date. Reading and writing are a transaction each."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def name(self) -> str:
        """What to call it; a password is not shown."""
        return shown(self.engine.url)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read from."""
        with _explained(self.engine.url), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection to write to, alone; nothing is written if an exception passes."""
        with _explained(self.engine.url), write_to(self.engine) as connection:
            if connection.dialect.name == "postgresql":
                # Two labs that meet a new series at once would both add it.
                connection.execute(sa.text(f"LOCK TABLE {series.name} IN SHARE ROW EXCLUSIVE MODE"))
            yield connection

    def close(self) -> None:
        """Let go of all connections."""
        self.engine.dispose()


@contextmanager
def write_to(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction that means to write."""
    with engine.connect() as connection, connection.execution_options(lab_writes=True).begin():
        yield connection


@contextmanager
def opened(asked: str | None = None) -> Iterator[Database]:
    """The database of an URL, or the one that is configured, made or brought up to date if need be."""
    url = choose(asked)
    engine = _engine(url)
    try:
        with _explained(url):
            _bring_up_to_date(engine)
        yield Database(engine)
    finally:
        engine.dispose()


def choose(asked: str | None) -> URL:
    """The database to use: as asked for, else $LAB_DATABASE, else `database` in lab.toml, else a SQLite file."""
    text = asked or os.environ.get(VARIABLE) or _configured()
    if not text:
        return URL.create("sqlite", database=str(paths.data_dir("history") / "history.sqlite"))
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError) as error:
        raise UserError(
            "the history's database is no URL that can be read",
            hint="write sqlite:////path/to/file or postgresql://user@host/name",
        ) from error
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise UserError(f"the history cannot be kept in {url.get_backend_name()}", hint="use sqlite or postgresql")
    if url.get_backend_name() == "sqlite" and not url.database:
        raise UserError("the history's database names no file", hint="write sqlite:////path/to/file")
    return url


def is_shared(asked: str | None) -> bool:
    """Whether others may use the database, too: it was named, and is not the file that each user has."""
    return bool(asked or os.environ.get(VARIABLE) or _configured())


def shown(url: URL) -> str:
    """A database for people: without its password."""
    return url.database or "" if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)


def config_file() -> Path:
    """Where the user's own settings are, if there are any."""
    return platformdirs.user_config_path("kernel-ab-lab") / "lab.toml"


class _Settings(Record, frozen=True, kw_only=True):
    """`lab.toml`."""

    database: str | None = None


def _configured() -> str | None:
    file = config_file()
    if not file.is_file():
        return None
    return toml.load(file, _Settings).database


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        try:
            return sa.create_engine(url, connect_args={"connect_timeout": int(_PATIENCE_S)})
        except ImportError as error:
            raise UserError(
                "PostgreSQL needs the Python package psycopg", hint="pip install 'kernel-ab-lab[postgresql]'"
            ) from error
    engine = sa.create_engine(url, connect_args={"timeout": _PATIENCE_S})
    sa.event.listen(engine, "connect", _set_up_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions are begun below, not by the driver's guess
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    # A writer that begins as a reader could not wait for another writer.
    writes = connection.get_execution_options().get("lab_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _bring_up_to_date(engine: Engine) -> None:
    with engine.connect() as connection:
        if _revision(connection) == HEAD:
            return
    upgrade(engine, shown(engine.url))


def _revision(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


@contextmanager
def _explained(url: URL) -> Iterator[None]:
    """Turn what a database says when it does not work into one line that says what to do."""
    try:
        yield
    except DBAPIError as error:
        said = str(error.orig or error).strip().splitlines()
        reason = said[0] if said else type(error).__name__
        if "locked" in reason:
            reason = "another program holds it locked"
        raise HostFailed(f"the history's database {shown(url)} does not work: {reason}", hint=_SAFE) from error


_HERE = Path(__file__).parent


def scripts() -> ScriptDirectory:
    """All steps."""
    # Alembic takes a moment to load, and is wanted only where a database has to be changed.
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_HERE))
    config.set_main_option("version_locations", str(_HERE / "versions"))
    config.set_main_option("path_separator", "newline")
    return ScriptDirectory.from_config(config)


def upgrade(engine: Engine, name: str) -> None:
    """Take every step that a database has not had yet, in one transaction."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.util import CommandError

    found = scripts()
    context = EnvironmentContext(Config(), found, fn=lambda revision, _: found._upgrade_revs("head", revision))
    try:
        with write_to(engine) as connection:
            context.configure(connection=connection)
            with context:
                context.run_migrations()
    except CommandError as error:
        raise HostFailed(
            f"the history's database {name} was written by another version of the lab: {error}",
            hint="use that one, or name another database with --database",
        ) from error
