"""An explanation as pictures: folded text for flame graph viewers, and a differential flame graph as SVG.

The profile has no call chains, so the graph has three rows: everything, kernel and user, functions. A box is
as wide as the larger of the function's two costs: with the test's alone, what the test kernel no longer does
would be invisible. So a row can be wider than either arm's total; the numbers are in the tooltips.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from lab.compare.explain import (
    Arm,
    Cost,
    Explanation,
    FunctionRow,
    Space,
    StoredExplanation,
    by_cost,
    differing,
    total,
)
from lab.compare.results import AbResult, CaseResult
from lab.core.text import visible_record, xml
from lab.report.explain_text import change, initcall_cells, short, signed, unit_of

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

_MOST_ROWS = 15

_MORE, _LESS = (214, 39, 40), (49, 112, 196)


# ---- folded text


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


# ---- SVG


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
    unit = unit_of(cost, machine)
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
    return max(explanation.costs(row, cost))


def _drawn(box: _Box, explanation: Explanation, cost: Cost, unit: str, strongest: Fraction) -> str:
    top = _TOP + box.level * _ROW
    colour = _colour(explanation.delta(box.row, cost), strongest) if box.level == 2 else "#eeeeee"
    label = _text(float(box.left) + 4, top + 21, box.label, _inside(float(box.width) - 8, _FONT))
    return (
        f"<g><title>{xml(_tooltip(box, explanation, cost, unit))}</title>"
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
    base, test = explanation.costs(box.row, cost)
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
    base, test = explanation.costs(total(explanation.rows), cost)
    return f"{unit} per operation: {short(base)} -> {short(test)} ({change(base, test)})"


def _legend(top: int, cost: Cost) -> list[str]:
    parts, left = [], float(_MARGIN)
    for fill, text in (
        (_shade(_LESS, 1), "less than base"),
        ("#ffffff", "same"),
        (_shade(_MORE, 1), "more than base"),
    ):
        parts.append(f'<rect x="{left:g}" y="{top - 12}" width="16" height="16" fill="{fill}" stroke="#999999"/>')
        parts.append(_text(left + 22, top + 1, text, len(text)))
        left += 22 + (len(text) + 3) * _CHARACTER
    width = f"Width: {unit_of(cost)} per operation, of base or test, whichever is more."
    note = f"{width} Colour: change, relative to the largest."
    return [*parts, _text(_MARGIN, top + 26, note, len(note), 'fill="#555555"')]


def _inside(width: float, font: int) -> int:
    """The number of characters that fit into so many pixels."""
    return max(int(width / (_CHARACTER * font / _FONT)), 0)


def _text(left: float, baseline: int, text: str, characters: int, style: str = "") -> str:
    """Text cut to so many characters; nothing where not even three fit."""
    if len(text) > characters:
        text = text[: characters - 1] + "…" if characters >= 3 else ""
    extra = f" {style}" if style else ""
    return f'<text x="{left:.2f}" y="{baseline}"{extra}>{xml(text)}</text>' if text else ""


# ---- on a page


def view(stored: StoredExplanation, case: CaseResult, result: AbResult) -> dict[str, Any]:
    """The graph of a stored explanation with its text alternative, and the functions that differ most."""
    explanation, cost = visible_record(stored.explanation), stored.cost
    title = f"{case.name}, {result.base.spec} against {result.test.spec}"
    machine = stored.machine if cost == "cycles" else ""
    unit = f"modelled cycles/op ({stored.model} {machine})" if cost == "cycles" else "instructions/op"
    label = f"Differential flame graph in {unit}; the table below has the same numbers"
    rows = []
    for row in (differing(explanation, cost) or by_cost(explanation, cost))[:_MOST_ROWS]:
        base, test = explanation.costs(row, cost)
        rows.append((row.name, row.space, short(base), short(test), signed(test - base), float(test - base)))
    head = f'<svg role="img" aria-label="{escape(label)}" '
    graph = svg(explanation, cost, title=title, machine=machine).replace("<svg ", head, 1)
    return {"svg": Markup(graph), "unit": unit, "rows": rows, "initcalls": initcall_cells(stored.initcalls)}  # noqa: S704  (it escapes)
