"""An explanation as a picture: a chart of the part that each function has in the difference.

The chart has the twenty functions that differ most, each as a bar from zero: to the right if the test kernel spends
more in it, to the left if less.
"""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from lab.compare.explain import (
    Cost,
    Explanation,
    FunctionRow,
    StoredExplanation,
    by_cost,
    differing,
    total,
)
from lab.compare.results import CaseResult
from lab.core.text import visible_record, xml
from lab.kernels import architecture
from lab.report import plots
from lab.report.explain_text import cells, change, initcall_cells, level_cells, line_cells, short, unit_of
from lab.report.plots import document, rect, text, themes
from lab.report.wording import cut
from lab.stats.verdict import Outcome

MOST_FUNCTIONS = MOST_LINES = 20

WIDTH = 960
_MARGIN, _TOP, _ROW, _FOOT = 16, 72, 24, 40
_NAMES, _NUMBERS = 300, 150
"""Pixels for the names at the left and the numbers at the right."""

_CHARACTER = 7.9
"""Pixels of one character of 13-pixel type: 0.6 of its size, and a little for wider ones."""


# ---- the functions that matter


class _Bars(NamedTuple):
    """The functions of a chart, largest difference first; the sum of all others; the ends of the scale."""

    rows: list[FunctionRow]
    others: FunctionRow | None
    low: float
    high: float


def _bars(explanation: Explanation, cost: Cost) -> _Bars:
    """The functions that differ most, or that cost most if none differs."""
    rows = list(differing(explanation, cost) or by_cost(explanation, cost))[:MOST_FUNCTIONS]
    names = {(row.space, row.name) for row in rows}
    left = [row for row in explanation.rows if (row.space, row.name) not in names]
    others = total(left, name=f"[{len(left)} others]") if left else None
    deltas = [float(explanation.delta(row, cost)) for row in [*rows, *([others] if others else [])]]
    return _Bars(rows, others, min([0.0, *deltas]), max([0.0, *deltas]))


# ---- SVG


def svg(explanation: Explanation, cost: Cost = "cycles", *, title: str, machine: str = "") -> str:
    """The chart as one SVG document that needs nothing else, light or dark by the reader's setting.

    title: the two arms. machine: the machine file's name; needed with cycles, which only it gives.
    """
    if cost == "cycles" and not machine:
        raise ValueError("modelled cycles are never shown without the machine file's name")
    bars = _bars(explanation, cost)
    rows = [*bars.rows, *([bars.others] if bars.others else [])]
    height = _TOP + len(rows) * _ROW + _FOOT
    base, test = explanation.costs(total(explanation.rows), cost)
    subtitle = f"{unit_of(cost, machine)} per operation: {short(base)} -> {short(test)} ({change(base, test)})"
    foot = f"{unit_of(cost)} per operation, test against base: right more, left less"
    parts = [
        _text(_MARGIN, 28, title, WIDTH - 2 * _MARGIN, "ink title"),
        _text(_MARGIN, 50, subtitle, WIDTH - 2 * _MARGIN),
        *(_drawn(row, number, explanation, cost, bars) for number, row in enumerate(rows)),
        _text(_MARGIN, height - 14, foot, WIDTH, "soft"),
    ]
    return document(WIDTH, height, parts, title=title, description=f"{subtitle}. {foot}", style=_STYLE)


_STYLE = "text{font:13px DejaVu Sans Mono,Menlo,Consolas,monospace}.title{font-weight:bold}" + themes(
    ".paper{fill:#fff}.ink{fill:#16191d}.soft,.zero{fill:#57606a}.more{fill:#c8531c}.less{fill:#2f74c0}",
    ".paper{fill:#12161b}.ink{fill:#e3e8ee}.soft,.zero{fill:#a3adb8}.more{fill:#ff9a52}.less{fill:#6aaeff}",
)


def _drawn(row: FunctionRow, number: int, explanation: Explanation, cost: Cost, bars: _Bars) -> str:
    """A function's name, bar and difference; everything else in its tooltip."""
    base, test = explanation.costs(row, cost)
    delta, top = float(test - base), _TOP + number * _ROW
    space = WIDTH - _NAMES - _NUMBERS - 2 * _MARGIN
    zero, end = (_MARGIN + _NAMES + space * (x - bars.low) / ((bars.high - bars.low) or 1.0) for x in (0.0, delta))
    label = cells(explanation, row, cost, same=False)
    tip = f"{row.name} ({row.space})\nbase {short(base)}, test {short(test)}\n{label[3]} ({change(base, test)})"
    return (
        f"<g><title>{xml(tip)}</title>{_text(_MARGIN, top + 16, row.name, _NAMES - 10)}"
        f"{rect('more' if delta > 0 else 'less', min(zero, end), top + 4, abs(end - zero), _ROW - 8)}"
        f"{rect('zero', zero, top, 1, _ROW)}"
        f"{_text(WIDTH - _MARGIN - _NUMBERS + 10, top + 16, label[3], _NUMBERS)}</g>"
    )


def _text(left: float, baseline: int, words: str, width: float, kind: str = "ink") -> str:
    """Text cut to so many pixels."""
    return text(left, baseline, cut(words, int(width / _CHARACTER)), kind)


# ---- on a page


class Function(NamedTuple):
    """A row of the chart on a page: the cells of the explanation's table, the raw difference, and its bar."""

    name: str
    space: str
    base: str
    test: str
    calls: str
    difference: str
    share: str
    raw: float
    bar: Markup


class Functions(NamedTuple):
    """A stored explanation on a page."""

    unit: str
    rows: list[Function]
    initcalls: list[tuple[str, str, str, str, str]]
    levels: list[tuple[str, str, str, str]]
    lines: list[tuple[str, ...]]


def view(stored: StoredExplanation, case: CaseResult) -> Functions:
    """The functions of a stored explanation that differ most, and the sum of all others."""
    explanation, cost = visible_record(stored.explanation), stored.cost
    model = architecture.experiment(f"{stored.model} {stored.machine}")
    unit = f"modelled cycles/op ({model})" if cost == "cycles" else "instructions/op"
    bars = _bars(explanation, cost)
    same = case.verdict == Outcome.SAME

    def shown(row: FunctionRow, space: str) -> Function:
        name, base, test, difference, share, _, calls = cells(explanation, row, cost, same=same)
        raw, calls = float(explanation.delta(row, cost)), calls if space else ""
        bar = plots.diverging(raw, bars.low, bars.high)
        return Function(name, space, base, test, calls, difference, share, raw, bar)

    rows = [shown(row, row.space) for row in bars.rows]
    return Functions(
        unit,
        [*rows, *([shown(bars.others, "")] if bars.others else [])],
        initcall_cells(stored.initcalls),
        level_cells(stored.initcalls),
        line_cells(stored.lines[:MOST_LINES]),
    )
