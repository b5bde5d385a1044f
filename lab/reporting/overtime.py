"""What a program reported over time (the resident size of `large-alloc`), of both arms and every seed, as curves."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from lab.reporting.plots import SIZE, Axis, Tick, drawn
from lab.results import CaseResult, number
from lab.runs import Run

MOST_SEEDS = 24
"""Of each arm, so many curves are drawn; more would hide each other."""

_MOST_POINTS = 300
_SHARES = (25, 50, 75, 100)
_ARMS = ("base", "test")

Point = Sequence[float]


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
    """What a series is, and how its numbers are written: along and up."""

    title: str
    along: Callable[[float], str]
    up: Callable[[float], str]


KNOWN = {"rss": Meaning("Resident size (RES) over guest time", _seconds, _bytes)}
"""Of the lab's own workloads; whatever else a program reports is shown as it is."""


@dataclass(frozen=True, kw_only=True)
class OverTime:
    """One series of one case: for each arm a curve by seed."""

    name: str
    curves: dict[str, dict[int, list[Point]]]

    @property
    def meaning(self) -> Meaning:
        """What it is."""
        return KNOWN.get(self.name) or Meaning(f"{self.name}, as the program reported it", number, number)

    @property
    def _points(self) -> list[Point]:
        return [point for arm in self.curves.values() for curve in arm.values() for point in curve]

    @property
    def _along(self) -> float:
        return max((point[0] for point in self._points), default=0.0) or 1.0

    @property
    def _up(self) -> float:
        return max((point[1] for point in self._points), default=0.0) or 1.0

    @property
    def top(self) -> str:
        """The label of the largest value."""
        return self.meaning.up(self._up)

    @property
    def ticks(self) -> list[Tick]:
        """Labels along: quarters of the longest time."""
        return [Tick(at=25.0 * i, text=self.meaning.along(self._along * i / 4)) for i in range(5)]

    @property
    def plot(self) -> Markup:
        """All curves."""
        axis = Axis(low=0.0, high=self._up * 1.03)
        parts = []
        for arm in _ARMS:
            lines = [self._line(curve, axis) for curve in list(self.curves[arm].values())[:MOST_SEEDS]]
            parts.append(f'<path class="line over {arm}" d="{"".join(lines)}"/>')
        return drawn(parts, self.words)

    def _line(self, curve: Sequence[Point], axis: Axis) -> str:
        step = max(1, len(curve) // _MOST_POINTS)
        kept = [*curve[:-1:step], curve[-1]]
        return "M" + "L".join(f"{round(SIZE * point[0] / self._along)} {axis.at(point[1])}" for point in kept)

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """The same in numbers: when shares of the largest value were reached, the median over the seeds."""
        return [
            (self.meaning.up(self._up * share / 100), *(self._reached(arm, share) for arm in _ARMS))  # type: ignore[misc]
            for share in _SHARES
        ]

    def _reached(self, arm: str, share: int) -> str:
        level = self._up * share / 100 * (1 - 1e-9)
        found = [next((point[0] for point in curve if point[1] >= level), None) for curve in self.curves[arm].values()]
        times = [one for one in found if one is not None]
        return self.meaning.along(statistics.median(times)) if times and len(times) == len(found) else "never by all"

    @property
    def words(self) -> str:
        """The picture in words."""
        reached = "; ".join(f"{level} after {base} in base, {test} in test" for level, base, test in self.rows)
        return f"{self.meaning.title}: {reached}"


def of_case(runs: Iterable[Run], case: CaseResult) -> list[OverTime]:
    """All series that both arms reported of a case."""
    found: dict[str, dict[str, dict[int, list[Point]]]] = {}
    for run in runs:
        outcome = run.report.case(case.case) if run.workload == case.workload else None
        for name, points in (outcome.series if outcome else {}).items():
            if run.arm in _ARMS and len(points) > 1 and len(points[0]) > 1:
                found.setdefault(name, {arm: {} for arm in _ARMS})[run.arm][run.seed] = [*points]
    return [OverTime(name=name, curves=arms) for name, arms in sorted(found.items()) if all(arms.values())]
