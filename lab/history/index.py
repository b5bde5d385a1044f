"""What of a stored result goes into the history: pure, so that a rebuild gives what was there before.

Stored results into the database: each when it is finished, those that were missed later, or all of them anew.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from lab.bisection import answer
from lab.bisection.answer import Answer
from lab.compare import matrix_results, results
from lab.compare.matrix_results import Cell, MatrixPlan, MatrixResult
from lab.compare.results import AbResult, ArmResult, Plan, ResultEnvironment
from lab.core import records
from lab.core.errors import LabError, UserError
from lab.core.progress import Meter
from lab.core.records import Record
from lab.history.database import Database
from lab.history.schema import comparisons, points, samples, series
from lab.history.schema import results as indexed
from lab.kernels import spec as kernel_spec
from lab.kernels.debs import DebSource
from lab.kernels.resolve import KernelSpec, TreeSource
from lab.stats.verdict import Better, Comparison, Outcome

LABEL = "night.json"


class Label(Record, frozen=True, kw_only=True):
    """Beside a result of `lab nightly`: what it was measured for.

    baseline: what the base arm is (`yesterday`, `release`, ...). trend: whether the test arm is the night's point;
    a night compares a tip with several baselines, and counts once.
    """

    schema: int = 1
    plan: str
    night: int
    date: str
    tree: str
    branch: str
    baseline: str
    trend: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesName:
    """What a number is to be compared with over time: see `lab.history.schema`."""

    tree: str
    branch: str
    workload: str
    case_name: str
    metric: str
    unit: str
    better: Better
    is_primary: bool
    mode: str
    setup: str
    fingerprint: str
    conditions: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One arm's numbers of one metric, in the order of their seeds."""

    series: SeriesName
    arm: str
    commit: str
    release: str
    subject: str
    night: int
    started: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a result said of an arm at a case's metric. counts: that its verdict is not a matter of chance."""

    series: SeriesName
    arm: str
    ratio: float | None
    interval: tuple[float, float] | None
    verdict: Outcome | None
    counts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One result. stamp changes when the stored document does."""

    id: str
    kind: str
    started: str
    mode: str
    base: str
    test: str
    verdict: str
    reason: str
    fingerprint: str
    plan: str
    night: int
    stamp: str
    points: list[Point] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)


def stamp(folder: Path) -> str:
    """Changes whenever the finished document is written again."""
    found = (folder / "result.json").stat()
    return f"{found.st_mtime_ns}:{found.st_size}"


def read(folder: Path) -> Entry | None:
    """The entry of a finished result; None of what is not finished. `LabError` where it cannot be read."""
    if not (folder / "result.json").is_file():
        return None
    match results.kind(folder):
        case "ab":
            return _of_ab(folder, results.load_result(folder), results.load_plan(folder))
        case matrix_results.KIND:
            return _of_matrix(folder, matrix_results.load_result(folder), matrix_results.load_plan(folder))
        case "bisect":
            return _of_bisection(folder, answer.load(folder))
        case other:
            raise UserError(f"{folder.name} is a result of `lab {other}`, which the history does not know")


def label(folder: Path) -> Label | None:
    """What a result was measured for, if a night did."""
    return records.load(folder / LABEL, Label) if (folder / LABEL).is_file() else None


# ---- of a comparison


def _of_ab(folder: Path, result: AbResult, plan: Plan) -> Entry:
    found = label(folder)
    points: list[Point] = []
    judged: list[Judged] = []
    for name, arm, planned in (("base", result.base, plan.base), ("test", result.test, plan.test)):
        if found is not None and name == "base":
            continue  # a baseline was some night's tip, and is in the history as that
        around = _Around(arm, planned.spec, result.environment, result.mode, result.started, found)
        for case in result.cases:
            for metric in case.metrics:
                series = around.series(case.workload, case.case, metric)
                values = metric.base if name == "base" else metric.test
                if found is None or found.trend:
                    points.append(around.point(series, name, values))
                if name == "test":
                    judged.append(_judged(series, name, metric, case.holm))
    return Entry(
        id=folder.name, kind="ab", started=result.started, mode=result.mode, base=result.base.spec,
        test=result.test.spec, verdict=result.verdict, reason=result.reason, stamp=stamp(folder),
        fingerprint=result.environment.fingerprint, plan=found.plan if found else "", night=found.night if found else 0,
        points=points, judged=judged,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Around:
    """Everything around one arm's numbers."""

    arm: ArmResult
    spec: KernelSpec
    environment: ResultEnvironment
    mode: str
    started: str
    label: Label | None = None

    def series(self, workload: str, case: str, metric: Comparison | _Shown) -> SeriesName:
        """What numbers of a metric belong to."""
        guest = self.environment.guests.get(workload)
        fingerprint = guest.fingerprint if guest else self.environment.fingerprint
        setup = _setup(self.arm, self.spec)
        decisive = [self.mode, metric.unit, setup, fingerprint, sorted(self.arm.settings.items())]
        return SeriesName(
            tree=self.label.tree if self.label else _tree(self.spec),
            branch=self.label.branch if self.label else "",
            workload=workload, case_name=case, metric=metric.name, unit=metric.unit, better=metric.better,
            is_primary=metric.primary, mode=self.mode, setup=setup, fingerprint=fingerprint,
            conditions=records.digest(decisive)[:16],
        )  # fmt: skip

    def point(self, series: SeriesName, name: str, values: Sequence[float | None]) -> Point:
        """An arm's numbers."""
        return Point(
            series=series, arm=name, commit=_commit(self.arm, self.spec), release=self.arm.release,
            subject=self.arm.subject or "", night=self.label.night if self.label else 0, started=self.started,
            values=tuple(values),
        )  # fmt: skip


def _tree(spec: KernelSpec) -> str:
    match spec.source:
        case TreeSource() as source:
            return source.tree
        case DebSource():
            return "packages"
        case _:
            return "files"


def _commit(arm: ArmResult, spec: KernelSpec) -> str:
    """What tells kernels of a series apart: the commit, or what there is instead."""
    match spec.source:
        case TreeSource() as source:
            return source.commit
        case DebSource() as source:
            return f"{source.package}={source.version}"
        case _:
            return arm.build


def _setup(arm: ArmResult, spec: KernelSpec) -> str:
    """What was chosen beside the commit: patches, kconfig, settings, and the compiler."""
    parsed = kernel_spec.parse(spec.text)
    words = [f"+{name}" for name in parsed.patches]
    words += [f"%{name}={value}" for name, value in sorted(parsed.kconfig)]
    words += [f"@{name}={value}" for name, value in sorted(parsed.settings)]
    if isinstance(spec.source, TreeSource) and spec.source.build_commit != spec.source.commit and not parsed.patches:
        words.append(f"+uncommitted {spec.source.tree_id[:12]}")
    return " ".join([*words, arm.compiler or ""]).strip()


def _judged(series: SeriesName, arm: str, metric: Comparison, holm: bool | None) -> Judged:
    changed = metric.verdict in (Outcome.REGRESSION, Outcome.IMPROVEMENT)
    beyond_chance = holm is not False if metric.primary else metric.survived is not False
    return Judged(
        series=series, arm=arm, ratio=metric.ratio, interval=metric.interval, verdict=metric.verdict,
        counts=changed and beyond_chance,
    )  # fmt: skip


# ---- of a matrix, and of a bisection


@dataclass(frozen=True, slots=True)
class _Shown:
    """The metric of a cell, named as a comparison names its own."""

    name: str
    unit: str
    better: Better
    primary: bool


def _of_matrix(folder: Path, result: MatrixResult, plan: MatrixPlan) -> Entry:
    planned = {arm.label: arm.spec for arm in plan.arms}
    around = {
        arm.label: _Around(arm.arm, planned[arm.label], result.environment, result.mode, result.started)
        for arm in result.arms
    }
    cells = [(cell, around[cell.arm].series(cell.workload, cell.case, _metric_of(cell, plan))) for cell in result.cells]
    return Entry(
        id=folder.name, kind=matrix_results.KIND, started=result.started, mode=result.mode, base=result.baseline,
        test=f"{len(result.arms)} arms", verdict="", reason=result.summary, stamp=stamp(folder),
        fingerprint=result.environment.fingerprint, plan="", night=0,
        points=[around[cell.arm].point(series, cell.arm, cell.values) for cell, series in cells if cell.values],
        judged=[
            _judged(series, cell.arm, cell.comparison, cell.holm) for cell, series in cells if cell.comparison
        ],
    )  # fmt: skip


def _metric_of(cell: Cell, plan: MatrixPlan) -> _Shown:
    return _Shown(cell.metric, cell.unit, cell.better, plan.metric is None)


def _of_bisection(folder: Path, answer: Answer) -> Entry:
    culprits = ", ".join(one.commit for one in answer.changes if one.settled)
    return Entry(
        id=folder.name, kind="bisect", started=answer.started, mode=answer.mode, base=answer.old.id,
        test=answer.new.id, verdict=answer.outcome, reason=culprits or answer.reason, stamp=stamp(folder),
        fingerprint=answer.environment.fingerprint if answer.environment else "", plan="", night=0,
    )  # fmt: skip


# ---- numbers


def first(values: Sequence[float | None], count: int) -> float | None:
    """The mean of the first so many, None where there are not that many, or one is no number."""
    chosen = [value for value in values[:count] if value is not None]
    return math.fsum(chosen) / count if len(chosen) == count else None


def unreadable(folder: Path, error: LabError) -> str:
    """What to say of a result that cannot be indexed."""
    return f"{folder.name} is not in the history: {error.message}"


_NAME = (series.c.workload, series.c.case_name, series.c.metric, series.c.tree, series.c.branch, series.c.conditions)


def origin() -> str:
    """This machine: its results are here, so only it may say that one of them is gone."""
    return platform.node() or "localhost"


def catch_up(base: Database, meter: Meter) -> int:
    """Index what is finished and not there, or was written again; how many results that were."""
    with base.reading() as connection:
        mine = sa.select(indexed.c.id, indexed.c.stamp).where(indexed.c.origin == origin())
        known = {row.id: row.stamp for row in connection.execute(mine)}
    missing = [folder for folder in stored() if known.get(folder.name) != stamp(folder)]
    return index(base, missing, meter)


def rebuild(base: Database, meter: Meter) -> int:
    """Index all results of this machine anew, in one transaction; how many there are."""
    with meter.task("reading results", None) as task:
        found = list(_read(stored(), meter, task.advance))
    with base.writing() as connection:
        connection.execute(sa.delete(indexed).where(indexed.c.origin == origin()))
        writer = _Writer(connection)
        for entry in found:
            writer.add(entry)
        writer.drop_empty_series()
    return len(found)


def index(base: Database, folders: Iterable[Path], meter: Meter) -> int:
    """Index some results, each as if it had never been indexed; those that cannot be read are named."""
    found = list(_read(folders, meter))
    if not found:
        return 0
    with base.writing() as connection:
        writer = _Writer(connection)
        for entry in found:
            writer.add(entry)
    return len(found)


def stored() -> list[Path]:
    """The folders of all finished results, oldest first."""
    return sorted(path.parent for path in results.results_dir().glob("*/result.json"))


def _read(folders: Iterable[Path], meter: Meter, done: Any = lambda: None) -> Iterator[Entry]:
    for folder in folders:
        try:
            entry = read(folder)
        except LabError as error:
            meter.say(unreadable(folder, error))
            continue
        finally:
            done()
        if entry is not None:
            yield entry


class _Writer:
    """Writes entries; remembers the series that it has met."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._series: dict[tuple[str, ...], int] = {}

    def add(self, entry: Entry) -> None:
        """Put an entry in the place of whatever there was of that result."""
        mine = (indexed.c.origin == origin()) & (indexed.c.id == entry.id)
        self._connection.execute(sa.delete(indexed).where(mine))
        row = {name: value for name, value in _plain(entry).items() if name in indexed.c}
        added = self._connection.execute(sa.insert(indexed).values(origin=origin(), **row))
        assert added.inserted_primary_key is not None  # noqa: S101
        key = added.inserted_primary_key[0]
        self._meet([one.series for one in entry.points] + [one.series for one in entry.judged])
        self._points(key, entry.points)
        if entry.judged:
            self._connection.execute(
                sa.insert(comparisons),
                [
                    {
                        "result": key, "series": self._key(one.series), "arm": one.arm, "ratio": one.ratio,
                        "low": one.interval[0] if one.interval else None,
                        "high": one.interval[1] if one.interval else None,
                        "verdict": one.verdict, "counts": one.counts,
                    }
                    for one in entry.judged
                ],
            )  # fmt: skip

    def _points(self, result: int, found: list[Point]) -> None:
        if not found:
            return
        rows = [
            {
                "series": self._key(one.series), "result": result, "arm": one.arm, "commit": one.commit,
                "release": one.release, "subject": one.subject, "night": one.night, "started": one.started,
                "seeds": len(one.values), "first3": first(one.values, min(3, len(one.values))),
                "first6": first(one.values, 6), **_bounds(one),
            }
            for one in found
        ]  # fmt: skip
        statement = sa.insert(points).returning(points.c.key, sort_by_parameter_order=True)
        keys = self._connection.execute(statement, rows).scalars().all()
        values = [
            {"point": key, "number": number, "value": value}
            for key, one in zip(keys, found, strict=True)
            for number, value in enumerate(one.values)
        ]
        if values:
            self._connection.execute(sa.insert(samples), values)

    def _meet(self, names: Iterable[SeriesName]) -> None:
        """See to it that the keys of series are known; those that are new are added."""
        if not (unknown := dict.fromkeys(name for name in names if _identity(name) not in self._series)):
            return
        self._load({name.conditions for name in unknown})
        if new := [asdict(name) for name in unknown if _identity(name) not in self._series]:
            self._connection.execute(sa.insert(series), new)
            self._load({name.conditions for name in unknown})

    def _load(self, conditions: Iterable[str]) -> None:
        wanted = sa.select(series.c.key, *_NAME).where(series.c.conditions.in_(sorted(conditions)))
        self._series |= {tuple(name): key for key, *name in self._connection.execute(wanted)}

    def _key(self, name: SeriesName) -> int:
        return self._series[_identity(name)]

    def drop_empty_series(self) -> None:
        """Series that nothing refers to any more."""
        used = sa.union(sa.select(points.c.series), sa.select(comparisons.c.series))
        self._connection.execute(sa.delete(series).where(series.c.key.not_in(used)))


def _identity(name: SeriesName) -> tuple[str, ...]:
    return tuple(getattr(name, column.name) for column in _NAME)


def _plain(entry: Entry) -> Mapping[str, Any]:
    return {name: getattr(entry, name) for name in entry.__slots__ if name not in ("points", "judged")}


def _bounds(one: Point) -> Mapping[str, float | None]:
    known = [value for value in one.values if value is not None]
    return {"low": min(known, default=None), "high": max(known, default=None)}
