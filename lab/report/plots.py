"""Plots of the pages. Each is a `Chart`, or a picture for a row of a table, as SVG.

A picture on a page has no text of its own. It is drawn in thousandths of its box and stretched by the browser; lines
and dots keep their thickness (`vector-effect`), so the same picture fits a phone and a wall. Its labels stand around it
as HTML. A document is a file of its own, with its text in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup, escape

from lab.core.text import xml
from lab.stats.verdict import Comparison, numbers, percent

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


SIZE = 1000

_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 5, 10, 20, 50, 100)
_LABEL = 290
"""Thousandths that a label takes along an axis that is as narrow as a table makes it."""

CHARACTERS = 48
"""Characters that stand side by side below a chart on a phone."""


class Tick(NamedTuple):
    """A label on an axis, at a share of it in percent."""

    at: float
    text: str


class Chart(NamedTuple):
    """A picture and its labels: `up` at the left side, `along` below."""

    picture: Markup
    up: Sequence[Tick] = ()
    along: Sequence[Tick] = ()

    @property
    def upright(self) -> int:
        """The characters of the longest label below if they are too many to be written side by side, else 0."""
        longest = max((len(tick.text) for tick in self.along), default=0)
        return longest if longest * len(self.along) > CHARACTERS else 0


def spaced(labels: Iterable[tuple[float, str]], room: float) -> list[Tick]:
    """The labels, given by their places in thousandths, that are so far from those before them; in order."""
    taken: dict[float, str] = {}
    for at, text in labels:
        if all(abs(at - other) >= room for other in taken):
            taken[at] = text
    return [Tick(at / 10, text) for at, text in sorted(taken.items())]


# ---- axes


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

    @property
    def band(self) -> tuple[float, float]:
        """The places of both ends of the threshold band."""
        return self.at(1 / (1 + self.threshold)), self.at(1 + self.threshold)

    def ticks(self) -> list[Tick]:
        """Labels far enough from each other, no change first."""
        labels = [(self.at(1.0), "0")]
        for ratio in sorted(_RATIOS, key=lambda ratio: abs(math.log(ratio))):
            if 25 < (at := self.at(ratio)) < SIZE - 25:
                labels.append((at, f"x{ratio:g}" if ratio >= 2 else percent(ratio).replace(".0 %", " %")))
        return spaced(labels, _LABEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Values along a side, in thousandths from below."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float], room: float = 0.06) -> Axis:
        """An axis around the values, with room of a share of their span; never of no length."""
        low, high = min(present := [*values] or [0.0]), max(present)
        room = room * (high - low) or 0.01 * abs(high) or 1.0
        return cls(low=low - room, high=high + room)

    def at(self, value: float) -> int:
        """The place of a value, counted from above as in SVG."""
        return round(SIZE * (self.high - value) / (self.high - self.low))

    def ticks(self, show: Callable[[float, float], str] | None = None) -> list[Tick]:
        """Labels at round values, counted from above. show: writes a value, given the step between two of them."""
        values, step = round_values(self.low, self.high)
        return [Tick(self.at(value) / 10, (show or rounded)(value, step)) for value in values]

    def grid(self) -> str:
        """Lines at the round values."""
        values, _ = round_values(self.low, self.high)
        return path("grid", "".join(f"M0 {self.at(value)}H{SIZE}" for value in values))


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


# ---- shapes: `kind` is the class, which has its colour and thickness


def path(kind: str, d: str) -> str:
    """A path; nothing if it is empty."""
    return f'<path class="{kind}" d="{d}"/>' if d else ""


def line(kind: str, points: Sequence[str]) -> str:
    """A line through points, each an `x y`; nothing without any."""
    return path(kind, f"M{'L'.join(points)}" if points else "")


def dots(kind: str, points: Iterable[str]) -> str:
    """A dot at each point: a line of nearly no length, so that ten thousand are one path; nothing without any.

    Some printers leave out the square end of a line that has no direction.
    """
    return path(kind, "".join(f"M{point}h0.1" for point in points))


def rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    place = f'x="{round(x, 2):g}" y="{round(y, 2):g}" width="{round(width, 2):g}" height="{round(height, 2):g}"'
    return f'<rect class="{kind}" {place}/>'


def picture(parts: Iterable[str], label: str = "") -> Markup:
    """A picture of a page: described by its label, or hidden from screen readers if text beside it says the same."""
    role = f' role="img" aria-label="{escape(label)}"' if label else ' aria-hidden="true"'
    svg = f'<svg{role} viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none">{"".join(parts)}</svg>'
    return Markup(svg)  # noqa: S704  (the parts are numbers of ours, the label is escaped)


# ---- documents


def document(width: int, height: int, parts: Iterable[str], *, title: str, description: str, style: str) -> str:
    """A file of its own, in pixels, on the paper of the reader's theme. title, description: for readers who hear it."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" aria-labelledby="title description">',
        f'<title id="title">{xml(title)}</title>',
        f'<desc id="description">{xml(description)}</desc>',
        f"<style>{style}</style>",
        rect("paper", 0, 0, width, height),
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def text(x: float, y: float, words: str, kind: str = "ink") -> str:
    """Text of a document at the left end of its baseline."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{xml(words)}</text>'


def themes(light: str, dark: str) -> str:
    """The rules of both themes: dark ones if the reader prefers them."""
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"
