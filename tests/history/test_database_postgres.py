"""The history in PostgreSQL, as a team has it: a real server, which this test starts."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from lab.core.errors import HostFailed
from lab.history import index, schema
from lab.history.database import opened

from ..fakes import postgres
from ..nightly.test_team import Team, check_acknowledged_elsewhere, team
from .test_database import check_failure, check_older_tables, check_two_at_once
from .test_index import QUIET, check_everything, content, folders, store

__all__ = ["folders", "team"]  # fixtures that pytest finds by their names

pytestmark = pytest.mark.database


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if postgres.programs() is None:
        if os.environ.get("LAB_REQUIRE_POSTGRESQL") == "1":
            pytest.fail("PostgreSQL is not installed")
        pytest.skip("PostgreSQL is not installed")
    # A socket's path has to be short, and the server's user must reach it.
    with tempfile.TemporaryDirectory(prefix="lab-pg-", dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        with postgres.served(Path(folder) / "pg") as url:
            yield url


@pytest.fixture
def database(server: str) -> Iterator[str]:
    """An empty database."""
    engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
        connection.commit()
    engine.dispose()
    yield server


def test_everything_with_postgresql(database: str) -> None:
    check_everything(database)


@pytest.mark.parametrize("check", [check_older_tables, check_two_at_once, check_failure])
def test_tables_of_another_version(check: Callable[[str | None], None], database: str) -> None:
    check(database)


def test_both_databases_have_the_same_content(database: str) -> None:
    for number in range(1, 4):
        store(number, night=number)
    with opened() as here, opened(database) as there:
        index.rebuild(here, QUIET)
        index.rebuild(there, QUIET)
        assert content(here) == content(there)


def test_a_team_knows_what_one_of_it_acknowledged(database: str, team: Team) -> None:
    team.nights.monkeypatch.setenv("LAB_DATABASE", database)
    check_acknowledged_elsewhere(team)


def test_a_rebuild_leaves_the_results_of_other_machines(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store(1, night=1)
    with opened(database) as base:
        monkeypatch.setattr(index, "origin", lambda: "another")
        index.rebuild(base, QUIET)
        monkeypatch.setattr(index, "origin", lambda: "this")
        index.rebuild(base, QUIET)
        index.rebuild(base, QUIET)
        with base.reading() as connection:
            assert sorted(connection.execute(sa.select(schema.results.c.origin)).scalars()) == ["another", "this"]


def test_two_at_once_add_each_series_once(database: str) -> None:
    folders = [store(1), store(2)]
    with opened(database):
        pass
    failed: list[BaseException] = []

    def add(folder: Path) -> None:
        try:
            with opened(database) as base:
                index.index(base, [folder], QUIET)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=add, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with opened(database) as base, base.reading() as connection:
        names = connection.execute(sa.select(schema.series.c.metric, schema.series.c.conditions)).all()
        assert len(names) == len(set(names))


def test_a_server_that_is_gone_is_a_line(tmp_path: Path) -> None:
    with (
        pytest.raises(HostFailed, match="the history's database postgresql"),
        opened(f"postgresql://lab:secret@/lab?host={tmp_path}"),
    ):
        pass
