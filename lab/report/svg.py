"""The SVG behind every picture: places on axes and their labels, shapes, descriptions, and the colours of both themes.

A picture on a page has no text of its own. It is drawn in thousandths of its box and stretched by the browser; lines
and dots keep their thickness (`vector-effect`), so the same picture fits a phone and a wall. Its labels stand around it
as HTML. A document is a file of its own, with its text in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from lab.core.text import xml
from lab.stats.verdict import Comparison, percent

SIZE = 1000

_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 5, 10, 20, 50, 100)
_LABEL = 190
"""Thousandths that a label takes along an axis."""

_CHARACTERS = 48
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
        return longest if longest * len(self.along) > _CHARACTERS else 0


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


def rect(kind: str, x: float, y: float, width: float, height: float, more: str = "") -> str:
    """A rectangle. more: other attributes."""
    place = f'x="{round(x, 2):g}" y="{round(y, 2):g}" width="{round(width, 2):g}" height="{round(height, 2):g}"'
    return f'<rect class="{kind}" {place}{more}/>'


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
