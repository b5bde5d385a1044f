"""Curves: the values that a program reported over time, such as its resident size, and the change over a size.

A sweep is the cases that differ in a size alone, or in the number of vCPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lab.compare.counters import Point, Timeline
from lab.compare.results import AbResult, CaseResult
from lab.core.text import number, plural, visible
from lab.report import plots, wording
from lab.report.plots import SIZE, Axis, Chart, Curve, Tick
from lab.stats.verdict import Outcome

MOST_SEEDS = 24
"""Curves that are drawn of each arm; more would hide each other."""

_MOST_POINTS = 300
_SHARES = (25, 50, 75, 100)
_ARMS = ("base", "test")
_FEWEST_SIZES = 3
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def _seconds(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def _bytes(kib: float) -> str:
    for unit, size in (("GiB", 1 << 20), ("MiB", 1 << 10)):
        if abs(kib) >= size:
            return f"{kib / size:.4g} {unit}"
    return f"{kib:.4g} KiB"


class Meaning(NamedTuple):
    """The title of a series, and how its numbers are written: along (time) and up (value)."""

    title: str
    along: Callable[[float], str]
    up: Callable[[float], str]


KNOWN = {"rss": Meaning("Resident size (RES) over guest time", _seconds, _bytes)}
"""Series of the lab's own workloads; any other is shown as the program reported it."""


@dataclass(frozen=True)
class TimelineView:
    """A timeline as a plot, its labels, and the same as a table."""

    timeline: Timeline

    @property
    def name(self) -> str:
        return visible(self.timeline.name)

    @property
    def meaning(self) -> Meaning:
        return KNOWN.get(self.name) or Meaning(f"{self.name}, as the program reported it", number, number)

    @property
    def chart(self) -> Chart:
        """All curves, with labels at round times, or for sizes at powers of two."""
        largest, longest = self.timeline.largest, self.timeline.longest
        axis = Axis(low=0.0, high=largest * 1.03)
        up = axis.ticks()
        if self.meaning.up is _bytes:
            step = max(2 ** math.ceil(math.log2(largest / 4)), 1)
            up = [Tick(axis.at(size) / 10, _bytes(size)) for size in range(0, math.floor(axis.high) + 1, step)]
        parts = []
        for arm in _ARMS:
            curves = list(self.timeline.curves[arm].values())[:MOST_SEEDS]
            parts.append(plots.path(f"line over {arm}", "".join(_line(curve, axis, longest) for curve in curves)))
        along = [Tick(100 * t / longest, self.meaning.along(t)) for t in plots.round_values(0.0, longest)[0]]
        return Chart(plots.picture(parts, self.description), up, along)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The same in numbers: when shares of the largest value were reached."""
        return [
            (self.meaning.up(self.timeline.largest * share / 100), *(self._reached(arm, share) for arm in _ARMS))
            for share in _SHARES
        ]

    def _reached(self, arm: str, share: int) -> str:
        time = self.timeline.reached(arm, share / 100)
        return "never by all" if time is None else self.meaning.along(time)

    @property
    def description(self) -> str:
        reached = "; ".join(f"{level} after {base} in base, {test} in test" for level, base, test in self.rows)
        return f"{self.meaning.title}: {reached}"


def _line(curve: Sequence[Point], axis: Axis, longest: float) -> str:
    step = max(1, len(curve) // _MOST_POINTS)
    points = [*curve[:-1:step], curve[-1]]
    return "M" + "L".join(f"{round(SIZE * point[0] / longest)} {axis.at(point[1])}" for point in points)


# ---- over a size


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The measured cases of a sweep, by size. over: the meaning of the sizes."""

    name: str
    points: Mapping[int, CaseResult]
    over: str = "size"

    @property
    def cases(self) -> list[CaseResult]:
        """The cases, the smallest first."""
        return list(self.points.values())

    def _shown(self, size: int) -> str:
        return shown_size(size) if self.over == "size" else plural(size, "vCPU")

    @property
    def differs_from(self) -> int | None:
        """The smallest size from which on all sizes changed in the direction of the largest; None without one."""
        last = self.cases[-1]
        since = None
        for size, case in reversed(list(self.points.items())):
            if not case.counts_as_change or case.verdict != last.verdict:
                break
            since = size
        return since

    @property
    def verdict(self) -> str:
        """The size from which the arms differ, in words."""
        since = self.differs_from
        if since is None:
            changed = any(case.counts_as_change for case in self.cases)
            is_open = self.cases[-1].verdict == Outcome.UNKNOWN
            largest = f"{'unknown' if is_open else 'the arms do not differ'} at the largest {self.over}"
            return largest if changed else f"the arms differ at no {self.over}"
        return f"{self.cases[-1].verdict} from {self._shown(since)} on"

    @property
    def line(self) -> str:
        points = [f"{wording.change(case.primary)} at {self._shown(size)}" for size, case in self.points.items()]
        return f"{self.name}: {', '.join(points)}: {self.verdict}"

    @property
    def chart(self) -> Chart:
        """Test over base by the size, on a logarithmic line; base is the line at 1."""
        known = [(size, case.primary.interval, case.primary.ratio) for size, case in self.points.items()]
        spans = [(size, *_span(between, ratio)) for size, between, ratio in known if ratio is not None]
        base = [(size, 1.0, 1.0, 1.0) for size, *_ in spans]
        axis = Axis.of([1.0, *(ratio for _, *span in spans for ratio in span)])
        sizes = {float(size): shown_size(size) for size in self.points}
        logs = [math.log(size) for size in sizes]

        def at(size: float) -> float:
            return round(SIZE * (0.04 + 0.92 * (math.log(size) - logs[0]) / (logs[-1] - logs[0])))

        return plots.curves([Curve("base", base), Curve("test", spans)], self.line, sizes, at, (axis, plots.in_percent))


def sweeps_of(result: AbResult) -> list[Sweep]:
    """The sweeps of a result that have enough sizes for a curve, in the order of the cases."""
    found: dict[str, dict[int, CaseResult]] = {}
    for case in result.cases:
        if case.sweep is not None and case.is_measured:
            found.setdefault(f"{case.workload}:{case.sweep.name}", {})[case.sweep.size] = case
    return [
        Sweep(name=name.partition(":")[2], points=dict(sorted(cases.items())))
        for name, cases in found.items()
        if len(cases) >= _FEWEST_SIZES
    ]


def sweeps_of_vcpus(result: AbResult) -> list[Sweep]:
    """The cases that were measured on enough numbers of vCPUs for a curve, if they changed on one of them."""
    found: dict[str, dict[int, CaseResult]] = {}
    for case in result.cases:
        name, _, number = case.workload.rpartition("@")
        if number.isdigit() and case.is_measured and not case.control:
            found.setdefault(f"{name}:{case.case}", {})[int(number)] = case
    return [
        Sweep(name=name, points=dict(sorted(cases.items())), over="number of vCPUs")
        for name, cases in found.items()
        if len(cases) >= _FEWEST_SIZES and any(case.counts_as_change for case in cases.values())
    ]


def shown_size(size: int) -> str:
    """A size in the largest unit that gives a whole number."""
    return next((f"{size // unit} {name}" for unit, name in _UNITS if not size % unit), str(size))


def _span(interval: tuple[float, float] | None, ratio: float) -> tuple[float, float, float]:
    low, high = interval or (ratio, ratio)
    return low, ratio, high
