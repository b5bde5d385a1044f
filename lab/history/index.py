"""The index of stored results: reads each into an entry, and writes entries to the database.

An entry follows from the stored result alone, so `rebuild` always gives the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from lab.bisection import answer
from lab.bisection.answer import Answer
from lab.compare import matrix_results, result_folders
from lab.compare.matrix_results import MatrixPlan, MatrixResult
from lab.compare.plan import Plan
from lab.compare.results import AbResult, ArmResult, ResultEnvironment
from lab.core import paths, records
from lab.core.errors import LabError, UserError
from lab.core.progress import Progress
from lab.core.records import Record
from lab.history.database import Database, comparisons, points, samples, series
from lab.history.database import results as result_rows
from lab.kernels import spec as kernel_spec
from lab.kernels.kernel import KernelSpec
from lab.stats.verdict import Better, Comparison, Outcome

LABEL = "night.json"
_IDENTITY = (
    series.c.workload, series.c.case_name, series.c.metric, series.c.tree, series.c.branch, series.c.conditions,
)  # fmt: skip
"""The columns that tell series apart."""


class Label(Record, frozen=True, kw_only=True):
    """The purpose of a result of `lab nightly`, stored beside it.

    baseline: the kind of the base arm (`yesterday`, `release`, ...). trend: True if the test arm is the night's point;
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
    """The name of a series: numbers under one name may be compared over time. See `lab.history.database`."""

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

    @property
    def identity(self) -> tuple[str, ...]:
        """The values of the columns that tell series apart."""
        return tuple(getattr(self, column.name) for column in _IDENTITY)


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
class Judgement:
    """A result's verdict on one metric of a case. counts: the change is beyond chance."""

    series: SeriesName
    arm: str
    ratio: float | None
    interval: tuple[float, float] | None
    verdict: Outcome | None
    counts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One result. stamp: changes when the stored document does."""

    id: str
    kind: str
    started: str
    mode: str
    base: str
    test: str
    verdict: str
    reason: str
    fingerprint: str
    plan: str = ""
    night: int = 0
    stamp: str
    points: list[Point] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)


def stamp(document: Path) -> str:
    """A text that changes whenever a stored document is written again."""
    status = document.stat()
    return f"{status.st_mtime_ns}:{status.st_size}"


def catch_up(base: Database, progress: Progress) -> int:
    """Index the finished results that are missing or were written again; returns their number."""
    with base.reading() as connection:
        stamps = {row.id: row.stamp for row in connection.execute(sa.select(result_rows.c.id, result_rows.c.stamp))}
    missing = [path.parent for path in _documents() if stamps.get(path.parent.name) != stamp(path)]
    return index(base, missing, progress)


def rebuild(base: Database, progress: Progress) -> int:
    """Index all results again, in one transaction; returns their number."""
    with progress.task("reading results", None) as task:
        entries = list(_read_all([path.parent for path in _documents()], progress, task.advance))
    with base.writing() as connection:
        connection.execute(sa.delete(result_rows))
        writer = _Writer(connection)
        for entry in entries:
            writer.add(entry)
        writer.drop_empty_series()
    return len(entries)


def index(base: Database, folders: Iterable[Path], progress: Progress) -> int:
    """Index some results, replacing their rows; names the results that cannot be read."""
    entries = list(_read_all(folders, progress))
    if entries:
        with base.writing() as connection:
            writer = _Writer(connection)
            for entry in entries:
                writer.add(entry)
    return len(entries)


def _documents() -> list[Path]:
    """The documents of all finished results, oldest first."""
    return paths.entries(result_folders.results_dir(), "*/result.json")


# ---- reading


def _read_all(
    folders: Iterable[Path], progress: Progress, advance: Callable[[], None] = lambda: None
) -> Iterator[Entry]:
    for folder in folders:
        try:
            entry = read(folder)
        except LabError as error:
            progress.log(f"{folder.name} is not in the history: {error.message}")
            continue
        finally:
            advance()
        if entry is not None:
            yield entry


def read(folder: Path) -> Entry | None:
    """Read a result; None if it is not finished. Raises `LabError` if it cannot be read."""
    if not result_folders.is_finished(folder):
        return None
    match result_folders.kind(folder):
        case "ab":
            return _read_comparison(folder, result_folders.load_result(folder), result_folders.load_plan(folder))
        case matrix_results.KIND:
            return _read_matrix(folder, matrix_results.load_result(folder), matrix_results.load_plan(folder))
        case "bisect":
            return _read_bisection(folder, answer.load(folder))
        case other:
            raise UserError(f"{folder.name} is a result of `lab {other}`, which the history does not know")


def _read_comparison(folder: Path, result: AbResult, plan: Plan) -> Entry:
    label = records.load(folder / LABEL, Label) if (folder / LABEL).exists() else None
    points: list[Point] = []
    judgements: list[Judgement] = []
    for name, arm, planned in (("base", result.base, plan.base), ("test", result.test, plan.test)):
        if label is not None and name == "base":
            continue  # a baseline was the tip of an earlier night, which has the point
        context = _ArmContext(arm, planned.spec, result.environment, result.mode, result.started, label)
        for case in result.cases:
            for metric in () if case.failed else case.metrics:
                # A choice for one comparison changes no trend; that of a night's plan holds for all nights.
                primary = metric.primary and (label is not None or result.metric is None)
                series = context.series(
                    case.workload, case.case, metric.name, metric.unit, metric.better, primary=primary
                )
                if label is None or label.trend:
                    points.append(context.point(series, name, metric.base if name == "base" else metric.test))
                if name == "test":
                    judgements.append(_judgement(series, name, metric, case.holm))
    return Entry(
        id=folder.name, kind="ab", started=result.started, mode=result.mode, base=result.base.spec,
        test=result.test.spec, verdict=result.verdict, reason=result.reason, stamp=stamp(folder / "result.json"),
        fingerprint=result.environment.fingerprint, plan=label.plan if label else "", night=label.night if label else 0,
        points=points, judgements=judgements,
    )  # fmt: skip


def _read_matrix(folder: Path, result: MatrixResult, plan: MatrixPlan) -> Entry:
    specs = {arm.label: arm.spec for arm in plan.arms}
    contexts = {
        arm.label: _ArmContext(arm.arm, specs[arm.label], result.environment, result.mode, result.started)
        for arm in result.arms
    }
    points: list[Point] = []
    judgements: list[Judgement] = []
    for cell in result.cells:
        context = contexts[cell.arm]
        series = context.series(
            cell.workload, cell.case, cell.metric, cell.unit, cell.better, primary=plan.metric is None
        )
        if cell.values:
            points.append(context.point(series, cell.arm, cell.values))
        if cell.comparison:
            judgements.append(_judgement(series, cell.arm, cell.comparison, cell.holm))
    return Entry(
        id=folder.name, kind=matrix_results.KIND, started=result.started, mode=result.mode, base=result.baseline,
        test=f"{len(result.arms)} arms", verdict="", reason=result.summary, stamp=stamp(folder / "result.json"),
        fingerprint=result.environment.fingerprint, points=points, judgements=judgements,
    )  # fmt: skip


def _read_bisection(folder: Path, result: Answer) -> Entry:
    culprits = ", ".join(change.commit for change in result.changes if change.is_single)
    return Entry(
        id=folder.name, kind="bisect", started=result.started, mode=result.mode, base=result.old.id,
        test=result.new.id, verdict=result.outcome, reason=culprits or result.reason,
        stamp=stamp(folder / "result.json"),
        fingerprint=result.environment.fingerprint if result.environment else "",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _ArmContext:
    """One arm of a result and the conditions that it was measured under."""

    arm: ArmResult
    spec: KernelSpec
    environment: ResultEnvironment
    mode: str
    started: str
    label: Label | None = None

    def series(self, workload: str, case: str, metric: str, unit: str, better: Better, *, primary: bool) -> SeriesName:
        guest = self.environment.guests.get(workload)
        fingerprint = guest.fingerprint if guest else self.environment.fingerprint
        setup = _setup(self.arm, self.spec)
        decisive = [self.mode, unit, setup, fingerprint, sorted(self.arm.settings.items())]
        return SeriesName(
            tree=self.label.tree if self.label else self.spec.source.origin,
            branch=self.label.branch if self.label else "",
            workload=workload, case_name=case, metric=metric, unit=unit, better=better, is_primary=primary,
            mode=self.mode, setup=setup, fingerprint=fingerprint, conditions=records.digest(decisive)[:16],
        )  # fmt: skip

    def point(self, series: SeriesName, name: str, values: Sequence[float | None]) -> Point:
        return Point(
            series=series, arm=name, commit=self.spec.source.label or self.arm.build, release=self.arm.release,
            subject=self.arm.subject or "", night=self.label.night if self.label else 0, started=self.started,
            values=tuple(values),
        )  # fmt: skip


def _setup(arm: ArmResult, spec: KernelSpec) -> str:
    """The choices beside the commit: patches, kconfig, settings and compiler."""
    parsed = kernel_spec.parse(spec.text)
    parts = [f"+{name}" for name in parsed.patches]
    parts += [f"%{name}={value}" for name, value in sorted(parsed.kconfig)]
    parts += [f"@{name}={value}" for name, value in sorted(parsed.settings)]
    if (source := spec.tree_source) and source.build_commit != source.commit and not parsed.patches:
        parts.append(f"+uncommitted {source.tree_id[:12]}")
    return " ".join([*parts, arm.compiler or ""]).strip()


def _judgement(series: SeriesName, arm: str, metric: Comparison, holm: bool | None) -> Judgement:
    beyond_chance = holm is not False if metric.primary else metric.survived is not False
    return Judgement(
        series=series, arm=arm, ratio=metric.ratio, interval=metric.interval, verdict=metric.verdict,
        counts=metric.is_change and beyond_chance,
    )  # fmt: skip


# ---- writing


class _Writer:
    """Writes entries, and keeps the keys of the series that it has met."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._series: dict[tuple[str, ...], int] = {}

    def add(self, entry: Entry) -> None:
        """Write an entry in place of the rows that the database has of that result."""
        self._connection.execute(sa.delete(result_rows).where(result_rows.c.id == entry.id))
        row = {name: getattr(entry, name) for name in {column.name for column in result_rows.c} - {"key"}}
        added = self._connection.execute(sa.insert(result_rows).values(row))
        assert added.inserted_primary_key is not None  # noqa: S101
        key = added.inserted_primary_key[0]
        self._require_series([point.series for point in entry.points] + [one.series for one in entry.judgements])
        self._add_points(key, entry.points)
        if entry.judgements:
            self._connection.execute(
                sa.insert(comparisons),
                [
                    {
                        "result": key, "series": self._key(one.series), "arm": one.arm, "ratio": one.ratio,
                        "low": one.interval[0] if one.interval else None,
                        "high": one.interval[1] if one.interval else None,
                        "verdict": one.verdict, "counts": one.counts,
                    }
                    for one in entry.judgements
                ],
            )  # fmt: skip

    def _add_points(self, result: int, added: list[Point]) -> None:
        if not added:
            return
        rows = [
            {
                "series": self._key(point.series), "result": result, "arm": point.arm, "commit": point.commit,
                "release": point.release, "subject": point.subject, "night": point.night, "started": point.started,
                "seeds": len(point.values), **_summary(point.values),
            }
            for point in added
        ]  # fmt: skip
        statement = sa.insert(points).returning(points.c.key, sort_by_parameter_order=True)
        keys = self._connection.execute(statement, rows).scalars().all()
        values = [
            {"point": key, "number": number, "value": value}
            for key, point in zip(keys, added, strict=True)
            for number, value in enumerate(point.values)
        ]
        if values:
            self._connection.execute(sa.insert(samples), values)

    def _require_series(self, names: Iterable[SeriesName]) -> None:
        """Load the keys of series, and add the series that the database does not have."""
        if not (unknown := dict.fromkeys(name for name in names if name.identity not in self._series)):
            return
        conditions = sorted({name.conditions for name in unknown})
        self._load_series(conditions)
        if new := [asdict(name) for name in unknown if name.identity not in self._series]:
            self._connection.execute(sa.insert(series), new)
            self._load_series(conditions)

    def _load_series(self, conditions: Sequence[str]) -> None:
        rows = sa.select(series.c.key, *_IDENTITY).where(series.c.conditions.in_(conditions))
        self._series |= {tuple(identity): key for key, *identity in self._connection.execute(rows)}

    def _key(self, name: SeriesName) -> int:
        return self._series[name.identity]

    def drop_empty_series(self) -> None:
        """Delete the series that no row refers to."""
        used = sa.union(sa.select(points.c.series), sa.select(comparisons.c.series))
        self._connection.execute(sa.delete(series).where(series.c.key.not_in(used)))


def _summary(values: Sequence[float | None]) -> Mapping[str, float | None]:
    numbers = [value for value in values if value is not None]
    return {
        "first3": _mean_of_first(values, min(3, len(values))), "first6": _mean_of_first(values, 6),
        "low": min(numbers, default=None), "high": max(numbers, default=None),
    }  # fmt: skip


def _mean_of_first(values: Sequence[float | None], count: int) -> float | None:
    """The mean of the first `count` values; None if there are fewer, or one is not a number."""
    numbers = [value for value in values[:count] if value is not None]
    return math.fsum(numbers) / count if len(numbers) == count else None
