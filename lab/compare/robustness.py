"""`lab ab --robust`: whether verdicts by modelled cycles hold at other costs and on other machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace as replace_fields

from lab.compare import sampling
from lab.compare.plan import Plan
from lab.compare.results import CaseResult, Robustness
from lab.compare.sampling import Series
from lab.core.executor import Work
from lab.guests import costs, hardware
from lab.guests.hardware import Machine
from lab.stats import verdict
from lab.stats.verdict import Comparison, Outcome
from lab.workloads.spec import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repricing:
    """A case whose verdict rests on modelled cycles, with their terms in each pair of runs."""

    machine: Machine
    series: Series
    case: Case
    found: CaseResult
    base: list[dict[str, float]]
    test: list[dict[str, float]]
    plan: Plan

    def at(self, prices: costs.Prices) -> Comparison:
        """The case's primary metric at other prices, judged like the measured one."""
        base, test = ([costs.cycles(events, prices) for events in arm] for arm in (self.base, self.test))
        again = verdict.compare_again(
            self.found.primary, base, test, threshold=self.plan.threshold, alpha=self.plan.alpha
        )
        alike = self.plan.base.is_like(self.plan.test)
        return sampling.weigh_case(again, self.found.metrics, self.series, self.case, self.plan, alike=alike)

    def is_turned(self, prices: costs.Prices) -> bool:
        """True if it has another verdict at these prices."""
        return self.at(prices).verdict != self.found.verdict

    def holds_at(self, ratio: float) -> bool:
        """True if the change of one pair is on the same side of the threshold as the verdict."""
        low, high = verdict.band(self.plan.threshold)
        change = math.log(ratio)
        if self.found.verdict == Outcome.SAME:
            return low <= change <= high
        return change > high if self.found.verdict == Outcome.REGRESSION else change < low


def judged(
    cases: list[CaseResult],
    series: Sequence[Series],
    plan: Plan,
    elsewhere: Callable[[str, Machine], Sequence[Series]],
    work: Work,
) -> list[CaseResult]:
    """The cases, each that was decided by modelled cycles with its verdict at other costs.

    elsewhere: measures all of them with one seed on the machine of a name.
    """
    by_name = {(one.bench.workload.name, case.name): (one, case) for one in series for case in one.cases}
    repricings = {
        found.name: repricing
        for found in cases
        if (repricing := _repricing(*by_name[found.workload, found.case], found, plan))
    }
    if not repricings:
        work.progress.log("--robust: no verdict rests on modelled cycles")
        return cases
    others = _on_other_machines(list(repricings.values()), plan, elsewhere, work)
    return [
        replace_fields(found, robustness=_robustness(repricings[found.name], others))
        if found.name in repricings
        else found
        for found in cases
    ]


def _repricing(one: Series, case: Case, found: CaseResult, plan: Plan) -> _Repricing | None:
    """The case at other prices; None if it is open, or if other prices cannot change its cycles."""
    instrument = one.bench.instrument
    if instrument is None or one.bench.workload.contends or found.failed or found.verdict == Outcome.UNKNOWN:
        return None
    if costs.count_of(found.primary.name) is None:
        return None
    if (events := one.events(case)) is None:
        return None
    base, test = events
    return _Repricing(machine=instrument.machine, series=one, case=case, found=found, plan=plan, base=base, test=test)


def _robustness(of: _Repricing, others: Mapping[str, Mapping[str, float | None]]) -> Robustness:
    """The verdict of a case at the corners of its machine's ranges, and on other machines."""
    prices, box = costs.prices_of(of.machine), costs.box_of(of.machine)
    ends = costs.corners(costs.mean_of(of.base), costs.mean_of(of.test), prices, box)
    ratios = [ratio for at in (prices, *ends) if (ratio := of.at(at).ratio) is not None]
    depends_on, together = _turning(of, prices, box, ends)
    name = of.machine.name
    changes = {other: found[of.found.name] for other, found in others.items() if of.found.name in found}
    return Robustness(
        low=min(ratios),
        high=max(ratios),
        depends_on=depends_on,
        together=together,
        machine=name,
        others=changes,
        holds_on=[name, *(other for other, ratio in changes.items() if ratio and of.holds_at(ratio))],
    )


def _turning(
    of: _Repricing, prices: costs.Prices, box: costs.Box, ends: Sequence[costs.Prices]
) -> tuple[list[str], bool]:
    """The costs that turn a verdict, the strongest first, and True if each alone does not."""
    turned = next((end for end in ends if of.is_turned(end)), None)
    if turned is None:
        return [], False

    def movement(at: costs.Prices) -> float:
        return abs(math.log((of.at(at).ratio or 1) / (of.at(prices).ratio or 1)))

    alone = {
        name: max(movement({**prices, name: value}) for value in values)
        for name, values in box.items()
        if any(of.is_turned({**prices, name: value}) for value in values)
    }
    if alone:
        return sorted(alone, key=lambda name: -alone[name]), False
    moved = [name for name in turned if turned[name] != prices[name]]
    moved.sort(key=lambda name: -movement({**prices, name: turned[name]}))
    at = dict(prices)
    for count, name in enumerate(moved, start=1):
        at[name] = turned[name]
        if of.is_turned(at):
            return moved[:count], True
    return moved, True


def _on_other_machines(
    wanted: Sequence[_Repricing], plan: Plan, elsewhere: Callable[[str, Machine], Sequence[Series]], work: Work
) -> dict[str, dict[str, float | None]]:
    """The change of each case with one seed, by machine and case; none when the budget is used up."""
    own = hardware.load(plan.machine or hardware.DEFAULT)
    others = {ref: hardware.load(ref) for ref in hardware.names(own.architecture)}
    machines = {ref: machine for ref, machine in others.items() if machine.key != own.key}
    if work.out_of_time:
        work.progress.log("--robust: the budget was used up before the other machines")
        return {}
    found: dict[str, dict[str, float | None]] = {}
    for ref, machine in machines.items():
        work.progress.log(f"--robust: one seed on {machine.name}")
        series = {one.bench.workload.name: one for one in elsewhere(ref, machine)}
        found[machine.name] = {
            of.found.name: series[of.series.bench.workload.name].change(of.case, of.found.primary.name) for of in wanted
        }
    return found
