"""A matrix as an SVG heat map that needs nothing else: colours for a glance, numbers and words for everyone.

The scale runs from blue (better) to orange (worse), which people with any of the common colour deficiencies can
tell apart; each cell has its number and its sign, a tooltip that says all, and the document a description in
words. Light or dark follows the reader's own setting.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from lab.compare import matrix
from lab.compare.matrix_results import Cell, MatrixResult
from lab.core.text import number, visible_record
from lab.report import matrix_text
from lab.report.matrix_text import SIGNS
from lab.report.svg import plain
from lab.stats.verdict import percent


class Colour(NamedTuple):
    """Of a kind of cell, light and dark: the cell's own, and that of the words on it."""

    light: str
    light_ink: str
    dark: str
    dark_ink: str


# ColorBrewer's oranges (PuOr) and blues (RdBu), both marked there as safe for the colour-blind.
COLOURS = {
    "better-4": Colour("#2166ac", "#ffffff", "#6cb6f5", "#0b0d10"),
    "better-3": Colour("#4393c3", "#0b0d10", "#2470ad", "#ffffff"),
    "better-2": Colour("#92c5de", "#0b0d10", "#1b4f7a", "#ffffff"),
    "better-1": Colour("#d1e5f0", "#0b0d10", "#14304a", "#ffffff"),
    "level": Colour("#f2f2f2", "#0b0d10", "#262b33", "#ffffff"),
    "worse-1": Colour("#fee0b6", "#0b0d10", "#452d12", "#ffffff"),
    "worse-2": Colour("#fdb863", "#0b0d10", "#6e4310", "#ffffff"),
    "worse-3": Colour("#e08214", "#0b0d10", "#9c580c", "#ffffff"),
    "worse-4": Colour("#b35806", "#ffffff", "#f0983a", "#0b0d10"),
    "failed": Colour("#5a5a5a", "#ffffff", "#8a8a8a", "#0b0d10"),
}
BOUNDS = (1.05, 1.2, 1.5)
"""The factors at which the colour goes up a step. Fixed, so that two maps can be laid side by side."""

MOST_COLUMNS = 8
"""What fits on a page; more are better below one another."""

_PAPER = Colour("#ffffff", "#0b0d10", "#0d1117", "#f2f2f2")

_MARGIN, _TOP, _HEAD = 16, 64, 30
_CELL_WIDTH, _CELL_HEIGHT, _GAP = 108, 46, 3
_CHARACTER = 7.6
"""Pixels of one character of 12-pixel type, generously."""


def colour_of(cell: Cell, baseline: str) -> str:
    """The kind of colour that a cell gets: only what is judged, or cannot be, has one that stands out."""
    state = matrix.state(cell, baseline)
    if state == "failed":
        return "failed"
    ratio = cell.comparison.ratio if cell.comparison else None
    if state in ("regression", "improvement"):
        return f"{'worse' if state == 'regression' else 'better'}-{_step(ratio)}"
    if state == "measured" and ratio is not None and _step(ratio) > 1:
        # Neither side is better: orange is more, blue is less.
        return f"{'worse' if ratio > 1 else 'better'}-{_step(ratio)}"
    return "level"


def _step(ratio: float | None) -> int:
    """How strong a change is, 1 to 4; from or to zero it is as strong as can be."""
    if not ratio:
        return len(BOUNDS) + 1
    size = math.exp(abs(math.log(ratio)))
    return 1 + sum(size > bound for bound in BOUNDS)


def svg(result: MatrixResult) -> str:
    """The whole document, with everything from elsewhere made visible."""
    result = visible_record(result)
    shown = matrix_text.lay_out(result)
    if len(shown.columns) > max(MOST_COLUMNS, len(shown.rows)):
        shown = shown.turned()
    left = _MARGIN + math.ceil(max(len(name) for name in (shown.corner, *shown.rows)) * _CHARACTER) + 12
    wide = max(_CELL_WIDTH, math.ceil(max(len(name) for name in shown.columns) * _CHARACTER) + 8)
    bottom = _TOP + _HEAD + len(shown.rows) * (_CELL_HEIGHT + _GAP)
    title, foot = f"{matrix_text.heading(result)}", _foot(result)
    least = math.ceil(max(len(title) * 1.2, len(result.summary), len(foot)) * _CHARACTER)
    width = max(left + len(shown.columns) * (wide + _GAP), least, 9 * 78) + _MARGIN
    height = bottom + 84
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" aria-labelledby="title description" font-family="system-ui, DejaVu Sans, sans-serif" '
        'font-size="12">',
        f'<title id="title">{plain(title)}</title>',
        f'<desc id="description">{plain(_in_words(result))}</desc>',
        _style(),
        f'<rect class="paper" width="{width}" height="{height}"/>',
        f'<text class="ink" x="{_MARGIN}" y="28" font-size="15" font-weight="bold">{plain(title)}</text>',
        f'<text class="ink" x="{_MARGIN}" y="48">{plain(result.summary)}</text>',
        f'<text class="ink" x="{_MARGIN}" y="{_TOP + 20}">{plain(shown.corner)}</text>',
    ]
    for column, name in enumerate(shown.columns):
        middle = left + column * (wide + _GAP) + wide // 2
        parts.append(f'<text class="ink" x="{middle}" y="{_TOP + 20}" text-anchor="middle">{plain(name)}</text>')
    for row, (name, cells) in enumerate(zip(shown.rows, shown.cells, strict=True)):
        top = _TOP + _HEAD + row * (_CELL_HEIGHT + _GAP)
        parts.append(f'<text class="ink" x="{_MARGIN}" y="{top + 27}">{plain(name)}</text>')
        for column, cell in enumerate(cells):
            parts += _drawn(cell, result.baseline, left + column * (wide + _GAP), top, wide)
    return "\n".join([*parts, *_legend(bottom + 14, result), _text(_MARGIN, height - 14, foot), "</svg>"]) + "\n"


def _drawn(cell: Cell, baseline: str, left: int, top: int, wide: int) -> list[str]:
    """One cell: its colour, its number, its change and sign, its tooltip; the numbers in full as data."""
    kind, state = colour_of(cell, baseline), matrix.state(cell, baseline)
    ratio = cell.comparison.ratio if cell.comparison else None
    facts = {
        "workload": cell.workload,
        "case": cell.case,
        "arm": cell.arm,
        "state": state,
        "mean": "" if cell.mean is None else repr(cell.mean),
        "ratio": "" if ratio is None else repr(ratio),
    }
    data = " ".join(f'data-{name}="{_attribute(value)}"' for name, value in facts.items())
    words = f'class="on-{kind}" x="{left + wide // 2}" text-anchor="middle"'
    edge = ' stroke-dasharray="4 3"' if state == "unknown" else ""
    mark = " edged" if state in ("unknown", "baseline") else ""
    return [
        f'<g class="cell" role="img" aria-label="{_attribute(described(cell, baseline))}" {data}>',
        f"<title>{plain(described(cell, baseline))}</title>",
        f'<rect class="{kind}{mark}" x="{left}" y="{top}" width="{wide}" height="{_CELL_HEIGHT}" rx="3"{edge}/>',
        f'<text {words} y="{top + 20}" font-size="13">{plain(value_words(cell, state))}</text>',
        f'<text {words} y="{top + 37}">{plain(change_words(cell, state))}</text>',
        "</g>",
    ]


def value_words(cell: Cell, state: str) -> str:
    """A cell's number, or what it has instead."""
    if state in ("failed", "not measured"):
        return state
    return number(cell.mean) if cell.mean is not None else "n/a"


def change_words(cell: Cell, state: str) -> str:
    """A cell's change with its sign; the baseline says that it is one."""
    if state == "baseline":
        return state
    change = percent(cell.comparison.ratio) if cell.comparison else ""
    return f"{change} {SIGNS.get(state, '') if cell.holm is not False else '?'}".strip()


def described(cell: Cell, baseline: str) -> str:
    """A cell in words, with everything that its colour and sign stand for."""
    where = f"{cell.workload}:{cell.case}, {cell.arm}"
    state = matrix.state(cell, baseline)
    if state == "failed":
        return f"{where}: failed: {cell.failed}"
    if state == "not measured":
        return f"{where}: {state}"
    words = f"{where}: {value_words(cell, state)} {cell.unit}"
    if cell.comparison is None:
        return f"{words}, {state}"
    sure = ", not beyond chance over all cells" if cell.holm is False else ""
    judged = f": {state}, {cell.comparison.reason}{sure}" if cell.verdict else ""
    return f"{words}, {percent(cell.comparison.ratio)} against {baseline}{judged}"


def _in_words(result: MatrixResult) -> str:
    """The whole map for those who do not see it."""
    return ". ".join([result.summary, *(described(cell, result.baseline) for cell in result.cells)])


def _legend(top: int, result: MatrixResult) -> list[str]:
    words, parts = legend(result), []
    for place, kind in enumerate(COLOURS):
        left = _MARGIN + (place % 5) * 140
        high = top + (place // 5) * 18
        parts.append(f'<rect class="{kind}" x="{left}" y="{high}" width="14" height="12" rx="2"/>')
        parts.append(_text(left + 20, high + 10, words[kind]))
    return parts


def legend(result: MatrixResult) -> dict[str, str]:
    """Every colour with the change it stands for."""
    judged = any(cell.better != "neither" for cell in result.cells)
    better, worse = ("better", "worse") if judged else ("less", "more")
    sizes = [f"to x{BOUNDS[0]}", f"to x{BOUNDS[1]}", f"to x{BOUNDS[2]}", f"over x{BOUNDS[2]}"]
    words = {f"better-{step}": f"{better} {size}" for step, size in enumerate(sizes, 1)}
    words |= {f"worse-{step}": f"{worse} {size}" for step, size in enumerate(sizes, 1)}
    return words | {"level": "same, or open", "failed": "failed"}


def _foot(result: MatrixResult) -> str:
    around = result.environment
    return (
        f"{result.mode} mode, {matrix_text.clocks(result)}, QEMU {around.qemu}, "
        f"threshold {100 * result.threshold:g} %, result {result.result}"
    )


def _style() -> str:
    """The colours of both schemes; the dark one where the reader asks for it."""
    light, dark = [], []
    for name, colour in {**COLOURS, "paper": _PAPER}.items():
        ink = "ink" if name == "paper" else f"on-{name}"
        light.append(f".{name}{{fill:{colour.light}}}.{ink}{{fill:{colour.light_ink}}}")
        dark.append(f".{name}{{fill:{colour.dark}}}.{ink}{{fill:{colour.dark_ink}}}")
    light.append(f".edged{{stroke:{_PAPER.light_ink};stroke-width:1.5}}")
    dark.append(f".edged{{stroke:{_PAPER.dark_ink}}}")
    return f"<style>{''.join(light)}@media (prefers-color-scheme:dark){{{''.join(dark)}}}</style>"


def _text(left: int, baseline: int, words: str) -> str:
    return f'<text class="ink" x="{left}" y="{baseline}">{plain(words)}</text>'


def _attribute(words: str) -> str:
    return plain(words).replace('"', "&quot;")
