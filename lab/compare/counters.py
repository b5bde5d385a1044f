"""Counters of a case, of its program and of the kernel: their changes, by size, and their meanings."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import msgspec

from lab.compare.results import CaseResult, growth, movement
from lab.compare.runs import Run
from lab.core import paths, toml
from lab.core.records import Record
from lab.guests import costs
from lab.stats import verdict
from lab.stats.verdict import Comparison, Metric, distance

# The model counts the program and the kernel apart.
_SIDE = re.compile(r"^(?:user|kernel)[._]")
_PERCENTILES = ("latency_p", "cycles_p")
_COSTS = {metric.name for metric in costs.METRICS if "cycles" in metric.name} | {
    "instructions_per_op", "interruptions", "counted_operations", *costs.SPANS, *costs.WHOLE,
}  # fmt: skip

Line = Annotated[str, msgspec.Meta(min_length=1, max_length=120)]


class Counter(Record, frozen=True, kw_only=True):
    """The meaning of a counter, and its place: a file of the kernel's source, or the lab's own model."""

    meaning: Line
    source: Line


class _File(Record, frozen=True, kw_only=True):
    """`reports/counters.toml`."""

    schema: int
    counter: dict[str, Counter]


class Mechanism(Record, frozen=True, kw_only=True):
    """A counter that moved: means of both arms over the seeds or blocks that both have.

    ratio: test / base, None from zero or below it. meaning, source: empty for an undescribed counter.
    """

    name: str
    unit: str
    base: float
    test: float
    ratio: float | None
    meaning: str = ""
    source: str = ""


@cache
def counters() -> Mapping[str, Counter]:
    """The known counters by name, from `reports/counters.toml`."""
    return toml.load(paths.data_folder("reports") / "counters.toml", _File).counter


def described(name: str) -> Counter | None:
    """The known meaning of a counter, by its own name or without the side that it was counted on."""
    return counters().get(name) or counters().get(_SIDE.sub("", name))


def kernel_counters(runs: Iterable[Run], case: CaseResult, known: Collection[str] | None = None) -> list[Comparison]:
    """Compare the counts of /proc/vmstat around a case, by arm and seed. known: only the counters of those names."""
    counts: dict[str, dict[int, Mapping[str, int]]] = {"base": {}, "test": {}}
    for run in runs:
        outcome = run.report.case(case.case) if run.workload == case.workload else None
        if outcome is not None and run.arm in counts:
            counts[run.arm][run.seed] = outcome.vmstat
    seeds = sorted(counts["base"].keys() & counts["test"].keys())
    if not seeds:
        return []
    names = {name for arm in counts.values() for vmstat in arm.values() for name in vmstat}
    names -= {metric.name for metric in case.metrics}
    return [
        verdict.compare_metric(
            Metric(name=name, unit="events", better="neither"),
            [float(counts["base"][seed].get(name, 0)) for seed in seeds],
            [float(counts["test"][seed].get(name, 0)) for seed in seeds],
            exact=True,
        )
        for name in sorted(names if known is None else names & set(known))
    ]


# ---- ranked by how far they moved


def ranked(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The secondary metrics among the comparisons, the largest movement first."""
    return sorted((c for c in comparisons if not c.primary), key=lambda c: (-movement(c), c.name))


def changed(case: CaseResult) -> list[Comparison]:
    """The secondary metrics of a case that differ between the arms, ranked."""
    return [comparison for comparison in ranked(case.metrics) if comparison.base != comparison.test]


def all_counters(case: CaseResult, runs: Iterable[Run]) -> list[Comparison]:
    """The case's secondary metrics and the known counters of the kernel that moved, ranked."""
    kernel = kernel_counters(runs, case, counters().keys())
    return ranked([*case.metrics, *(c for c in kernel if c.base != c.test)])


def movers(case: CaseResult, threshold: float) -> list[Comparison]:
    """The three counters of a case that moved most, by |log ratio|; from and to zero first, by their change."""
    return sorted(explaining(case, case.metrics, threshold), key=_change, reverse=True)[:3]


def explaining(case: CaseResult, comparisons: Iterable[Comparison], threshold: float) -> list[Comparison]:
    """The counters among some comparisons of a case that may explain its change, in their order.

    Percentiles and the other clock follow the cost and explain nothing, so they are left out, as are latencies, the
    instructions that stand beside it, and counters without a usable number. So is noise: a change by no more than the
    threshold, or not to the same side in every pair.
    """
    aside = [case.guest_clock, *(c.name for c in case.beside.values())]
    return [
        c
        for c in comparisons
        if not (c.primary or c.name in aside or c.name.startswith(_PERCENTILES) or c.name in _COSTS)
        if c.method != "none" and _to_one_side(c) and distance(c.ratio, none=math.inf) > math.log1p(threshold)
    ]


def _to_one_side(c: Comparison) -> bool:
    """True if a counter rose in every pair, or fell in every pair."""
    pairs = _pairs(c)
    return all(test > base for base, test in pairs) or all(test < base for base, test in pairs)


def _change(c: Comparison) -> tuple[float, float]:
    step = abs(sum(v or 0 for v in c.test) - sum(v or 0 for v in c.base))
    return distance(c.ratio, none=math.inf), step


def percentiles(case: CaseResult) -> dict[str, list[tuple[float, Comparison]]]:
    """The families of percentiles (`latency`, `cycles`) of a case that have several points, each with its share."""
    families: dict[str, list[tuple[float, Comparison]]] = {}
    for prefix in _PERCENTILES:
        for comparison in case.metrics:
            digits = comparison.name.removeprefix(prefix)
            if digits != comparison.name and digits.isdigit():
                # p999 is 99.9 %.
                share = float(f"{digits[:2]}.{digits[2:] or 0}")
                families.setdefault(prefix.removesuffix("_p"), []).append((share, comparison))
    return {family: sorted(points, key=lambda point: point[0]) for family, points in families.items() if points[1:]}


def mechanisms(comparisons: Iterable[Comparison]) -> list[Mechanism]:
    """The counters among a case's comparisons that moved, the largest movement first.

    A counter is in `counters.toml`, or has no better side: a faster clock is not an explanation.
    """
    moved = []
    for comparison in comparisons:
        about = described(comparison.name)
        pairs = _pairs(comparison)
        if comparison.primary or not pairs or (about is None and comparison.better != "neither"):
            continue
        base, test = map(statistics.fmean, zip(*pairs, strict=True))
        if base != test:
            moved.append(
                Mechanism(
                    name=comparison.name,
                    unit=comparison.unit,
                    base=base,
                    test=test,
                    ratio=test / base if base > 0 <= test else None,
                    meaning=about.meaning if about else "",
                    source=about.source if about else "",
                )
            )
    return sorted(moved, key=lambda m: (-growth(m.base, m.test), m.name))


def _pairs(c: Comparison) -> list[tuple[float, float]]:
    """The pairs of which both numbers are known."""
    return [(base, test) for base, test in zip(c.base, c.test, strict=True) if base is not None and test is not None]


# ---- over time

Point = Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A number that a program reported over time: for each arm a curve by seed, of points (guest ns, value)."""

    name: str
    curves: dict[str, dict[int, list[Point]]]

    @property
    def longest(self) -> float:
        return max(point[0] for arm in self.curves.values() for curve in arm.values() for point in curve) or 1.0

    @property
    def largest(self) -> float:
        return max(point[1] for arm in self.curves.values() for curve in arm.values() for point in curve) or 1.0

    def reached(self, arm: str, share: float) -> float | None:
        """The median time at which an arm reached that share of the largest value; None if a seed never did."""
        level = self.largest * share * (1 - 1e-9)
        times = [next((t for t, value, *_ in curve if value >= level), None) for curve in self.curves[arm].values()]
        return None if None in times else statistics.median(time for time in times if time is not None)


def timelines(case: CaseResult, runs: Iterable[Run]) -> list[Timeline]:
    """All series that both arms reported of a case."""
    arms = ("base", "test")
    curves: dict[str, dict[str, dict[int, list[Point]]]] = {}
    for run in runs:
        outcome = run.report.case(case.case) if run.workload == case.workload else None
        for name, points in (outcome.series if outcome else {}).items():
            if run.arm in arms and len(points) > 1 and len(points[0]) > 1:
                curves.setdefault(name, {arm: {} for arm in arms})[run.arm][run.seed] = [*points]
    return [Timeline(name=name, curves=both) for name, both in sorted(curves.items()) if all(both.values())]
