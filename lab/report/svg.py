"""The pictures of the page: inline SVG without any text, stretched to the width there is.

A plot is drawn in units of a thousandth of its box and stretched by the browser; lines and dots keep their
thickness (`vector-effect`), so the same picture fits a phone and a wall. Words stand around it as HTML. A dot is a
line of no length with a round or square end, so ten thousand of them are one path.

An explanation as pictures: folded text for flame graph viewers, and a differential flame graph as SVG.

The profile has no call chains, so the graph has three rows: everything, kernel and user, functions. A box is
as wide as the larger of the function's two costs: with the test's alone, what the test kernel no longer does
would be invisible. So a row can be wider than either arm's total; the numbers are in the tooltips.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple
from xml.sax import saxutils

from markupsafe import Markup, escape

from lab.compare.explain import Arm, Cost, Explanation, FunctionRow, Space, total
from lab.core.text import number
from lab.stats.verdict import percent

SIZE = 1000

_BINS = 24
_COARSE = 200  # pairs; more of them would hide each other as large dots
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 5, 10, 20, 50, 100)
_TICK_ROOM = 90


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
    def of(cls, ratios: Iterable[float], threshold: float) -> Scale:
        """A scale that holds all of the ratios, and the threshold band with room around it."""
        found = [math.asinh(math.log(ratio) / threshold) for ratio in ratios if ratio > 0]
        edge = math.asinh(2)
        low, high = min([-edge, *found]), max([edge, *found])
        room = 0.04 * (high - low)
        return cls(threshold=threshold, low=low - room, high=high + room)

    def at(self, ratio: float) -> float:
        """Where a ratio is, in thousandths."""
        place = math.asinh(math.log(ratio) / self.threshold) if ratio > 0 else self.low
        return round(SIZE * min(max((place - self.low) / (self.high - self.low), 0.0), 1.0), 1)

    def ticks(self) -> list[Tick]:
        """Labels far enough from each other, no change first."""
        taken = [(self.at(1.0), "0")]
        for ratio in sorted(_TICKS, key=lambda ratio: abs(math.log(ratio))):
            at = self.at(ratio)
            if 25 < at < SIZE - 25 and all(abs(at - other) >= _TICK_ROOM for other, _ in taken):
                taken.append((at, f"x{ratio:g}" if ratio >= 2 else percent(ratio).replace(".0 %", " %")))
        return [Tick(at=at / 10, text=text) for at, text in sorted(taken)]


def interval(scale: Scale, ratio: float, bounds: tuple[float, float] | None) -> Markup:
    """One row of a forest plot: the threshold band, the line of no change, the interval, its middle."""
    left, right = scale.at(1 / (1 + scale.threshold)), scale.at(1 + scale.threshold)
    zero, middle = scale.at(1.0), scale.at(ratio)
    parts = [
        f'<rect class="band" x="{left}" width="{round(right - left, 1)}" height="{SIZE}"/>',
        f'<path class="zero" d="M{zero} 0V{SIZE}"/>',
    ]
    if bounds is not None:
        parts.append(f'<path class="whisker" d="M{scale.at(bounds[0])} 500H{scale.at(bounds[1])}"/>')
    parts.append(f'<path class="middle" d="M{middle} 500h0"/>')
    return drawn(parts)


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
        """Where a value is, counted from above as SVG does."""
        return round(SIZE * (self.high - value) / (self.high - self.low))


def strip(base: Sequence[float | None], test: Sequence[float | None], label: str) -> Markup:
    """All values of both arms, one column a pair: round dots are base, square ones test."""
    axis = axis_of(base, test)
    size = " fine" if len(base) > _COARSE else ""
    parts = [
        f'<path class="dots {arm}{size}" d="{_dots(values, axis)}"/>'
        for arm, values in (("base", base), ("test", test))
    ]
    return drawn(parts, label)


def axis_of(*arms: Sequence[float | None]) -> Axis:
    """The axis that both the strip and its distribution use."""
    return Axis.of([value for values in arms for value in values if value is not None] or [0.0])


def _dots(values: Sequence[float | None], axis: Axis) -> str:
    step = SIZE / max(len(values), 1)
    # Dots in the same place are one: ten thousand samples need no more ink than there are places.
    places = dict.fromkeys(
        (round(step * (i + 0.5)), axis.at(value)) for i, value in enumerate(values) if value is not None
    )
    return "".join(f"M{x} {y}h0" for x, y in places)


def distribution(base: Sequence[float | None], test: Sequence[float | None]) -> Markup:
    """How often which value was seen, along the strip's axis: base to the left, test to the right."""
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
    for value in values:
        if value is not None:
            counts[min(int(axis.at(value) * _BINS / SIZE), _BINS - 1)] += 1
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One arm's percentiles: the share in percent, then smallest, mean and largest value over all seeds."""

    arm: str
    points: Sequence[tuple[float, float, float, float]]


def curves(arms: Sequence[Curve], label: str) -> Markup:
    """Percentiles of both arms, the mean as a line, what the seeds span as a band."""
    axis = curves_axis(arms)
    parts = []
    for curve in arms:
        xs = [share_at(point[0]) for point in curve.points]
        up = [f"{x} {axis.at(point[3])}" for x, point in zip(xs, curve.points, strict=True)]
        down = [f"{x} {axis.at(point[1])}" for x, point in zip(xs, curve.points, strict=True)]
        middle = [f"{x} {axis.at(point[2])}" for x, point in zip(xs, curve.points, strict=True)]
        parts.append(f'<path class="span {curve.arm}" d="M{"L".join([*up, *reversed(down)])}z"/>')
        parts.append(f'<path class="line {curve.arm}" d="M{"L".join(middle)}"/>')
        parts.append(f'<path class="dots {curve.arm}" d="{"".join(f"M{one}h0" for one in middle)}"/>')
    return drawn(parts, label)


def curves_axis(arms: Sequence[Curve]) -> Axis:
    """From zero to a little above the largest value."""
    return Axis(low=0.0, high=1.05 * max([p[3] for curve in arms for p in curve.points] or [1.0]) or 1.0)


def share_at(share: float) -> float:
    """Where a percentile is: each nine is as wide as the one before."""
    return round(SIZE * min(-math.log10(max(1 - share / 100, 1e-4)) / 2.2, 1.0))


def drawn(parts: Sequence[str], label: str = "") -> Markup:
    """A picture: described by its label, or hidden from those who cannot see it, for whom its words stand beside."""
    role = ' role="img"' if label else ""
    said = f'aria-label="{escape(label)}"' if label else 'aria-hidden="true"'
    whole = f'<svg{role} {said} viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none">{"".join(parts)}</svg>'
    return Markup(whole)  # noqa: S704  (the parts are numbers of ours, the label is escaped)


_SPACES: tuple[Space, ...] = ("kernel", "user")
_ARMS: tuple[Arm, ...] = ("base", "test")

WIDTH = 1200
_MARGIN = 12
_TOP = 64
_ROW = 34
_FOOT = 66
_FONT = 13
_CHARACTER = 7.9  # pixels of one character of that font: 0.6 of its size, and a little for wider ones
_NARROWEST = Fraction(1)  # pixels; what is narrower is put together in one box

_MORE, _LESS = (214, 39, 40), (49, 112, 196)

# Not allowed in XML, in whatever form; a symbol's name has none unless its file is damaged.
_UNPRINTABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# --- folded


def folded(explanation: Explanation, cost: Cost = "cycles") -> str:
    """Lines `arm;space;function count` of both arms, for flame graph viewers.

    Counts are the profiles' own sums, in instructions or in the explanation's units of a cycle, over all
    operations; functions of no cost are left out.
    """
    rows = sorted(explanation.rows, key=lambda row: (row.space, row.name))
    lines = [
        f"{arm};{row.space};{_folded_name(row.name)} {row.cost(arm, cost)}\n"
        for arm in _ARMS
        for row in rows
        if row.cost(arm, cost)
    ]
    return "".join(lines)


def _folded_name(name: str) -> str:
    """A name without what the format is made of: semicolons, spaces, ends of lines."""
    return re.sub(r"\s+", "_", name.replace(";", ":"))


# --- SVG


class _Box(NamedTuple):
    level: int
    left: Fraction
    width: Fraction  # pixels
    label: str
    row: FunctionRow


def svg(explanation: Explanation, cost: Cost = "cycles", *, title: str, machine: str = "") -> str:
    """A differential flame graph as one SVG document that needs nothing else.

    title: what was compared. machine: the machine file's name; needed with cycles, which only it gives.
    Red costs more in the test kernel, blue less; the largest change of one function has the full colour.
    """
    if cost == "cycles" and not machine:
        raise ValueError("modelled cycles are never shown without the machine file's name")
    boxes = list(_boxes(explanation, cost))
    strongest = max((abs(explanation.delta(box.row, cost)) for box in boxes if box.level == 2), default=Fraction())
    height = _TOP + 3 * _ROW + _FOOT
    unit = f"modelled cycles ({machine})" if cost == "cycles" else "instructions"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" '
        f'font-size="{_FONT}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(_MARGIN, 26, title, _inside(WIDTH - 2 * _MARGIN, 16), 'font-size="16" font-weight="bold"'),
        _text(_MARGIN, 48, _subtitle(explanation, cost, unit), _inside(WIDTH - 2 * _MARGIN, _FONT)),
        *(_drawn(box, explanation, cost, unit, strongest) for box in boxes),
        *_legend(_TOP + 3 * _ROW + 22, cost),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _boxes(explanation: Explanation, cost: Cost) -> Iterator[_Box]:
    """All boxes from the root down. What costs more comes first, so red is on the left and blue on the right."""
    whole = sum((_size(explanation, row, cost) for row in explanation.rows), Fraction())
    if not whole:
        return
    scale = (WIDTH - 2 * _MARGIN) / whole
    everything = total(explanation.rows, name="all")
    yield _Box(0, Fraction(_MARGIN), whole * scale, "all", everything)
    left = Fraction(_MARGIN)
    for space in _SPACES:
        rows = [row for row in explanation.rows if row.space == space]
        wide = sum((_size(explanation, row, cost) for row in rows), Fraction()) * scale
        if wide:
            yield _Box(1, left, wide, space, total(rows, name=space, space=space))
            yield from _functions(explanation, rows, cost, left, scale)
        left += wide


def _functions(
    explanation: Explanation, rows: Sequence[FunctionRow], cost: Cost, left: Fraction, scale: Fraction
) -> Iterator[_Box]:
    ordered = sorted(rows, key=lambda row: (-explanation.delta(row, cost), row.name))
    small = []
    for row in ordered:
        width = _size(explanation, row, cost) * scale
        if width < _NARROWEST:
            small.append(row)
            continue
        yield _Box(2, left, width, row.name, row)
        left += width
    if small:
        width = sum((_size(explanation, row, cost) for row in small), Fraction()) * scale
        name = f"[{len(small)} smaller functions]"
        yield _Box(2, left, width, name, total(small, name=name, space=small[0].space))


def _size(explanation: Explanation, row: FunctionRow, cost: Cost) -> Fraction:
    return max(explanation.per_operation(row, "base", cost), explanation.per_operation(row, "test", cost))


def _drawn(box: _Box, explanation: Explanation, cost: Cost, unit: str, strongest: Fraction) -> str:
    top = _TOP + box.level * _ROW
    colour = _colour(explanation.delta(box.row, cost), strongest) if box.level == 2 else "#eeeeee"
    label = _text(float(box.left) + 4, top + 21, box.label, _inside(float(box.width) - 8, _FONT))
    return (
        f"<g><title>{plain(_tooltip(box, explanation, cost, unit))}</title>"
        f'<rect x="{float(box.left):.2f}" y="{top}" width="{float(box.width):.2f}" height="{_ROW - 2}" '
        f'fill="{colour}" stroke="#999999" stroke-width="0.3"/>{label}</g>'
    )


def _colour(delta: Fraction, strongest: Fraction) -> str:
    """White where nothing changed, the full colour for the strongest change, and in between in proportion."""
    strength = float(abs(delta) / strongest) if strongest else 0.0
    return _shade(_MORE if delta > 0 else _LESS, strength)


def _shade(colour: tuple[int, int, int], strength: float) -> str:
    """A colour mixed with white, never so dark that words on it cannot be read."""
    return "#" + "".join(f"{round(255 + (channel - 255) * strength * 0.85):02x}" for channel in colour)


def _tooltip(box: _Box, explanation: Explanation, cost: Cost, unit: str) -> str:
    base, test = (explanation.per_operation(box.row, arm, cost) for arm in _ARMS)
    share = explanation.share(box.row, cost)
    lines = [
        box.label if box.level < 2 else f"{box.label} ({box.row.space})",
        f"base {short(base)}, test {short(test)} {unit} per operation",
        f"{signed(test - base)} ({change(base, test)})",
    ]
    if share is not None and box.level:
        lines.append(f"{float(share):.1%} of the whole difference")
    return "\n".join(lines)


def _subtitle(explanation: Explanation, cost: Cost, unit: str) -> str:
    whole = total(explanation.rows)
    base, test = (explanation.per_operation(whole, arm, cost) for arm in _ARMS)
    return f"{unit} per operation: {short(base)} -> {short(test)} ({change(base, test)})"


def _legend(top: int, cost: Cost) -> list[str]:
    parts, left = [], float(_MARGIN)
    for fill, words in (
        (_shade(_LESS, 1), "less than base"),
        ("#ffffff", "same"),
        (_shade(_MORE, 1), "more than base"),
    ):
        parts.append(f'<rect x="{left:g}" y="{top - 12}" width="16" height="16" fill="{fill}" stroke="#999999"/>')
        parts.append(_text(left + 22, top + 1, words, len(words)))
        left += 22 + (len(words) + 3) * _CHARACTER
    what = "modelled cycles" if cost == "cycles" else "instructions"
    note = f"Width: {what} per operation, of base or test, whichever is more. Colour: change, relative to the largest."
    return [*parts, _text(_MARGIN, top + 26, note, len(note), 'fill="#555555"')]


def _inside(width: float, font: int) -> int:
    """How many characters fit into so many pixels."""
    return max(int(width / (_CHARACTER * font / _FONT)), 0)


def _text(left: float, baseline: int, words: str, room: int, style: str = "") -> str:
    """Words cut to the room there is; nothing where not even three characters fit."""
    if len(words) > room:
        words = words[: room - 1] + "…" if room >= 3 else ""
    extra = f" {style}" if style else ""
    return f'<text x="{left:.2f}" y="{baseline}"{extra}>{plain(words)}</text>' if words else ""


def plain(words: str) -> str:
    """Words as XML may have them."""
    return saxutils.escape(_UNPRINTABLE.sub("\ufffd", words))


# --- numbers for people


def short(value: Fraction) -> str:
    """Four digits, or all those before the point."""
    return number(float(value))


def signed(value: Fraction) -> str:
    """A difference, with its sign."""
    return ("+" if value > 0 else "") + short(value)


def change(base: Fraction, test: Fraction) -> str:
    """How much more or less, in percent of base."""
    if base == test:
        return "same"
    return percent(float(test / base)) if base else "only in test"
