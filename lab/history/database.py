"""The history's database: finds it, connects to it, and makes its tables."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs
import sqlalchemy as sa
from filelock import FileLock, Timeout
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError, DBAPIError

from lab.core import paths, records, toml
from lab.core.errors import HostFailed, UserError
from lab.core.progress import Progress
from lab.core.records import Record
from lab.history.schema import KEPT, VERSION, metadata, version

VARIABLE = "LAB_DATABASE"
_TIMEOUT_S = 10.0
_LOCK = int.from_bytes(b"lab")  # a number that other users of a PostgreSQL database are unlikely to lock
_REBUILD = "no result is lost by that: `lab history rebuild` makes the index again from the stored results"


class Database:
    """A database with up-to-date tables. Reading and writing are a transaction each."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def name(self) -> str:
        """The database for people, without its password."""
        return shown(self.engine.url)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read from."""
        with _translated_errors(self.engine.url), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection that alone may write. An exception rolls everything back."""
        with (
            _translated_errors(self.engine.url),
            _resealed(self.engine.url),
            self.engine.connect().execution_options(lab_writes=True) as connection,
            connection.begin(),
        ):
            if connection.dialect.name == "postgresql":
                # Two labs that meet a new series, or a database without tables, would both add them.
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            yield connection


@contextmanager
def opened(url: str | None = None) -> Iterator[Database]:
    """The database of a URL, or the configured one; its tables are made first if they are missing or old."""
    chosen = choose(url)
    if _is_own(chosen) and _is_changed(_own_file()):
        raise HostFailed(f"the history's database {shown(chosen)} is not what the lab wrote last", hint=_REBUILD)
    base = Database(_engine(chosen))
    try:
        with base.reading() as connection:
            found = _version(connection)
        if found != VERSION:
            with base.writing() as connection:
                _make_tables(connection)
        yield base
    finally:
        base.engine.dispose()


@contextmanager
def anew(url: str | None, progress: Progress) -> Iterator[Database]:
    """The database, to be filled again from stored results; the lab's own file is put aside where it is damaged."""
    if not is_shared(url) and (path := _own_file()).exists() and (reason := _damage(path)):
        aside = path.with_name(f"{path.name}.damaged")
        aside.unlink(missing_ok=True)
        path.rename(aside)
        records.unseal(path)
        progress.log(f"{path} is damaged ({reason}): it is now {aside.name}")
    with opened(url) as base:
        yield base


def _damage(path: Path) -> str:
    """The damage of a SQLite file; empty where there is none, or where another program holds it."""
    if _is_changed(path):
        return "it is not what the lab wrote last"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_TIMEOUT_S)) as connection:
            found = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        found = "ok" if "locked" in str(error) else str(error)
    return "" if found == "ok" else found.replace("\n", " ")


# ---- configuration


def choose(url: str | None) -> URL:
    """The database to use: the given one, else $LAB_DATABASE, `database` in lab.toml, or a SQLite file."""
    text = _configured(url)
    if not text:
        return URL.create("sqlite", database=str(_own_file()))
    try:
        chosen = sa.make_url(text)
    except (ArgumentError, ValueError) as error:
        raise UserError(
            "the database of the history is not a valid URL",
            hint="write sqlite:////path/to/file or postgresql://user@host/name",
        ) from error
    if chosen.drivername in ("postgresql", "postgres"):
        chosen = chosen.set(drivername="postgresql+psycopg")
    if chosen.get_backend_name() not in ("sqlite", "postgresql"):
        raise UserError(f"the history does not support {chosen.get_backend_name()}", hint="use sqlite or postgresql")
    if chosen.get_backend_name() == "sqlite" and not chosen.database:
        raise UserError("the database of the history names no file", hint="write sqlite:////path/to/file")
    return chosen


def _own_file() -> Path:
    return paths.data_dir("history") / "history.sqlite"


def is_shared(url: str | None) -> bool:
    """True if the user named a database, which a team may share, instead of using the default file."""
    return bool(_configured(url))


def shown(url: URL) -> str:
    """A database for people, without its passwords: those in the query are hidden, too."""
    if url.get_backend_name() == "sqlite":
        return url.database or ""
    hidden = {name: "***" for name in url.query if "password" in name}
    return url.update_query_dict(hidden).render_as_string(hide_password=True).replace("%2A%2A%2A", "***")


def config_file() -> Path:
    """The user's own settings, a file that may not exist."""
    return platformdirs.user_config_path("kernel-ab-lab") / "lab.toml"


class _Settings(Record, frozen=True, kw_only=True):
    """`lab.toml`."""

    database: str | None = None


def _configured(url: str | None) -> str | None:
    if url := url or os.environ.get(VARIABLE):
        return url
    return toml.load(config_file(), _Settings).database if config_file().is_file() else None


# ---- connections


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        try:
            return sa.create_engine(url, connect_args={"connect_timeout": int(_TIMEOUT_S)})
        except ImportError as error:
            raise UserError(
                "PostgreSQL needs the Python package psycopg", hint="pip install 'kernel-ab-lab[postgresql]'"
            ) from error
    engine = sa.create_engine(url, connect_args={"timeout": _TIMEOUT_S})
    sa.event.listen(engine, "connect", _set_up_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins transactions; the driver would begin them too late
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that begins as a reader and then writes cannot wait for another writer.
    writes = connection.get_execution_options().get("lab_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


# SQLite has no checksums, so a bit that turns on the disk is another number. The lab's own file has a seal beside it.


def _is_own(url: URL) -> bool:
    return url.get_backend_name() == "sqlite" and url.database == str(_own_file())


def _sealing(path: Path) -> FileLock:
    return FileLock(path.with_name(f".{path.name}.lock"), timeout=_TIMEOUT_S)


def _is_changed(path: Path) -> bool:
    try:
        with _sealing(path):
            return records.is_changed(path)
    except (OSError, Timeout):  # a store that this user may only read, or one in use: SQLite says what is wrong with it
        return False


@contextmanager
def _resealed(url: URL) -> Iterator[None]:
    """Seal the lab's own file anew after a transaction; it has no seal meanwhile, nor after a kill."""
    path = _own_file()
    if not _is_own(url):
        yield
        return
    try:
        lock = _sealing(path).acquire()
    except Timeout as error:
        raise HostFailed(f"the history's database {path} does not work: another lab writes to it") from error
    with lock:
        records.unseal(path)
        yield
        with suppress(HostFailed):  # a disk that is full now: there is no seal
            records.seal(path)


@contextmanager
def _translated_errors(url: URL) -> Iterator[None]:
    """Turn an error of the database into a `HostFailed` of one line with a hint."""
    try:
        yield
    except DBAPIError as error:
        lines = str(error.orig or error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        if "locked" in reason:
            reason = "another program holds it locked"
        raise HostFailed(
            f"the history's database {shown(url)} does not work: {reason}",
            hint=_REBUILD,
        ) from error


# ---- tables


def _version(connection: Connection) -> int:
    """The version of a database's tables, 0 if it has none. Raises `HostFailed` if a newer lab made them."""
    if not sa.inspect(connection).has_table(version.name):
        return 0
    found = str(connection.execute(sa.select(version)).scalar() or 0)
    if not found.isdecimal() or int(found) > VERSION:
        raise HostFailed(
            f"the history's database {shown(connection.engine.url)} was written by another version of the lab: "
            f"its tables have version {found}, this lab's {VERSION:04}",
            hint="use that version, or name another database with --database",
        )
    return int(found)


def _make_tables(connection: Connection) -> None:
    """Make the tables in place of older ones, with the rows of `KEPT`; `lab.history.index` adds the others.

    A column of `KEPT` that is gone is left out, and a new column takes its default.
    """
    found = _version(connection)
    if found == VERSION:
        return  # another lab was first
    old = sa.MetaData()
    if found:  # else a table that has the name of ours is another program's: making ours fails
        old.reflect(connection, only=lambda name, _: name in metadata.tables)
    rows = {
        table: connection.execute(sa.select(old.tables[table.name])).mappings().all()
        for table in KEPT
        if table.name in old.tables
    }
    old.drop_all(connection)
    metadata.create_all(connection, checkfirst=False)
    for table, kept in rows.items():
        for row in kept:
            connection.execute(sa.insert(table).values({name: row[name] for name in row if name in table.c}))
    connection.execute(sa.insert(version).values(version_num=f"{VERSION:04}"))
