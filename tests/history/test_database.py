"""The tables of the history's database: those of older and newer labs, two labs at once, and a kill."""

import itertools
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lab.core.errors import HostFailed
from lab.history import database, index, trends
from lab.history.database import Database, opened
from lab.history.trends import SeriesFilter

from .test_index import QUIET, content, folders, store

__all__ = ["folders"]  # a fixture that pytest finds by its name

REPOSITORY = Path(__file__).parents[2]
RECORDED = REPOSITORY / f"tests/data/history-{database.VERSION}.sql"


def make_recorded(path: Path) -> str:
    """Make the database that was recorded of this version, by the first lab that had it; returns its path."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(RECORDED.read_text())
    return str(path)


def select(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def tables_of(path: Path) -> dict[str, str]:
    """The statements that make a SQLite file's tables and indexes, but for the version's."""
    rows = select(path, "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {name: re.sub(r"\s+", " ", sql).strip() for name, sql in rows if name != database.version.name}


def all_rows(base: Database, *tables: sa.Table) -> list[list[tuple[object, ...]]]:
    with base.reading() as connection:
        return [[tuple(row) for row in connection.execute(sa.select(table))] for table in tables]


def make_old(number: int = 1) -> list[str]:
    """Fill the database, and make it one of an older version; returns its content."""
    for one in range(1, number + 1):
        store(one, night=one)
    with opened() as base:
        index.catch_up(base, QUIET)
        before = content(base)
        with base.writing() as connection:
            connection.execute(sa.text("ALTER TABLE results DROP COLUMN reason"))
            connection.execute(sa.text("CREATE TABLE acks (host TEXT)"))
            connection.execute(sa.update(database.version).values(version_num="0001"))
    return before


def test_of_older_tables_results_are_read_anew() -> None:
    before = make_old(3)
    with opened() as base:
        assert all_rows(base, database.version) == [[(f"{database.VERSION:04}",)]]
        assert "acks" not in sa.inspect(base.engine).get_table_names()
        assert index.catch_up(base, QUIET) == 3
    with opened() as base:
        assert content(base) == before


def test_of_two_labs_that_meet_old_tables_one_makes_the_new_ones() -> None:
    make_old()
    both, number, read = threading.Barrier(2, timeout=60), itertools.count(), database._version
    made, failed = list[str](), list[BaseException]()

    def read_by_both(connection: sa.Connection, path: Path) -> int:
        found = read(connection, path)
        if next(number) < 2:
            assert found == 1
            both.wait()
        return found

    def use() -> None:
        try:
            with opened():
                pass
        except BaseException as error:
            failed.append(error)

    def note(table: sa.Table, *_: object, **__: object) -> None:
        made.append(table.name)

    sa.event.listen(database.samples, "after_create", note)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database, "_version", read_by_both)
            threads = [threading.Thread(target=use) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sa.event.remove(database.samples, "after_create", note)
    assert not failed and made == ["samples"]


def test_the_tables_are_those_of_their_version(tmp_path: Path) -> None:
    assert RECORDED.exists(), "the tables have a new version: record one of its databases"
    make_recorded(tmp_path / "recorded.sqlite")
    with opened(f"{tmp_path}/new.sqlite"):
        pass
    made, recorded = tables_of(tmp_path / "new.sqlite"), tables_of(tmp_path / "recorded.sqlite")
    assert made == recorded, "other tables need another VERSION in lab/history/database.py"


def test_the_recorded_database_is_used_as_it_is(tmp_path: Path) -> None:
    store(2, night=2)
    with opened(make_recorded(tmp_path / "old.sqlite")) as base:
        with base.reading() as connection:
            (found,) = trends.list_series(connection, SeriesFilter(tree="linux"))
            assert (found.workload, found.points) == ("alloc-burst", 1)
        assert index.catch_up(base, QUIET) == 1
        assert len(all_rows(base, database.results)[0]) == 2


def test_a_kill_leaves_the_old_tables() -> None:
    make_old()
    lines = (
        "import os, signal, sqlalchemy",
        "from lab.history import database",
        "kill = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)",
        "sqlalchemy.event.listen(database.samples, 'after_create', kill)",
        "with database.opened(): pass",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=REPOSITORY, check=False)
    assert done.returncode == -signal.SIGKILL
    left = "SELECT version_num, (SELECT count(*) FROM results) FROM alembic_version"
    assert select(database.choose(None), left) == [("0001", 1)]
    with opened() as base:
        assert index.catch_up(base, QUIET) == 1


@pytest.mark.parametrize("newer", [f"{database.VERSION + 1:04}", "9999", "ae1027a6acf"])
def test_a_database_of_a_newer_lab_is_left_alone(newer: str, tmp_path: Path) -> None:
    path = make_recorded(tmp_path / "newer.sqlite")
    with sqlite3.connect(tmp_path / "newer.sqlite") as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", [newer])
    before = (tmp_path / "newer.sqlite").read_bytes()
    wrong = f"written by another version of the lab: its tables have version {newer}, this lab's {database.VERSION:04}"
    with pytest.raises(HostFailed, match=wrong), opened(path):
        pass
    assert (tmp_path / "newer.sqlite").read_bytes() == before


def test_a_file_that_the_lab_did_not_write_is_put_aside() -> None:
    store(1, night=1)
    with opened() as base:
        index.catch_up(base, QUIET)
        before = content(base)
    path = database._own_file()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE samples SET value = value + 1")
    with pytest.raises(HostFailed, match="changed since the lab last wrote it"), opened():
        pass
    with database.anew(None, QUIET) as base:
        assert index.catch_up(base, QUIET) == 1
        assert content(base) == before
    assert path.with_name(f"{path.name}.damaged").exists()


def test_tables_of_another_program_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE results (mine TEXT)")
        connection.execute("INSERT INTO results VALUES ('precious')")
    with pytest.raises(HostFailed, match="table results already exists"), opened(str(path)):
        pass
    assert select(path, "SELECT * FROM results") == [("precious",)]
