"""Plots of the pages: inline SVG without any text, stretched to the width there is.

A plot is drawn in units of a thousandth of its box and stretched by the browser; lines and dots keep their
thickness (`vector-effect`), so the same picture fits a phone and a wall. Labels stand around it as HTML. A dot is a
line of no length with a round or square end, so ten thousand of them are one path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from lab.compare.results import numbers
from lab.stats.verdict import Comparison, percent

SIZE = 1000

_BINS = 24
_COARSE = 200  # pairs; more of them would hide each other as large dots
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 5, 10, 20, 50, 100)
_TICK_ROOM = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A label on an axis, at a share of it in percent."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Ratios along a line: logarithmic far from 1, linear near it, so that 3 % and x50 are both to be seen."""

    threshold: float
    low: float
    high: float

    @classmethod
    def of(cls, comparisons: Iterable[Comparison], threshold: float) -> Scale:
        """A scale that holds all ratios with their intervals, and the threshold band with room around it."""
        return cls.holding([ratio for c in comparisons for ratio in (c.ratio or 0.0, *(c.interval or ()))], threshold)

    @classmethod
    def holding(cls, ratios: Iterable[float], threshold: float) -> Scale:
        """A scale that holds all ratios above zero, and the threshold band with room around it."""
        positions = [math.asinh(math.log(ratio) / threshold) for ratio in ratios if ratio > 0]
        edge = math.asinh(2)
        low, high = min([-edge, *positions]), max([edge, *positions])
        room = 0.04 * (high - low)
        return cls(threshold=threshold, low=low - room, high=high + room)

    def at(self, ratio: float) -> float:
        """The place of a ratio, in thousandths."""
        position = math.asinh(math.log(ratio) / self.threshold) if ratio > 0 else self.low
        return round(SIZE * min(max((position - self.low) / (self.high - self.low), 0.0), 1.0), 1)

    def ticks(self) -> list[Tick]:
        """Labels far enough from each other, no change first."""
        taken = [(self.at(1.0), "0")]
        for ratio in sorted(_TICKS, key=lambda ratio: abs(math.log(ratio))):
            at = self.at(ratio)
            if 25 < at < SIZE - 25 and all(abs(at - other) >= _TICK_ROOM for other, _ in taken):
                taken.append((at, f"x{ratio:g}" if ratio >= 2 else percent(ratio).replace(".0 %", " %")))
        return [Tick(at=at / 10, text=text) for at, text in sorted(taken)]

    def interval(self, comparison: Comparison) -> Markup | None:
        """One row of a forest plot: the threshold band, the line of no change, the interval, its middle.

        None where there is no ratio.
        """
        if not comparison.ratio:
            return None
        left, right = self.at(1 / (1 + self.threshold)), self.at(1 + self.threshold)
        parts = [
            f'<rect class="band" x="{left}" width="{round(right - left, 1)}" height="{SIZE}"/>',
            f'<path class="zero" d="M{self.at(1.0)} 0V{SIZE}"/>',
        ]
        if comparison.interval is not None:
            low, high = comparison.interval
            parts.append(f'<path class="whisker" d="M{self.at(low)} 500H{self.at(high)}"/>')
        return drawn([*parts, f'<path class="middle" d="M{self.at(comparison.ratio)} 500h0"/>'])


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Values along a side, in thousandths from below."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Axis:
        """An axis around the values, with a little room; never of no length."""
        low, high = min(values), max(values)
        room = 0.06 * (high - low) or 0.01 * abs(high) or 1.0
        return cls(low=low - room, high=high + room)

    def at(self, value: float) -> float:
        """The place of a value, counted from above as in SVG."""
        return round(SIZE * (self.high - value) / (self.high - self.low))

    def ticks(self, show: Callable[[float, float], str] | None = None) -> list[Tick]:
        """Labels at round values, counted from above. show: writes a value, given the step between two of them."""
        values, step = round_values(self.low, self.high)
        return [Tick(at=self.at(value) / 10, text=(show or rounded)(value, step)) for value in values]

    def grid(self) -> str:
        """Lines at the round values."""
        values, _ = round_values(self.low, self.high)
        return f'<path class="grid" d="{"".join(f"M0 {self.at(value)}H{SIZE}" for value in values)}"/>'


def round_values(low: float, high: float, most: int = 6) -> tuple[list[float], float]:
    """Multiples of 1, 2 or 5 times a power of ten between two values, so many at most, and the step between them."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(power * factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)], step


def rounded(value: float, step: float) -> str:
    """A value with the digits that tell it from its neighbours a step away."""
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if step >= size:
            value, step = value / size, step / size
            return f"{value:.{_decimals(step)}f} {unit}" if value else "0"
    return f"{value:,.{_decimals(step)}f}"


def in_percent(ratio: float, step: float) -> str:
    """A ratio as a change, with the digits that tell it from its neighbours a step away."""
    decimals = 0 if step >= 0.01 else 1
    return f"{100 * (ratio - 1):+,.{decimals}f} %" if abs(ratio - 1) > step / 2 else "0 %"


def _decimals(step: float) -> int:
    return max(0, -math.floor(math.log10(step) + 1e-9))


def strip(base: Sequence[float | None], test: Sequence[float | None], label: str) -> Markup:
    """All values of both arms, one column a pair: round dots are base, square ones test."""
    axis = axis_of(base, test)
    size = " fine" if len(base) > _COARSE else ""
    dots = [
        f'<path class="dots {arm}{size}" d="{_dots(values, axis)}"/>'
        for arm, values in (("base", base), ("test", test))
    ]
    return drawn([axis.grid(), *dots], label)


def axis_of(*arms: Sequence[float | None]) -> Axis:
    """The axis that both the strip and its distribution use."""
    return Axis.of(numbers([value for values in arms for value in values]) or [0.0])


def _dots(values: Sequence[float | None], axis: Axis) -> str:
    step = SIZE / max(len(values), 1)
    # Dots at the same point are one: ten thousand samples need no more ink than there are points.
    points = dict.fromkeys(
        (round(step * (i + 0.5)), axis.at(value)) for i, value in enumerate(values) if value is not None
    )
    # Not quite of no length: some printers leave out a square end without a direction.
    return "".join(f"M{x} {y}h0.1" for x, y in points)


def distribution(base: Sequence[float | None], test: Sequence[float | None]) -> Markup:
    """Frequencies of values along the strip's axis: base to the left, test to the right."""
    axis = axis_of(base, test)
    counts = [_counted(values, axis) for values in (base, test)]
    most = max(*counts[0], *counts[1], 1)
    height = SIZE / _BINS
    parts = [f'<path class="zero" d="M{SIZE // 2} 0V{SIZE}"/>']
    for arm, found, way in (("base", counts[0], -1), ("test", counts[1], 1)):
        steps = "".join(
            f"M500 {round(i * height)}h{round(way * 480 * n / most)}v{round(height) - 2}H500z"
            for i, n in enumerate(found)
            if n
        )
        parts.append(f'<path class="bars {arm}" d="{steps}"/>')
    return drawn(parts)


def _counted(values: Sequence[float | None], axis: Axis) -> list[int]:
    counts = [0] * _BINS
    for value in numbers(values):
        counts[min(int(axis.at(value) * _BINS / SIZE), _BINS - 1)] += 1
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One arm's points: the share in percent or the size, then smallest, mean and largest value over all seeds."""

    arm: str
    points: Sequence[tuple[float, float, float, float]]


def curves(
    arms: Sequence[Curve], label: str, *, at: Callable[[float], float] | None = None, axis: Axis | None = None
) -> Markup:
    """A curve of each arm, the mean as a line, what the seeds span as a band. at: places; None for percentiles'."""
    axis = axis or curves_axis(arms)
    parts = [axis.grid()]
    for curve in arms:
        xs = [(at or share_at)(point[0]) for point in curve.points]
        up = [f"{x} {axis.at(point[3])}" for x, point in zip(xs, curve.points, strict=True)]
        down = [f"{x} {axis.at(point[1])}" for x, point in zip(xs, curve.points, strict=True)]
        middle = [f"{x} {axis.at(point[2])}" for x, point in zip(xs, curve.points, strict=True)]
        parts.append(f'<path class="span {curve.arm}" d="M{"L".join([*up, *reversed(down)])}z"/>')
        parts.append(f'<path class="line {curve.arm}" d="M{"L".join(middle)}"/>')
        parts.append(f'<path class="dots {curve.arm}" d="{"".join(f"M{point}h0.1" for point in middle)}"/>')
    return drawn(parts, label)


def curves_axis(arms: Sequence[Curve]) -> Axis:
    """From zero to a little above the largest value."""
    return Axis(low=0.0, high=1.05 * max([p[3] for curve in arms for p in curve.points] or [1.0]) or 1.0)


def pair(base: float, test: float) -> Markup:
    """Two values as bars from zero, base above test; the text beside them says the same."""
    most = max(base, test) or 1.0
    return drawn(
        f'<rect class="bar {arm}" y="{top}" width="{round(SIZE * max(value, 0.0) / most)}" height="400"/>'
        for arm, value, top in (("base", base, 50), ("test", test, 550))
    )


def diverging(value: float, low: float, high: float) -> Markup:
    """A bar from zero to a value: to the right where it is positive. low, high: the ends of all bars, around zero."""
    zero, at = (SIZE * (x - low) / ((high - low) or 1.0) for x in (0.0, value))
    left, width = min(zero, at), max(abs(at - zero), 1.0 if value else 0.0)
    kind = "more" if value > 0 else "less"
    return drawn(
        [
            f'<rect class="bar {kind}" x="{left:.1f}" width="{width:.1f}" y="150" height="700"/>',
            f'<path class="axis" d="M{zero:.1f} 0V{SIZE}"/>',
        ]
    )


def share_at(share: float) -> float:
    """The place of a percentile: each nine is as wide as the one before."""
    return round(SIZE * min(-math.log10(max(1 - share / 100, 1e-4)) / 2.2, 1.0))


def spark(ratios: Sequence[float | None], scale: Scale, label: str) -> Markup:
    """Changes over time on a scale that others share, upwards: the threshold's band, and a line through all values."""
    high, low = SIZE - scale.at(1 + scale.threshold), SIZE - scale.at(1 / (1 + scale.threshold))
    step = SIZE / max(len(ratios), 1)
    points = [f"{step * (i + 0.5):.1f} {SIZE - scale.at(r):.1f}" for i, r in enumerate(ratios) if r is not None]
    parts = [f'<rect class="band" y="{high:.1f}" width="{SIZE}" height="{low - high:.1f}"/>']
    if points:
        parts.append(f'<path class="level" d="M{"L".join(points)}"/>')
        parts.append(f'<path class="last" d="M{points[-1]}h0"/>')
    return drawn(parts, label)


def drawn(parts: Iterable[str], label: str = "") -> Markup:
    """A picture: described by its label, or hidden from screen readers where text beside it says the same."""
    role = f' role="img" aria-label="{escape(label)}"' if label else ' aria-hidden="true"'
    svg = f'<svg{role} viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none">{"".join(parts)}</svg>'
    return Markup(svg)  # noqa: S704  (the parts are numbers of ours, the label is escaped)
