"""Guests whose vCPUs contend: verdicts that rest on the price of a move, and each case over the numbers of vCPUs.

The price of a move decides who has a line when, so cycles at another price are not another sum of the same events:
guests run again, with one seed or three, at both ends of the price's range.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec.structs import replace as replace_fields

from lab.compare.plan import Plan
from lab.compare.results import CaseResult
from lab.compare.runs import Bench
from lab.compare.sampling import BOTH, Pair, Series, run_all
from lab.core.executor import Work
from lab.core.text import listed
from lab.guests.run import Arm
from lab.stats import verdict
from lab.stats.verdict import Comparison, Metric
from lab.workloads.spec import Case

_FIRST, _MORE = (1,), (2, 3)
"""The seeds at another price. If the first one has another sign, the middle one of three decides."""

SPEEDUP = Metric(name="speedup", unit="times one vCPU", better="higher")


class Change(NamedTuple):
    """A case that changed from one arm to another. key: its name in what `resting_on_price` finds."""

    key: str
    series: Series
    case: Case
    primary: Comparison
    arms: Pair = BOTH

    def at(self, other: Series) -> float | None:
        """The change at another price."""
        return other.change(self.case, self.primary.name, self.arms)

    def is_turned(self, others: Iterable[Series], threshold: float) -> bool:
        """True if it has the other sign at one of the prices."""
        ratios = [self.at(other) for other in others]
        return any(ratio and is_turned(self.primary.ratio or 1, ratio, threshold) for ratio in ratios)


def resting_on_price(changes: Iterable[Change], arms: Sequence[Arm], threshold: float, work: Work) -> dict[str, str]:
    """By its key, the reason of each change that has the other sign at an end of the range of a move's price.

    arms: of all changes. Those of vCPUs that do not contend pay no such price.
    """
    found, by_series = {}, defaultdict(list)
    for change in changes:
        if change.series.bench.workload.contends and change.primary.ratio:
            by_series[change.series.bench.workload.name].append(change)
    for changed in by_series.values():
        one = changed[0].series
        if (prices := _range(one.bench)) is None:
            continue
        others = {price: Series(bench=at_price(one.bench, price), cases=one.cases) for price in prices}
        for seeds in (_FIRST, _MORE):
            asked = {name for change in changed for name in change.arms}
            cases = [case for case in one.cases if any(change.case is case for change in changed)]
            for other in others.values():
                _run(other, cases, seeds, [arm for arm in arms if arm.name in asked], work)
            changed = [change for change in changed if change.is_turned(others.values(), threshold)]
            if not changed:
                break
        for change in changed:
            ratios = {price: change.at(other) for price, other in others.items()}
            if any(ratios.values()):
                said = [f"{verdict.percent(ratio)} at {price:g} cycles" for price, ratio in ratios.items() if ratio]
                found[change.key] = f"rests on the price of a move: {listed(said, 'and')}"
    return found


def is_turned(ratio: float, other: float, threshold: float) -> bool:
    """True if one change is up and the other down, and the other one by more than the threshold."""
    low, high = verdict.band(threshold)
    return math.log(other) < low if ratio > 1 else math.log(other) > high


def _range(bench: Bench) -> tuple[float, float] | None:
    coherence = bench.instrument.machine.coherence if bench.instrument else None
    if coherence is None or coherence.move.range[0] == coherence.move.range[1]:
        return None
    return coherence.move.range


def at_price(bench: Bench, price: float) -> Bench:
    """The same guests at another price of a move."""
    instrument = bench.instrument
    if instrument is None or instrument.machine.coherence is None:
        raise ValueError("guests without a model have no price")
    move = replace_fields(instrument.machine.coherence.move, cycles=price)
    machine = replace_fields(instrument.machine, coherence=replace_fields(instrument.machine.coherence, move=move))
    made = replace(bench, instrument=replace(instrument, machine=machine), folder=bench.folder / "moves" / f"{price:g}")
    return made.with_fingerprint()


def _run(other: Series, cases: Sequence[Case], seeds: Sequence[int], arms: Sequence[Arm], work: Work) -> None:
    (other.bench.folder / "runs").mkdir(parents=True, exist_ok=True)
    guests = [(other, other.guest(arm, seed, cases, windows={})) for seed in seeds for arm in arms]
    with work.progress.task("at another price of a move", None) as task:
        run_all(guests, work, task, loss="case")


# ---- one case over the numbers of vCPUs


def with_curves(cases: Sequence[CaseResult], series: Sequence[Series], plan: Plan) -> list[CaseResult]:
    """The cases, those of several numbers of vCPUs with a line that has all of them, and their speed-up against one."""
    vcpus = {one.bench.workload.name: one.bench.workload.vcpus for one in series if one.bench.workload.contends}
    modelled = {one.bench.workload.name for one in series if one.bench.modelled}
    curves: dict[str, dict[int, CaseResult]] = defaultdict(dict)
    for case in cases:
        if case.workload in vcpus and not case.failed:
            curves[_plain(case)][vcpus[case.workload]] = case
    return [
        _on_curve(case, vcpus[case.workload], curve, plan, speeds_up=case.workload in modelled)
        if case.workload in vcpus and len(curve := curves[_plain(case)]) > 1 and not case.failed
        else case
        for case in cases
    ]


def _plain(case: CaseResult) -> str:
    return f"{case.workload.rpartition('@')[0]}:{case.case}"


def _on_curve(
    case: CaseResult, vcpus: int, curve: Mapping[int, CaseResult], plan: Plan, *, speeds_up: bool
) -> CaseResult:
    numbers = sorted(curve)
    said = [_word(curve[number]) for number in numbers]
    metrics = list(case.metrics)
    if speeds_up and 1 in curve and vcpus > 1:
        metrics.append(_speedup(curve[1].primary, case.primary, vcpus, plan))
    note = f"on {listed([str(number) for number in numbers], 'and')} vCPUs: {', '.join(said)}"
    return replace_fields(case, metrics=metrics, notes=[note, *case.notes])


def _word(case: CaseResult) -> str:
    ratio = case.primary.ratio
    return str(case.verdict) if ratio is None or not case.verdict.is_change else verdict.percent(ratio)


def _speedup(alone: Comparison, together: Comparison, vcpus: int, plan: Plan) -> Comparison:
    """The operations in a time, as a multiple of those of one vCPU, in both arms."""
    base, test = (
        [
            vcpus * one / many if one and many else math.nan
            for one, many in zip(getattr(alone, arm), getattr(together, arm), strict=False)
        ]
        for arm in ("base", "test")
    )
    return verdict.compare_metric(SPEEDUP, base, test, threshold=plan.threshold, alpha=plan.alpha, exact=True)
