"""The history's database, a SQLite file: its tables, the place of the file, and connections to it.

All rows follow from stored results, so they can be written again. A series is one metric of one case, of one branch,
under one set of conditions: its numbers may be compared over time. A point is one arm of one result in a series, a
sample is one seed of a point.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from filelock import FileLock, Timeout
from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, Table, Text, UniqueConstraint
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import DBAPIError

from lab.core import paths, records, settings
from lab.core.errors import HostFailed, UserError
from lab.core.progress import Progress

VARIABLE = "LAB_DATABASE"
_TIMEOUT_S = 10.0
_REBUILD = "no result is lost by that: `lab history rebuild` makes the index again from the stored results"


class Database:
    """A database with up-to-date tables. Reading and writing are a transaction each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.engine = sa.create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": _TIMEOUT_S})
        sa.event.listen(self.engine, "connect", _set_up_sqlite)
        sa.event.listen(self.engine, "begin", _begin_sqlite)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with _translated_errors(self.path), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection that alone may write. An exception rolls everything back."""
        with (
            _translated_errors(self.path),
            _resealed(self.path),
            self.engine.connect().execution_options(lab_writes=True) as connection,
            connection.begin(),
        ):
            yield connection


@contextmanager
def opened(chosen: str | None = None) -> Iterator[Database]:
    """A database by its file, or the configured one; its tables are made first if they are missing or old."""
    path = choose(chosen)
    if path == _own_file() and _is_changed(path):
        raise HostFailed(f"the history's database {path} changed since the lab last wrote it", hint=_REBUILD)
    base = Database(path)
    try:
        with base.reading() as connection:
            found = _version(connection, path)
        if found != VERSION:
            with base.writing() as connection:
                _make_tables(connection, path)
        yield base
    finally:
        base.engine.dispose()


@contextmanager
def anew(chosen: str | None, progress: Progress) -> Iterator[Database]:
    """The database, to be filled again from stored results; the lab's own file is put aside if it is damaged."""
    path = choose(chosen)
    if path == _own_file() and path.exists() and (reason := _damage(path)):
        aside = path.with_name(f"{path.name}.damaged")
        aside.unlink(missing_ok=True)
        path.rename(aside)
        records.unseal(path)
        progress.log(f"{path} is damaged ({reason}): it is now {aside.name}")
    with opened(chosen) as base:
        yield base


def _damage(path: Path) -> str:
    """The damage of a SQLite file; empty if there is none, or if another program holds it."""
    if _is_changed(path):
        return "it changed since the lab last wrote it"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_TIMEOUT_S)) as connection:
            found = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        found = "ok" if "locked" in str(error) else str(error)
    return "" if found == "ok" else found.replace("\n", " ")


# ---- configuration


def choose(chosen: str | None) -> Path:
    """The file to use: the given one, else $LAB_DATABASE, `database` in lab.toml, or that of the data folder.

    `sqlite:////path/to/file`, as SQLAlchemy writes a SQLite file, names it as well.
    """
    configured = chosen or os.environ.get(VARIABLE) or settings.load().database
    text = (configured or str(_own_file())).removeprefix("sqlite:///")
    if not text or "://" in text:
        raise UserError("the history can only be in a SQLite file", hint="name it by its path: /path/to/file")
    return Path(text).absolute()


def _own_file() -> Path:
    return paths.data_dir("history") / "history.sqlite"


# ---- connections


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins transactions; the driver would begin them too late
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that begins as a reader and then writes cannot wait for another writer.
    writes = connection.get_execution_options().get("lab_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


# SQLite has no checksums, so a bit that turns on the disk is another number. The lab's own file has a seal beside it.


def _sealing(path: Path) -> FileLock:
    return FileLock(path.with_name(f".{path.name}.lock"), timeout=_TIMEOUT_S)


def _is_changed(path: Path) -> bool:
    try:
        with _sealing(path):
            return records.is_changed(path)
    except (OSError, Timeout):  # a store that this user may only read, or a store in use: SQLite gives the reason
        return False


@contextmanager
def _resealed(path: Path) -> Iterator[None]:
    """Seal the lab's own file again after a transaction; it has no seal during one, nor after a kill."""
    if path != _own_file():
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
def _translated_errors(path: Path) -> Iterator[None]:
    """Turn an error of the database into a `HostFailed` of one line with a hint."""
    try:
        yield
    except DBAPIError as error:
        lines = str(error.orig or error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        if "locked" in reason:
            reason = "another program holds it locked"
        raise HostFailed(f"the history's database {path} does not work: {reason}", hint=_REBUILD) from error


# ---- tables


def _version(connection: Connection, path: Path) -> int:
    """The version of a database's tables, 0 if it has none. Raises `HostFailed` if a newer lab made them."""
    if not sa.inspect(connection).has_table(version.name):
        return 0
    found = str(connection.execute(sa.select(version)).scalar() or 0)
    if not found.isdecimal() or int(found) > VERSION:
        raise HostFailed(
            f"the history's database {path} was written by another version of the lab: "
            f"its tables have version {found}, this lab's {VERSION:04}",
            hint="use that version, or name another database with --database",
        )
    return int(found)


def _make_tables(connection: Connection, path: Path) -> None:
    """Make the tables in place of older ones; `lab.history.index` adds the rows."""
    found = _version(connection, path)
    if found == VERSION:
        return  # another lab was first
    if found:  # else a table that has the name of ours is another program's: making ours fails
        old = sa.MetaData()
        old.reflect(connection, only=lambda name, _: name in {*metadata.tables, *OLD_TABLES})
        old.drop_all(connection)
    metadata.create_all(connection, checkfirst=False)
    connection.execute(sa.insert(version).values(version_num=f"{VERSION:04}"))


VERSION = 3
"""The version of the tables, raised with every change of one. A database with an older one gets new tables."""

metadata = MetaData()


def _texts(*names: str) -> list[Column[str]]:
    return [Column(name, Text, nullable=False) for name in names]


# One row. The first labs had it from Alembic: by this name they know newer tables, and leave them alone.
version = Table("alembic_version", metadata, Column("version_num", Text, primary_key=True))

# stamp: of the result's result.json.
results = Table(
    "results",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    *_texts("kind", "started", "mode", "base", "test", "verdict", "reason", "fingerprint", "plan"),
    Column("night", Integer, nullable=False),
    *_texts("stamp"),
)

# branch: empty except for results of `lab nightly`. conditions: a digest of everything beside the kernel's commit that
# decides numbers; setup: the part of it that a user chose.
series = Table(
    "series",
    metadata,
    Column("key", Integer, primary_key=True),
    *_texts("tree", "branch", "workload", "case_name", "metric", "unit", "better"),
    Column("is_primary", Boolean, nullable=False),
    *_texts("mode", "setup", "fingerprint", "conditions"),
    UniqueConstraint("workload", "case_name", "metric", "tree", "branch", "conditions", name="series_by_name"),
)

# first3, first6: means over the seeds that every result has (three always, six unless three were enough), so that
# points with more seeds stay comparable. night: 0 except for results of `lab nightly`.
points = Table(
    "points",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("series", Integer, ForeignKey("series.key"), nullable=False),
    Column("result", Integer, ForeignKey("results.key", ondelete="CASCADE"), nullable=False),
    *_texts("arm", "commit", "release", "subject"),
    Column("night", Integer, nullable=False),
    *_texts("started"),
    Column("seeds", Integer, nullable=False),
    Column("first3", Float),
    Column("first6", Float),
    Column("low", Float),
    Column("high", Float),
    UniqueConstraint("result", "series", "arm", name="points_by_result"),
)
Index("points_in_order", points.c.series, points.c.night, points.c.started)

samples = Table(
    "samples",
    metadata,
    Column("point", Integer, ForeignKey("points.key", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("value", Float),
    sqlite_with_rowid=False,
)

# The verdict of a result on a case; series: of the test arm.
comparisons = Table(
    "comparisons",
    metadata,
    Column("result", Integer, ForeignKey("results.key", ondelete="CASCADE"), primary_key=True),
    Column("series", Integer, ForeignKey("series.key"), primary_key=True),
    Column("arm", Text, primary_key=True),
    Column("ratio", Float),
    Column("low", Float),
    Column("high", Float),
    Column("verdict", Text),
    Column("counts", Boolean, nullable=False),
)
Index("comparisons_in_series", comparisons.c.series)

OLD_TABLES = ("nights", "acks")
"""The tables that the lab no longer has."""
