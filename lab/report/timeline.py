"""Curves of what a program reported over time, e.g. the resident size of `large-alloc`, as a page shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from lab.compare.counters import Point, Timeline
from lab.core.text import number
from lab.report.plots import SIZE, Axis, Tick, drawn

MOST_SEEDS = 24
"""Curves that are drawn of each arm; more would hide each other."""

_MOST_POINTS = 300
_SHARES = (25, 50, 75, 100)
_ARMS = ("base", "test")


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
        """The series' own name."""
        return self.timeline.name

    @property
    def meaning(self) -> Meaning:
        """The title, and how numbers are written."""
        return KNOWN.get(self.name) or Meaning(f"{self.name}, as the program reported it", number, number)

    @property
    def top(self) -> str:
        """The label of the largest value."""
        return self.meaning.up(self.timeline.largest)

    @property
    def ticks(self) -> list[Tick]:
        """Labels along: quarters of the longest time."""
        return [Tick(at=25.0 * i, text=self.meaning.along(self.timeline.longest * i / 4)) for i in range(5)]

    @property
    def plot(self) -> Markup:
        """All curves."""
        axis, longest = Axis(low=0.0, high=self.timeline.largest * 1.03), self.timeline.longest
        parts = []
        for arm in _ARMS:
            curves = list(self.timeline.curves[arm].values())[:MOST_SEEDS]
            lines = [_line(curve, axis, longest) for curve in curves]
            parts.append(f'<path class="line over {arm}" d="{"".join(lines)}"/>')
        return drawn(parts, self.description)

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
        """The plot in words."""
        reached = "; ".join(f"{level} after {base} in base, {test} in test" for level, base, test in self.rows)
        return f"{self.meaning.title}: {reached}"


def _line(curve: Sequence[Point], axis: Axis, longest: float) -> str:
    step = max(1, len(curve) // _MOST_POINTS)
    points = [*curve[:-1:step], curve[-1]]
    return "M" + "L".join(f"{round(SIZE * point[0] / longest)} {axis.at(point[1])}" for point in points)
