"""`lab matrix`: kernels, settings and cases, every combination measured, each arm judged against one of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from lab.compare import comparison, contention, estimates, matrix_results, result_folders, sampling
from lab.compare import state as state_guard
from lab.compare.contention import Change
from lab.compare.judge import code_remarks, count_remarks, metric_of
from lab.compare.matrix_results import Cell, MatrixArm, MatrixArmPlan, MatrixPlan, MatrixResult, state
from lab.compare.measurement import ExactGuests, prepare
from lab.compare.plan import LivePlan, is_alike
from lab.compare.request import Request
from lab.compare.result_folders import Clock
from lab.compare.results import ArmResult
from lab.compare.sampling import SeedRequest, Series, fill
from lab.core import records
from lab.core.errors import GuestFailure, HostFailed
from lab.core.executor import Work
from lab.core.text import plural
from lab.guests import costs, exact
from lab.kernels import spec
from lab.kernels.kernel import KernelSpec, kconfig_of
from lab.stats import multiple, verdict
from lab.stats.multiple import CaseVerdict
from lab.stats.sequential import SequentialTest
from lab.stats.verdict import Comparison, Metric, Outcome
from lab.workloads import selection
from lab.workloads.spec import Case


class MatrixRequest(Request[MatrixPlan], frozen=True, kw_only=True):
    """The options of a matrix. kernel: `[NAME=]SPEC`. against: the arm that all others are judged against."""

    kernel: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    against: str | None = None

    @property
    def kernels(self) -> Sequence[str | KernelSpec]:
        """The kernels of the first axis; `UserError` for axes that make no matrix."""
        span = matrix_results.span(self.kernel, self.settings)
        matrix_results.choose(span.arms, self.against)
        return span.kernels

    def plan(self, specs: Sequence[KernelSpec], live: LivePlan | None) -> MatrixPlan:
        """The plan of every combination."""
        span = matrix_results.span(self.kernel, self.settings)
        names = matrix_results.file_names([arm.label for arm in span.arms])
        arms = [
            MatrixArmPlan(label=arm.label, name=name, at=arm.at, spec=_with_suffixes(specs[arm.kernel], arm.spec))
            for arm, name in zip(span.arms, names, strict=True)
        ]
        baseline = matrix_results.choose(span.arms, self.against).label
        return MatrixPlan.of(self, axes=span.axes, kernels=span.kernels, arms=arms, baseline=baseline, cc=self.cc)


def _with_suffixes(kernel: KernelSpec, text: str) -> KernelSpec:
    """A resolved kernel as another spec of it has it: settings and kconfig do not change its source."""
    parsed = spec.parse(text)
    return KernelSpec(
        text=text, source=kernel.source, kconfig=kconfig_of(parsed), settings=parsed.settings, note=kernel.note
    )  # fmt: skip


def measure(plan: MatrixPlan, folder: Path, work: Work) -> MatrixResult:
    """Carry out a plan in its result folder; guests that ended are not run again.

    A guest that fails takes its arm's cells of that workload with it; all others continue.
    """
    clock, name = Clock(), result_folders.reference(folder)
    guests = prepare(plan, folder, work)
    fill(guests.series, guests.arms, plan, lambda series: _undecided(series, guests, plan), work, loss="arm")
    if not any(series.done or series.died for series in guests.series):
        raise HostFailed(
            "the budget was used up before one guest had run",
            hint=f"give it more; go on by `lab matrix --resume {name}`",
        )
    cells = judge(guests.series, plan)
    if turned := contention.resting_on_price(_changes(cells, guests, plan), guests.arms, plan.threshold, work):
        cells = judge(guests.series, plan, turned)
    cells = [_with_code_remarks(cell, guests, plan, work) for cell in cells]
    return result_folders.finish(
        folder,
        plan,
        clock,
        MatrixResult,
        axes=plan.axes,
        kernels=plan.kernels,
        arms=[
            MatrixArm(label=planned.label, at=planned.at, arm=ArmResult.of(arm, guests.environment))
            for planned, arm in zip(plan.arms, guests.arms, strict=True)
        ],
        baseline=plan.baseline,
        environment=guests.environment,
        cells=cells,
        summary=summary(cells, plan),
        metric=plan.metric,
        reproduce=f"lab replay {name}",
    )


# ---- judging


def judge(series: Sequence[Series], plan: MatrixPlan, turned: Mapping[str, str] | None = None) -> list[Cell]:
    """Every cell; its change counts when it survives Holm over all cells.

    turned: by name, the cells whose verdict is `unknown`, and why.
    """
    cells = [_cell(one, case, arm, plan, turned or {}) for one in series for case in one.cases for arm in plan.arms]
    family = [_key(cell) for cell in cells if cell.comparison and cell.verdict]
    survived = multiple.overall(family, plan.alpha).survived
    test = SequentialTest(plan.alpha / max(1, len(family)), exact=True)
    return [
        _corrected(cell, _key(cell).name in survived, test) if cell.verdict and cell.verdict.is_change else cell
        for cell in cells
    ]


def _corrected(cell: Cell, survived: bool, test: SequentialTest) -> Cell:
    """A cell with a change, which is `unknown` unless it survived."""
    if survived or cell.comparison is None:
        return msgspec.structs.replace(cell, holm=survived)
    comparison = multiple.withdraw(cell.comparison, f"{multiple.NOT_BEYOND_CHANCE} cells", test)
    return msgspec.structs.replace(cell, holm=False, verdict=comparison.verdict, comparison=comparison)


def _key(cell: Cell) -> CaseVerdict:
    assert cell.comparison is not None and cell.verdict is not None  # noqa: S101
    name = _name(cell.workload, cell.case, cell.arm)
    return CaseVerdict(name=name, verdict=cell.verdict, p_value=cell.comparison.p_value)


def _name(workload: str, case: str, arm: str) -> str:
    return f"{workload}:{case} {arm}"


def _changes(cells: Sequence[Cell], guests: ExactGuests, plan: MatrixPlan) -> Iterator[Change]:
    """The cells that changed, with the runs of their cases."""
    series = {one.bench.workload.name: one for one in guests.series}
    names = {arm.label: arm.name for arm in plan.arms}
    for cell in cells:
        if cell.comparison is not None and cell.comparison.is_change:
            one, pair = series[cell.workload], (names[plan.baseline], names[cell.arm])
            case = next(case for case in one.cases if case.name == cell.case)
            yield Change(_name(cell.workload, cell.case, cell.arm), one, case, cell.comparison, pair)


def _cell(one: Series, case: Case, arm: MatrixArmPlan, plan: MatrixPlan, turned: Mapping[str, str]) -> Cell:
    """The cell of one arm and one case: its numbers, and its verdict against the baseline."""
    metric = metric_of(one.bench.workload, plan.metric, modelled=one.bench.modelled)
    values = one.values(arm.name, case, metric.name)
    shared = [values[seed] for seed in _shared_seeds(one, case, plan) if seed in values] or [*values.values()]
    failure = one.failure(arm.name, case)
    comparison = count = cost = None
    notes: list[str] = []
    if not failure and arm.label != plan.baseline:
        base = _baseline(plan)
        pair = (base.name, arm.name)
        beside = next((each for each in costs.METRICS if each.name == costs.count_of(metric.name)), None)
        count = _compare(one, case, beside, pair, plan) if beside else None
        if compared := _compare(one, case, metric, pair, plan):
            parts = [_compare(one, case, part, pair, plan) for part in costs.WHOLE_METRICS]
            comparison, cost = sampling.weigh_fully(
                compared, list(filter(None, [count, *parts])), one, case, plan, pair,
                alike=is_alike(base.spec, arm.spec),
            )  # fmt: skip
            if why := turned.get(_name(one.bench.workload.name, case.name, arm.label)):
                comparison = comparison.unknown(why)
            of_base, of_arm = (one.runs_of(name, case) for name in pair)
            remarks = state_guard.case_remarks(case.name, of_base, of_arm, comparison.reason)
            notes = [*count_remarks(comparison, count), *remarks]
    return Cell(
        arm=arm.label,
        workload=one.bench.workload.name,
        case=case.name,
        control=case.control,
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        seeds=list(values),
        values=[value if math.isfinite(value) else None for value in values.values()],
        mean=fmean(shared) if shared and all(map(math.isfinite, shared)) else None,
        comparison=comparison,
        verdict=comparison.verdict if comparison else None,
        failed=failure.message if failure else None,
        unsupported=failure is not None and failure.kind == GuestFailure.UNSUPPORTED,
        means=_means(one, case, arm),
        notes=notes,
        instructions=count,
        whole=cost,
    )


def _with_code_remarks(cell: Cell, guests: ExactGuests, plan: MatrixPlan, work: Work) -> Cell:
    """A cell, with a line if the program's own code differs from the baseline's or between seeds."""
    if not cell.comparison:
        return cell
    one = next(series for series in guests.series if series.bench.workload.name == cell.workload)
    names = {arm.label: arm.name for arm in plan.arms}
    pair = names[plan.baseline], names[cell.arm]
    lines = code_remarks(one, next(case for case in one.cases if case.name == cell.case), work.progress, pair)
    return msgspec.structs.replace(cell, notes=[*cell.notes, *lines])


def _shared_seeds(one: Series, case: Case, plan: MatrixPlan) -> list[int]:
    """The seeds that every arm has that ran the case at all and did not fail."""
    ran = [set(one.runs_of(arm.name, case)) for arm in plan.arms if not one.failure(arm.name, case)]
    return sorted(set.intersection(*filter(None, ran))) if any(ran) else []


def _compare(one: Series, case: Case, metric: Metric, pair: tuple[str, str], plan: MatrixPlan) -> Comparison | None:
    """A metric by the seeds that the baseline and an arm share; None if they share none."""
    if one.failure(pair[0], case):
        return None
    base, test = one.pairs(case, metric.name, pair)
    if not base:
        return None
    return verdict.compare_metric(metric, base, test, threshold=plan.threshold, alpha=plan.alpha, exact=True)


def _baseline(plan: MatrixPlan) -> MatrixArmPlan:
    return next(arm for arm in plan.arms if arm.label == plan.baseline)


def _means(one: Series, case: Case, arm: MatrixArmPlan) -> dict[str, float]:
    """Every metric of the case, averaged over the seeds that all have it."""
    ran = [run.metrics(case.name) for run in one.runs_of(arm.name, case).values()]
    names = set.intersection(*(set(values) for values in ran)) if ran else set()
    return {name: fmean(values[name] for values in ran) for name in sorted(names)}


def _undecided(one: Series, ready: ExactGuests, plan: MatrixPlan) -> SeedRequest:
    """The arms and cases of a series that more seeds could settle, with the baseline that they are paired with."""
    open_cells = [
        cell
        for cell in judge(ready.series, plan)
        if cell.workload == one.bench.workload.name and cell.verdict == Outcome.UNKNOWN
        if cell.comparison and sampling.can_be_settled(cell.comparison, plan.max_seeds)
    ]
    if not open_cells:
        return SeedRequest([], [])
    labels = {plan.baseline, *(cell.arm for cell in open_cells)}
    names = {arm.name for arm in plan.arms if arm.label in labels}
    cases = {cell.case for cell in open_cells}
    return SeedRequest(
        [arm for arm in ready.arms if arm.name in names], [case for case in one.cases if case.name in cases]
    )  # fmt: skip


def summary(cells: Sequence[Cell], plan: MatrixPlan) -> str:
    """The number of cells of each verdict, in one line."""
    words = Counter(state(cell, plan.baseline) for cell in cells)
    del words["baseline"]
    order = (*Outcome, "measured", "failed", "unsupported", "not measured")
    counted = [f"{words[word]} {word}" for word in map(str, order) if words[word]]
    return f"against {plan.baseline}: {', '.join(counted)}"


# ---- before it starts


def announce(plan: MatrixPlan, folder: Path, work: Work, *, budget_s: float | None) -> None:
    """Announce the guests and about how long they take."""
    if plan.too_few:
        work.progress.log(plan.too_few)
    selected = selection.select_all(plan.workloads)
    base, workloads = _baseline(plan), [workload for workload, _ in selected]
    machine = exact.exact_machine(base.spec.architecture)
    for arm in plan.arms:
        same = arm is not base and comparison.same_guest(base.spec, arm.spec, workloads, machine)
        if same:
            work.progress.log(f"{base.label}, {arm.label}: {same}")
    cells = sum(len(cases) for _, cases in selected) * len(plan.arms)
    said, seconds = sampling.announced(plan, plan.planned, folder, selected, work, three_decide=False)
    built = {records.digest([arm.spec.source, arm.spec.kconfig]) for arm in plan.arms}
    work.progress.log(
        f"{cells} cells: {plural(len(plan.arms), 'arm')} of {plural(len(built), 'kernel')}, "
        f"{plural(cells // len(plan.arms), 'case')}, {said}"
    )
    if budget_s is not None and seconds * estimates.crowding(work) / work.jobs > budget_s:
        work.progress.log(
            f"the budget of {budget_s:.0f} s may not be enough for all; the lab judges the runs that end by then"
        )
