"""The verdicts of exact mode: every case by its pairs of seeds, all cases together, and the remarks beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace as replace_fields

from lab.compare import beliefs, runs, sampling, state
from lab.compare.plan import Plan
from lab.compare.results import CaseResult, FailedCase, SweepPoint
from lab.compare.sampling import BOTH, Pair, Series
from lab.core.errors import UserError, suggestion
from lab.core.progress import Progress
from lab.core.text import plural
from lab.guests import costs, initrd
from lab.guests import image as guest_image
from lab.guests.run import Arm
from lab.kernels import architecture, symbols
from lab.stats import multiple, verdict
from lab.stats.sequential import SequentialTest
from lab.stats.verdict import Comparison, Metric, Outcome
from lab.stats.whole import Whole
from lab.workloads import spec
from lab.workloads.spec import Case, Workload


def judge(
    series: Sequence[Series], plan: Plan, turned: Mapping[str, str] | None = None
) -> tuple[list[CaseResult], multiple.Overall]:
    """Compare every case of every series, and judge all of them together; a case that failed is left out.

    turned: by name, the cases whose verdict is `unknown`, and why.
    """
    cases = [_result(one, case, plan, turned or {}) for one in series for case in one.cases]
    marked = iter(multiple.mark_secondary([metric for case in cases for metric in case.metrics]))
    cases = [replace_fields(case, metrics=[next(marked) for _ in case.metrics]) for case in cases]
    judged = [multiple.case_verdict(case.name, case.metrics, control=case.control) for case in cases if not case.failed]
    overall = with_losses(multiple.overall(judged, plan.alpha), [case.failed for case in cases])
    test = SequentialTest(plan.alpha / max(1, len(judged)), exact=True)
    return [_beyond_chance(case, overall, test) for case in cases], overall


def _beyond_chance(case: CaseResult, overall: multiple.Overall, test: SequentialTest) -> CaseResult:
    """A case; `unknown` if its change is not beyond chance over all cases."""
    if not case.verdict.is_change:
        return case
    if case.name in overall.survived:
        return replace_fields(case, holm=True)
    why = f"{multiple.NOT_BEYOND_CHANCE} cases"
    metrics = [multiple.withdraw(c, why, test) if c.primary else c for c in case.metrics]
    return replace_fields(case, holm=False, verdict=Outcome.UNKNOWN, metrics=metrics)


def _result(one: Series, case: Case, plan: Plan, turned: Mapping[str, str]) -> CaseResult:
    """The result of a case by itself."""
    workload, failures = one.bench.workload, one.failures(case)
    compared, whole = _compare(one, case, plan, has_failed=bool(failures))
    name, notes = f"{workload.name}:{case.name}", []
    metrics = [metric.unknown(turned[name]) if metric.primary and name in turned else metric for metric in compared]
    if not failures:
        # Exact mode cannot see the subject of such a case.
        notes += [f"unseen: {', '.join(names)}"] if (names := workload.unseen_in(case)) else []
        notes += count_remarks(primary := verdict.primary_of(metrics), sampling.count_beside(primary, metrics))
        base, test = (one.runs_of(arm, case) for arm in ("base", "test"))
        notes += state.case_remarks(case.name, base, test, primary.reason)
    return case_result(
        plan,
        workload,
        case,
        verdict=multiple.case_verdict(name, metrics).verdict,
        metrics=metrics,
        guest_clock=workload.primary.name if one.bench.modelled else None,
        failed=FailedCase.of(failures, one.bench.folder) if failures else None,
        whole=whole,
        notes=notes,
    )


def case_result(plan: Plan, workload: Workload, case: Case, **found: Any) -> CaseResult:
    """The result of a case. found: its verdict, its metrics, and all else that its measurement gave."""
    return CaseResult(
        workload=workload.name,
        case=case.name,
        group=plan.group_of(workload, case),
        control=case.control,
        sweep=SweepPoint.of(workload, case),
        **found,
    )


def with_losses(overall: multiple.Overall, failed: Sequence[FailedCase | None]) -> multiple.Overall:
    """The verdict, with the numbers of the cases that it is not about. failed: of each case, why."""
    for word in ("failed", "unsupported"):
        if lost := sum(why is not None and why.word == word for why in failed):
            overall = replace_fields(
                overall, reason=f"{overall.reason}; {lost} of {plural(len(failed), 'case')} {word}"
            )
    return overall


def _compare(one: Series, case: Case, plan: Plan, *, has_failed: bool) -> tuple[list[Comparison], Whole | None]:
    """All metrics of a case, the primary one as everything beside it allows, and the whole cost."""
    known = metrics_of(one.bench.workload, one.metrics(case), modelled=one.bench.modelled, by=plan.metric)
    if has_failed:
        return [verdict.compare_metric(metric, [], [], exact=True) for metric in known], None
    both = one.both(case)
    compared = [
        verdict.compare_metric(
            metric, *both.values(metric.name), threshold=plan.threshold, alpha=plan.alpha, exact=True
        )
        for metric in known
    ]
    primary, whole = sampling.weigh_fully(
        verdict.primary_of(compared), compared, one, case, plan, alike=plan.base.is_like(plan.test)
    )
    return [primary if c.primary else c for c in compared], whole


def metrics_of(
    workload: Workload, own: Sequence[spec.Metric], *, modelled: bool, by: str | None = None
) -> list[Metric]:
    """Metrics to compare: modelled ones first, with the deciding one, if a model runs; then own ones.

    by: the deciding count, cycles or instructions; the name of a metric leaves the workload's own choice.
    """
    basis: costs.Basis = "instructions" if by == "instructions" else "cycles"
    return [
        *(costs.metrics_of(workload.measures, workload.center, basis, contends=workload.contends) if modelled else ()),
        *(Metric(name=m.name, unit=m.unit, better=m.better, primary=m.primary and not modelled) for m in own),
    ]


def metric_of(workload: Workload, name: str | None, *, modelled: bool) -> Metric:
    """The metric that decides in a workload: the requested one, or the primary one."""
    known = metrics_of(workload, workload.metrics, modelled=modelled, by=name)
    if name is None or name in costs.BASES:
        if name == "cycles" and not modelled:
            raise UserError(
                f"--metric cycles: {workload.name} has no cost model, so nothing counts cycles",
                hint="leave it out, or give --model tlb",
            )
        return next(metric for metric in known if metric.primary)
    for metric in known:
        if metric.name == name:
            return Metric(name=name, unit=metric.unit, better=metric.better, primary=True)
    if workload.open_metrics:
        # Only its runs have its other metrics; they are not known.
        return Metric(name=name, unit="as printed", better="neither", primary=True)
    raise UserError(
        f"workload {workload.name} has no metric {name!r}" + ("" if modelled else " without a cost model"),
        hint=suggestion(name, [metric.name for metric in known])
        or f"there is {', '.join(metric.name for metric in known)}",
    )


# ---- remarks


def count_remarks(primary: Comparison, count: Comparison | None) -> list[str]:
    """A line if modelled cycles are the same and the instructions are not."""
    moved = count is not None and primary.verdict == Outcome.SAME and count.is_change
    return [verdict.count_remark(count)] if count and moved else []


def boot_remarks(series: Sequence[Series], arms: Sequence[Arm]) -> list[str]:
    """The differences between the guests of both arms, by the first seed of each workload; each line once."""
    asked = [name for arm in arms for name in arm.settings]
    lines: list[str] = []
    for one in series:
        for case in one.cases:
            base, test = (one.runs_of(arm, case) for arm in ("base", "test"))
            if shared := base.keys() & test.keys():
                first = {"base": base[min(shared)], "test": test[min(shared)]}
                lines += state.boot_remarks(first["base"], first["test"], asked)
                if one.bench.instrument:
                    lines += beliefs.remarks(first, one.bench.instrument.machine)
    return list(dict.fromkeys(lines))


def with_code_remarks(cases: list[CaseResult], series: Sequence[Series], progress: Progress) -> list[CaseResult]:
    """The cases, with a line if the program's own code differs between the arms or the seeds."""
    modelled = [(one, case) for one in series if one.bench.modelled for case in one.cases]
    found = {(one.bench.workload.name, case.name): code_remarks(one, case, progress) for one, case in modelled}
    return [
        case if case.failed else replace_fields(case, notes=[*case.notes, *found.get((case.workload, case.case), [])])
        for case in cases
    ]


def code_remarks(one: Series, case: Case, progress: Progress, arms: Pair = BOTH) -> list[str]:
    """The lines about the program's own code in a case."""
    base, test = (
        {seed: value for seed, value in one.values(arm, case, "user_instructions").items() if math.isfinite(value)}
        for arm in arms
    )
    apart, ends = state.odd_code(base, test)
    if not apart and not ends:
        return []
    tables = _program_symbols(one.bench.workload, architecture.of_machine(one.bench.machine).name, progress)

    def code(arm: str, seed: int) -> state.Code:
        name = runs.run_name(one.bench.workload, arm, seed, [case])
        blocks = runs.user_code(one.bench.folder, name).get(case.name, [])
        return state.code_of(one.done[name], case.name, blocks, tables)

    lines = [state.arms_remark(code(arms[0], seed), code(arms[1], seed)) for seed in apart]
    return lines + ([state.seeds_remark(*(code(arms[0], seed) for seed in ends))] if ends else [])


_PROGRAMS = 0x555555554000
"""The address of position-independent programs under `norandmaps`."""


def _program_symbols(workload: Workload, guests: str, progress: Progress) -> list[symbols.SymbolTable]:
    """The functions of a workload's program at either address; none if it has no names."""
    own = initrd.own_files(workload, guests).get(workload.program)
    image = guest_image.obtain(progress, packages=workload.packages, guests=guests)
    program = own or image[1] / "root" / workload.program.lstrip("/")
    try:
        return [symbols.from_elf(program, bias=bias) for bias in (0, _PROGRAMS)]
    except UserError:
        return []
