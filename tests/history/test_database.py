"""The tables of the history's database: those of older and newer labs, two labs at once, and a kill."""

from __future__ import annotations

import itertools
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from lab.core.errors import HostFailed
from lab.history import database, index, schema, trends
from lab.history.database import Database, opened
from lab.history.trends import SeriesFilter

from .test_index import QUIET, content, folders, store

__all__ = ["folders"]  # a fixture that pytest finds by its name

REPOSITORY = Path(__file__).parents[2]
RECORDED = REPOSITORY / f"tests/data/history-{schema.VERSION}.sql"


def make_recorded(path: Path) -> str:
    """Make the database that was recorded of this version, by the first lab that had it; returns its URL."""
    connection = sqlite3.connect(path)
    connection.executescript(RECORDED.read_text())
    connection.close()
    return f"sqlite:///{path}"


def tables_of(path: Path) -> dict[str, str]:
    """The statements that make a SQLite file's tables and indexes, but for the version's."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: re.sub(r"\s+", " ", sql).strip() for name, sql in rows if name != schema.version.name}


def all_rows(base: Database, *tables: sa.Table) -> list[list[tuple[object, ...]]]:
    with base.reading() as connection:
        return [[tuple(row) for row in connection.execute(sa.select(table))] for table in tables]


def make_old(asked: str | None, *changes: str) -> list[list[tuple[object, ...]]]:
    """Fill a database, and make it one of an older version; returns the rows of the tables that are kept."""
    with opened(asked) as base:
        index.catch_up(base, QUIET)
        with base.writing() as connection:
            ack = {"host": "gone", "event": "plan.1.1", "note": "the price", "at": "2026-11-02T10:00:00+00:00"}
            connection.execute(sa.insert(schema.acks), [ack, {**ack, "event": "plan.2.1"}])
            night = {"origin": "gone", "plan": "plan", "number": 1, "stamp": "1:2", "document": "{}"}
            connection.execute(sa.insert(schema.nights).values(night))
        kept = all_rows(base, *schema.KEPT)
        with base.writing() as connection:
            for change in changes:
                connection.execute(sa.text(change))
            connection.execute(sa.update(schema.version).values(version_num="0001"))
    return kept


def check_older_tables(asked: str | None) -> None:
    """Check that results are read anew, and nothing else is lost, with any database."""
    for number in range(1, 4):
        store(number, night=number)
    with opened(asked) as base:
        index.catch_up(base, QUIET)
        before = content(base)
    kept = make_old(asked, "ALTER TABLE results DROP COLUMN reason", "ALTER TABLE acks ADD COLUMN more TEXT")
    with opened(asked) as base:
        assert all_rows(base, *schema.KEPT) == kept
        assert all_rows(base, schema.version) == [[(f"{schema.VERSION:04}",)]]
        assert index.catch_up(base, QUIET) == 3
        assert content(base) == before
    with opened(asked) as base:
        assert content(base) == before


def check_two_at_once(asked: str | None) -> None:
    """Check that of two labs that meet old tables one makes the new ones, and the other waits."""
    kept = make_old(asked)
    both, number, read = threading.Barrier(2, timeout=60), itertools.count(), database._version
    made: list[str] = []
    failed: list[BaseException] = []

    def read_by_both(connection: sa.Connection) -> int:
        found = read(connection)
        if next(number) < 2:
            assert found == 1
            both.wait()
        return found

    def use() -> None:
        try:
            with opened(asked) as base:
                assert all_rows(base, *schema.KEPT) == kept
        except BaseException as error:
            failed.append(error)

    def note(table: sa.Table, *_: object, **__: object) -> None:
        made.append(table.name)

    sa.event.listen(schema.acks, "after_create", note)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database, "_version", read_by_both)
            threads = [threading.Thread(target=use) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sa.event.remove(schema.acks, "after_create", note)
    assert not failed and made == ["acks"]


def check_failure(asked: str | None) -> None:
    """Check that a row that cannot be carried over leaves all tables as they were."""
    store(1)
    make_old(asked, "ALTER TABLE acks DROP COLUMN note")
    for _ in range(2):
        with pytest.raises(HostFailed, match="does not work"), opened(asked):
            pass
    engine = sa.create_engine(database.choose(asked))
    with engine.connect() as connection:
        assert connection.execute(sa.select(schema.version)).scalar() == "0001"
        assert len(connection.execute(sa.select(schema.results)).all()) == 1
        assert len(connection.execute(sa.select(schema.acks.c.event)).all()) == 2
    engine.dispose()


@pytest.mark.parametrize("check", [check_older_tables, check_two_at_once, check_failure])
def test_tables_of_another_version(check: Callable[[str | None], None]) -> None:
    check(None)


def test_the_tables_are_those_of_their_version(tmp_path: Path) -> None:
    assert RECORDED.exists(), "the tables have a new version: record one of its databases"
    make_recorded(tmp_path / "recorded.sqlite")
    with opened(f"sqlite:///{tmp_path}/new.sqlite"):
        pass
    made, recorded = tables_of(tmp_path / "new.sqlite"), tables_of(tmp_path / "recorded.sqlite")
    assert made == recorded, "other tables need another VERSION in lab/history/schema.py"


def test_a_database_that_alembic_made_is_used_as_it_is(tmp_path: Path) -> None:
    store(2, night=2)
    with opened(make_recorded(tmp_path / "old.sqlite")) as base:
        assert all_rows(base, schema.acks) == [
            [("gone", "plan.1.1", "the price of a fix", "2026-11-02T10:00:00+00:00")]
        ]
        with base.reading() as connection:
            (found,) = trends.list_series(connection, SeriesFilter(tree="linux"))
            assert (found.workload, found.points) == ("alloc-burst", 1)
        assert index.catch_up(base, QUIET) == 1
        assert len(all_rows(base, schema.results)[0]) == 2


def test_a_new_column_of_an_acknowledgement_takes_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = sa.MetaData()
    tables = {table.name: table.to_metadata(newer) for table in schema.metadata.sorted_tables}
    tables["acks"].append_column(sa.Column("by", sa.Text, nullable=False, default="nobody"))
    monkeypatch.setattr(database, "metadata", newer)
    monkeypatch.setattr(database, "KEPT", (tables["acks"],))
    monkeypatch.setattr(database, "VERSION", schema.VERSION + 1)
    with opened(make_recorded(tmp_path / "old.sqlite")) as base:
        assert [row[-1] for row in all_rows(base, tables["acks"])[0]] == ["nobody"]
        assert all_rows(base, tables["results"], tables["nights"]) == [[], []]


def test_a_kill_leaves_the_old_tables() -> None:
    store(1)
    kept = make_old(None)
    lines = (
        "import os, signal, sqlalchemy",
        "from lab.history import database, schema",
        "kill = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)",
        "sqlalchemy.event.listen(schema.acks, 'after_create', kill)",
        "with database.opened(): pass",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=REPOSITORY, check=False)
    assert done.returncode == -signal.SIGKILL
    path = str(database.choose(None).database)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
    assert connection.execute("SELECT count(*) FROM results").fetchall() == [(1,)]
    connection.close()
    with opened() as base:
        assert all_rows(base, *schema.KEPT) == kept
        assert index.catch_up(base, QUIET) == 1


@pytest.mark.parametrize("newer", [f"{schema.VERSION + 1:04}", "9999", "ae1027a6acf"])
def test_a_database_of_a_newer_lab_is_left_alone(newer: str, tmp_path: Path) -> None:
    url = make_recorded(tmp_path / "newer.sqlite")
    with sqlite3.connect(tmp_path / "newer.sqlite") as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", [newer])
    before = (tmp_path / "newer.sqlite").read_bytes()
    wrong = f"written by another version of the lab: its tables have version {newer}, this lab's {schema.VERSION:04}"
    with pytest.raises(HostFailed, match=wrong), opened(url):
        pass
    assert (tmp_path / "newer.sqlite").read_bytes() == before


def test_tables_of_another_program_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE results (mine TEXT)")
        connection.execute("INSERT INTO results VALUES ('precious')")
    with pytest.raises(HostFailed, match="table results already exists"), opened(f"sqlite:///{path}"):
        pass
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT * FROM results").fetchall() == [("precious",)]
