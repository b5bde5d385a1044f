"""The model checked by a PMU: instructions that perf counted in live mode's guests, beside exact mode's of the same.

perf counts whole programs, with their preparations, so a guest of exact mode is counted from the start of each case to
its end. Both counts are divided by the operations of the program's measured part, which exact mode counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from lab.compare import runs, sampling
from lab.compare.live_results import Counted, ModelCheck
from lab.compare.measurement import prepare
from lab.compare.plan import Plan
from lab.compare.results import CaseResult, mean
from lab.compare.runs import Run
from lab.compare.sampling import Series
from lab.core.errors import LabError
from lab.core.executor import Work
from lab.guests import hardware, perf_stat
from lab.guests.plugin import Brackets
from lab.workloads import selection

Sides = tuple[float, float]
"""Instructions in user and in kernel mode."""

Checks = dict[str, dict[str, ModelCheck]]
"""By case and arm."""


def check(plan: Plan, folder: Path, cases: Sequence[CaseResult], work: Work) -> Checks:
    """The checks of the cases that a PMU counted in both arms; no failure here costs a verdict."""
    counted = {case.name: found for case in cases if len(found := counted_by_perf(case)) == len(_ARMS)}
    if not counted:
        return {}
    work.progress.log("counting the same programs in exact mode")
    try:
        modelled = _modelled(plan, folder / "model-check", [case for case in cases if case.name in counted], work)
    except LabError as error:
        work.progress.log(f"the model is not checked: {error.message}")
        return {}
    return {
        name: {arm: _side_by_side(counted[name][arm], *found) for arm, found in arms.items()}
        for name, arms in modelled.items()
    }


_ARMS = ("base", "test")
_WHOLE = "whole"


def counted_by_perf(case: CaseResult) -> dict[str, Sides]:
    """The instructions of a case's program by arm, as the mean of its boots; only if perf counted both sides."""
    found = {metric.name: metric for metric in case.metrics}
    events = [found.get(perf_stat.metric_name(event)) for event in perf_stat.SIDES]
    if None in events:
        return {}
    arms = {arm: [mean(getattr(event, arm)) for event in events] for arm in _ARMS}
    return {arm: (user, kernel) for arm, (user, kernel) in arms.items() if user and kernel}


def _side_by_side(counted: Sides, modelled: Sides, operations: float) -> ModelCheck:
    user, kernel = (
        Counted(perf=perf / operations, model=model / operations, ratio=perf / model)
        for perf, model in zip(counted, modelled, strict=True)
    )
    return ModelCheck(operations=operations, user=user, kernel=kernel)


def _modelled(
    plan: Plan, folder: Path, cases: Sequence[CaseResult], work: Work
) -> dict[str, dict[str, tuple[Sides, float]]]:
    """Exact mode's instructions of one run of a program, and its operations, by case and arm."""
    asked = msgspec.structs.replace(
        plan, workloads=[selection.only(plan.workloads, case.workload, case.case) for case in cases], model="count",
        machine=hardware.DEFAULT,
    )  # fmt: skip
    for place in (folder, folder / _WHOLE):
        (place / "runs").mkdir(parents=True, exist_ok=True)
    ready = prepare(asked, folder, work)
    # With several vCPUs exact mode counts all tasks, and perf those of the program.
    pairs = [(one, _whole(one, folder / _WHOLE)) for one in ready.series if one.bench.workload.vcpus == 1]
    guests = [
        (one, one.guest(arm, runs.PROFILED_SEED, cases_of))
        for pair in pairs
        for one in pair
        for arm in ready.arms
        for cases_of in one.bench.workload.by_guest(one.cases)
    ]
    with work.progress.task("counting", None) as task:
        sampling.run_all(guests, work, task, loss="case")
    found: dict[str, dict[str, tuple[Sides, float]]] = {}
    for pair in pairs:
        for case in pair[0].cases:
            for arm in ready.arms:
                own, whole = (one.run(arm.name, runs.PROFILED_SEED, case) for one in pair)
                if own and whole and case.name in own.costs and case.name in whole.costs:
                    name = f"{pair[0].bench.workload.name}:{case.name}"
                    found.setdefault(name, {})[arm.name] = _of_one_run(own, whole, case.name)
    return found


def _whole(series: Series, folder: Path) -> Series:
    """The same guests, in which a case counts from its start to its end, without its program's windows."""
    bench, instrument = series.bench, series.bench.instrument
    assert instrument is not None  # noqa: S101  (the plan asks for a model)
    # No operation is marked then, so there is none in the middle.
    workload = msgspec.structs.replace(bench.workload, center="mean")
    counting = replace(instrument, brackets=Brackets.CASE)
    return Series(
        bench=replace(bench, folder=folder, workload=workload, instrument=counting),
        cases=series.cases,
        windows=series.windows,
    )


def _of_one_run(own: Run, whole: Run, case: str) -> tuple[Sides, float]:
    """Instructions and operations. Both guests run the case as often, in as many windows or more."""
    times = len(whole.report.outcomes(case))
    costs = whole.costs[case]
    counted = costs["counted_operations"] / times
    sides = costs["user_instructions"] * counted, costs["kernel_instructions"] * counted
    return sides, own.costs[case]["counted_operations"] / len(own.report.outcomes(case))
