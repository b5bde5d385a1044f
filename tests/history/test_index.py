"""The history's database: indexing, trends, and errors."""

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from lab import history
from lab.compare import result_folders
from lab.core import records, settings
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.history import database, index, trends
from lab.history.database import Database, opened
from lab.history.index import Label
from lab.history.trends import SeriesFilter

from ..fakes import kernel_image
from ..fakes import result as fakeresult
from ..fakes import samples as manysamples
from ..fakes.command import Lab
from ..fakes.guest import FakeGuests, pretend, write_workload
from ..fakes.result import case, result

QUIET = Progress(quiet=True)


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch, own_home: None) -> None:
    monkeypatch.delenv("LAB_DATABASE", raising=False)


def store(number: int, *, level: float = 100.0, night: int = 0, trend: bool = True, count: int = 6) -> Path:
    """A stored comparison; with a night, one that `lab nightly` would have made."""
    name = f"202611{number:02d}-090000-aaaa"
    base, test = [100.0 + i for i in range(count)], [level + i for i in range(count)]
    document = result(
        case("large", base, test, holm=True), name=name, started=f"2026-11-{number:02d}T09:00:00+00:00",
        seeds=list(range(1, count + 1)),
    )  # fmt: skip
    folder = result_folders.results_dir() / name
    fakeresult.store(folder, document, commits=(f"{number - 1:040x}", f"{number:040x}"))
    if night:
        label = Label(
            plan="plan", night=night, date="2026-11-21", tree="linux", branch="main", baseline="yesterday", trend=trend
        )
        records.save(folder / index.LABEL, label)
    return folder


def content(base: Database) -> list[str]:
    """Everything in a database, but for the keys that it chose itself."""
    with base.reading() as connection:
        names = {row.key: str(row[1:]) for row in connection.execute(sa.select(database.series))}
        ids = {row.key: str(row[1:]) for row in connection.execute(sa.select(database.results))}
        points = {}
        rows = [*names.values(), *ids.values()]
        for row in connection.execute(sa.select(database.points)):
            points[row.key] = str((names[row.series], ids[row.result], *row[3:]))
        rows += points.values()
        rows += [str((points[row.point], *row[1:])) for row in connection.execute(sa.select(database.samples))]
        for row in connection.execute(sa.select(database.comparisons)):
            rows.append(str((ids[row.result], names[row.series], *row[2:])))
    return sorted(rows)


def trend_of(base: Database, **wanted: str) -> trends.Trend:
    """The trend of the case that `store` has."""
    series = SeriesFilter(workload="alloc-burst", case="large", **wanted)
    with base.reading() as connection:
        one, also = trends.choose(trends.list_series(connection, series))
        return trends.trend(connection, one, also=also)


def test_indexing_trends_and_a_rebuild() -> None:
    folders = [store(n, level=100.0 if n < 15 else 110.0, night=n) for n in range(1, 31)]
    folders.append(store(31))
    with opened() as base:
        assert index.catch_up(base, QUIET) == 31
        assert index.catch_up(base, QUIET) == 0
        before = content(base)
        assert index.rebuild(base, QUIET) == 31
        assert content(base) == before
        nights = trend_of(base, tree="linux", branch="main")
        assert [dot.night for dot in nights.points] == list(range(1, 31))
        assert nights.points[20].value == pytest.approx(112.5)
        (step,) = nights.changes
        assert (step.at, step.after, step.commit) == (14, f"{14:040x}", f"{15:040x}")
        by_hand = trend_of(base, tree="default")
        assert [dot.commit for dot in by_hand.points] == [f"{30:040x}", f"{31:040x}"]
        # What was measured on, and is written again, takes the place of what was there.
        document = result_folders.load_result(folders[0])
        records.save(folders[0] / "result.json", fakeresult.result(*document.cases, name=document.result, seconds=1234))
        assert index.catch_up(base, QUIET) == 1
        # A result that is gone goes with the next rebuild, and its series if it had one of its own.
        (folders[30] / "result.json").unlink()
        assert index.rebuild(base, QUIET) == 30
        with base.reading() as connection:
            assert not [one for one in trends.list_series(connection, SeriesFilter()) if one.tree == "default"]
        assert count_of(base, database.samples) > 0


def count_of(base: Database, table: sa.Table) -> int:
    with base.reading() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def test_points_are_means_over_the_seeds_that_all_have_and_baselines_are_none() -> None:
    store(1, night=1)
    store(2, night=2, count=3)
    store(3, night=3, count=8)
    store(4, night=3, trend=False)
    with opened() as base:
        index.catch_up(base, QUIET)
        found = trend_of(base, branch="main")
        assert count_of(base, database.comparisons) > 20
    assert [(dot.night, dot.commit) for dot in found.points] == [(number, f"{number:040x}") for number in (1, 2, 3)]
    assert found.seeds == 3
    assert [dot.value for dot in found.points] == [101.0] * 3
    assert [dot.seeds for dot in found.points] == [6, 3, 8]


def test_a_matrix_is_in_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    pretend(monkeypatch, tmp_path, FakeGuests())
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(kernel_image.empty())
    kernels = ("--kernel", f"file:{tmp_path}/one", "--kernel", f"file:{tmp_path}/two")
    lab("matrix", *kernels, "-w", write_workload(tmp_path / "mine"))
    with opened() as base, base.reading() as connection:
        found = trends.list_series(connection, SeriesFilter(workload="mine"))
        assert {one.case: one.points for one in found} == {"small": 2, "large": 2}
        assert connection.execute(sa.select(database.results.c.kind)).scalars().all() == ["matrix"]


# ---- which database


@pytest.mark.parametrize("asked", ["sqlite://", "sqlite:///", "postgresql://lab:secret@here/lab"])
def test_what_names_no_database(asked: str) -> None:
    with pytest.raises(UserError, match=r"^the history can only be in a SQLite file$"):
        database.choose(asked)


def test_where_the_name_of_the_database_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(database.choose(None)).endswith("kernel-ab-lab/history/history.sqlite")
    settings.file().parent.mkdir(parents=True)
    settings.file().write_text('database = "sqlite:////from/config"\n')
    assert database.choose(None) == Path("/from/config")
    monkeypatch.setenv("LAB_DATABASE", "/from/environment")
    assert database.choose(None) == Path("/from/environment")
    assert database.choose("typed") == Path.cwd() / "typed"
    monkeypatch.delenv("LAB_DATABASE")
    settings.file().write_text('\ndatabas = "x"\n')
    with pytest.raises(UserError, match=r"lab\.toml:2: unknown key 'databas'"):
        database.choose(None)


# ---- faults


@pytest.mark.parametrize("name", ["broken", "broken/history.sqlite"])
def test_a_database_that_does_not_work_is_a_line(name: str, tmp_path: Path, lab: Lab) -> None:
    (tmp_path / "broken").write_text("this is no database, but long enough to be looked at as if it were one" * 20)
    (line,) = lab("history", "show", "--database", str(tmp_path / name), status=4).err.splitlines()
    assert "the history's database" in line and "lab history rebuild" in line


def test_a_locked_database_costs_a_warning_and_the_result_is_found_later(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lab: Lab
) -> None:
    monkeypatch.setattr(database, "_TIMEOUT_S", 0.2)
    folder = store(1)
    with opened():
        pass
    holder = sqlite3.connect(database.choose(None), isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    history.remember(folder, Progress())
    assert "another program holds it locked" in capsys.readouterr().err
    assert result_folders.load_result(folder).result == folder.name
    holder.execute("ROLLBACK")
    holder.close()
    document = lab("history", "show", "--json", "-w", "alloc-burst:large").document
    assert [one["case"] for one in document["series"]] == ["large"]


def test_results_that_cannot_be_read_are_named_and_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    folder = store(1)
    broken = store(2)
    (broken / "result.json").write_text("{")
    with opened() as base:
        assert index.rebuild(base, Progress()) == 1
    assert f"{broken.name} is not in the history" in capsys.readouterr().err
    assert folder.is_dir()


def test_a_trend_reads_its_own_series_alone(tmp_path: Path) -> None:
    path = f"{tmp_path}/many.sqlite"
    manysamples.fill(path, samples=10_000)
    found = manysamples.trend(path)
    assert len(found.points) == manysamples.NIGHTS
    (step,) = found.changes
    assert (step.at, step.ratio) == (manysamples.NIGHTS * 2 // 3, pytest.approx(1.05, abs=0.001))
    with opened(path) as base, base.reading() as connection:
        statement = trends.dots_of(1).compile(base.engine, compile_kwargs={"literal_binds": True})
        plan = " ".join(str(row) for row in connection.execute(sa.text(f"EXPLAIN QUERY PLAN {statement}")))
    assert "USING INDEX points_in_order" in plan and "SCAN points" not in plan


# ---- the commands


def test_the_commands(lab: Lab) -> None:
    for number in range(1, 11):
        store(number, level=100.0 if number < 6 else 150.0, night=number)
    store(12)
    words = ("history", "trend", "-w", "alloc-burst:large", "--branch", "main")
    said = lab(*words).out
    assert "<- step of +48" in said and "1 step, 0 outliers" in said
    assert len(lab(*words, "--json").document["points"]) == 10
    assert lab("history", "rebuild").out.startswith("11 results")


@pytest.mark.parametrize(("words", "said"), [
    (["trend", "-w", "alloc-brust"], "did you mean alloc-burst"),
    (["trend", "--metric", "*"], "series match"),
    (["trend", "--conditions", "zz"], "no such series"),
])  # fmt: skip
def test_what_the_history_does_not_have(words: list[str], said: str, lab: Lab) -> None:
    store(1)
    assert said in lab("history", *words, status=2).err
