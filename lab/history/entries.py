"""What of a stored result goes into the history: pure, so that a rebuild gives what was there before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.bisection import answer
from lab.bisection.answer import Answer
from lab.compare import matrix_results, results
from lab.compare.matrix_results import Cell, MatrixPlan, MatrixResult
from lab.compare.results import AbResult, ArmResult, Plan, ResultEnvironment
from lab.core import records
from lab.core.errors import LabError, UserError
from lab.core.records import Record
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
