"""Plots of the pages. Each is a `Chart`, or a picture for a row of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from lab.compare.results import numbers
from lab.report.svg import SIZE, Axis, Chart, Scale, Tick, dots, line, path, picture, rect, spaced
from lab.stats.verdict import Comparison

Values = Sequence[float | None]

_BINS = 24
_COARSE = 200  # pairs; more of them would hide each other as large dots
_MARGIN = 20
_UPRIGHT = 42
"""Thousandths that a label takes if it stands upright."""


# ---- samples


def strip(base: Values, test: Values, label: str) -> Chart:
    """All values of both arms, one column a pair: round dots are base, square ones test."""
    axis = axis_of(base, test)
    size = " fine" if len(base) > _COARSE else ""
    drawn = [dots(f"dots {arm}{size}", _places(values, axis)) for arm, values in (("base", base), ("test", test))]
    return Chart(picture([axis.grid(), *drawn], label), axis.ticks())


def axis_of(*arms: Values) -> Axis:
    """The axis that both the strip and its distribution use."""
    return Axis.of(numbers([value for values in arms for value in values]))


def _places(values: Values, axis: Axis) -> Collection[str]:
    step = SIZE / max(len(values), 1)
    # Dots at the same point are one: ten thousand samples need no more ink than there are points.
    return dict.fromkeys(f"{round(step * (i + 0.5))} {axis.at(v)}" for i, v in enumerate(values) if v is not None)


def distribution(base: Values, test: Values) -> Chart:
    """Frequencies of values along the strip's axis: base to the left, test to the right."""
    axis, height = axis_of(base, test), SIZE / _BINS
    counts = [_counted(values, axis) for values in (base, test)]
    most = max(*counts[0], *counts[1], 1)
    parts = [path("zero", f"M{SIZE // 2} 0V{SIZE}")]
    for arm, found, way in (("base", counts[0], -1), ("test", counts[1], 1)):
        steps = (
            f"M500 {round(i * height)}h{round(way * 480 * n / most)}v{round(height) - 2}H500z"
            for i, n in enumerate(found)
            if n
        )
        parts.append(path(f"bars {arm}", "".join(steps)))
    return Chart(picture(parts))


def _counted(values: Values, axis: Axis) -> list[int]:
    counts = [0] * _BINS
    for value in numbers(values):
        counts[min(int(axis.at(value) * _BINS / SIZE), _BINS - 1)] += 1
    return counts


# ---- curves


class Curve(NamedTuple):
    """One arm's points: the share in percent or the size, then smallest, mean and largest value over all seeds."""

    arm: str
    points: Sequence[tuple[float, float, float, float]]


def curves(
    arms: Sequence[Curve],
    label: str,
    along: Mapping[float, str],
    at: Callable[[float], float],
    up: tuple[Axis, Callable[[float, float], str]] | None = None,
) -> Chart:
    """A curve of each arm, the mean as a line, the span of the seeds as a band.

    along: the labels below, by point. at: the place of a point. up: the axis and how its values are written; without
    it, from zero to a little above the largest value.
    """
    axis, show = up or (Axis(low=0.0, high=1.05 * max([p[3] for c in arms for p in c.points] or [1.0]) or 1.0), None)
    parts = [axis.grid()]
    for arm, points in arms:
        low, middle, high = ([f"{at(point[0])} {axis.at(point[i])}" for point in points] for i in (1, 2, 3))
        parts += [path(f"span {arm}", f"M{'L'.join([*high, *reversed(low)])}z")] if points else []
        parts += [line(f"line {arm}", middle), dots(f"dots {arm}", middle)]
    return Chart(picture(parts, label), axis.ticks(show), [Tick(at(x) / 10, text) for x, text in along.items()])


def share_at(share: float) -> float:
    """The place of a percentile: each nine is as wide as the one before."""
    return round(SIZE * min(-math.log10(max(1 - share / 100, 1e-4)) / 2.2, 1.0))


class Series(NamedTuple):
    """Values in their order: nights of a trend, or the kernels of an atlas."""

    values: Values
    names: Sequence[str]
    band: tuple[float, float]
    """The values between which nothing has changed."""
    steps: Collection[int] = ()
    """The values that reach a step: their labels come first."""
    outliers: Collection[int] = ()
    cuts: Collection[int] = ()
    """The values that do not continue the one before."""


def series(one: Series, label: str) -> Chart:
    """Points in their order, joined by a line; steps as vertical lines before theirs, rings around outliers."""
    axis, last = Axis.of([*numbers(one.values), *one.band]), max(len(one.values) - 1, 1)

    def x(i: float) -> float:
        return round(_MARGIN + i / last * (SIZE - 2 * _MARGIN), 1)

    points = {i: f"{x(i)} {axis.at(value)}" for i, value in enumerate(one.values) if value is not None}
    starts = [0, *sorted(one.cuts), len(one.values)]
    runs = [[points[i] for i in range(a, b) if i in points] for a, b in pairwise(starts)]
    top, bottom = axis.at(one.band[1]), axis.at(one.band[0])
    parts = [
        rect("band", 0, top, SIZE, bottom - top),
        axis.grid(),
        path("zero", "".join(f"M{x(i - 0.5)} 0V{SIZE}" for i in sorted(one.cuts))),
        path("step", "".join(f"M{x(i - 0.5)} 0V{SIZE}" for i in sorted(one.steps))),
        dots("outliers", [points[i] for i in sorted(one.outliers) if i in points]),
        *(line("level", run) for run in runs),
        dots("points", points.values()),
        dots("steps", [points[i] for i in sorted(one.steps) if i in points]),
    ]
    every = range(len(one.names))
    order = [*sorted(one.steps), *every[:1], *every[-1:], *every]
    return Chart(picture(parts, label), axis.ticks(), spaced([(x(i), one.names[i]) for i in order], _UPRIGHT))


# ---- pictures of a row


def interval(comparison: Comparison, scale: Scale) -> Markup | None:
    """One row of a forest plot: the threshold band, no change, the interval, its middle; None without a ratio."""
    if not comparison.ratio:
        return None
    left, right = scale.band
    parts = [rect("band", left, 0, right - left, SIZE), path("zero", f"M{scale.at(1.0)} 0V{SIZE}")]
    if comparison.interval is not None:
        low, high = comparison.interval
        parts.append(path("whisker", f"M{scale.at(low)} 500H{scale.at(high)}"))
    return picture([*parts, dots("middle", [f"{scale.at(comparison.ratio)} 500"])])


def pair(base: float, test: float) -> Markup:
    """Two values as bars from zero, base above test; the text beside them says the same."""
    most = max(base, test) or 1.0
    arms = (("base", base, 50), ("test", test, 550))
    return picture(rect(f"bar {arm}", 0, y, round(SIZE * max(value, 0.0) / most), 400) for arm, value, y in arms)


def diverging(value: float, low: float, high: float) -> Markup:
    """A bar from zero to a value: to the right if it is positive. low, high: the ends of all bars, around zero."""
    zero, at = (SIZE * (x - low) / ((high - low) or 1.0) for x in (0.0, value))
    width = max(abs(at - zero), 1.0 if value else 0.0)
    bar = rect("bar more" if value > 0 else "bar less", min(zero, at), 150, width, 700)
    return picture([bar, path("axis", f"M{zero:.1f} 0V{SIZE}")])


def spark(ratios: Values, scale: Scale, label: str) -> Markup:
    """Changes over time on a scale that others share, upwards: the threshold's band, and a line through all values."""
    low, high = (SIZE - place for place in scale.band)
    step = SIZE / max(len(ratios), 1)
    points = [f"{step * (i + 0.5):.1f} {SIZE - scale.at(r):.1f}" for i, r in enumerate(ratios) if r is not None]
    return picture([rect("band", 0, high, SIZE, low - high), line("level", points), dots("last", points[-1:])], label)
