"""`svg` of a matrix: a heat map in one file, with colours for a glance, and numbers and words for everyone.

The scale runs from blue (better) to orange (worse), which people with any of the common colour deficiencies can
tell apart. Each cell has its number, its sign and a tooltip with all of it; the document has a description in words.
Light or dark follows the reader's own setting.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from lab.compare.matrix_results import Cell, MatrixResult, state
from lab.core.text import xml
from lab.report import matrix_text, svg, wording
from lab.report.inputs import StoredMatrix
from lab.stats import verdict
from lab.stats.verdict import percent


class Colour(NamedTuple):
    """The colours of a kind of cell and of the text on it (ink), on light and dark pages."""

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
"""The number of columns that fit on a page; more values are better below one another."""

_PAPER = Colour("#ffffff", "#0b0d10", "#0d1117", "#f2f2f2")

_MARGIN, _TOP, _HEAD = 16, 64, 30
_CELL_WIDTH, _CELL_HEIGHT, _GAP = 108, 46, 3
_CHARACTER = 7.6
"""Pixels of one character of 12-pixel type, generously."""


def colour_of(cell: Cell, baseline: str) -> str:
    """The key of a cell's colour: only cells that are judged, or cannot be, stand out."""
    match state(cell, baseline):
        case "failed":
            return "failed"
        case "regression":
            return f"worse-{_step(cell.ratio)}"
        case "improvement":
            return f"better-{_step(cell.ratio)}"
        case "measured" if cell.ratio is not None and _step(cell.ratio) > 1:
            # Neither side is better: orange is more, blue is less.
            return f"{'worse' if cell.ratio > 1 else 'better'}-{_step(cell.ratio)}"
    return "level"


def _step(ratio: float | None) -> int:
    """The strength of a change, 1 to 4; from or to zero it is as strong as can be."""
    if not ratio:
        return len(BOUNDS) + 1
    size = math.exp(abs(math.log(ratio)))
    return 1 + sum(size > bound for bound in BOUNDS)


def matrix(stored: StoredMatrix) -> str:
    """The whole document."""
    result = stored.result
    grid = matrix_text.lay_out(result)
    if len(grid.columns) > max(MOST_COLUMNS, len(grid.rows)):
        grid = grid.turned()
    left = _MARGIN + math.ceil(max(len(name) for name in (grid.corner, *grid.rows)) * _CHARACTER) + 12
    wide = max(_CELL_WIDTH, math.ceil(max(len(name) for name in grid.columns) * _CHARACTER) + 8)
    bottom = _TOP + _HEAD + len(grid.rows) * (_CELL_HEIGHT + _GAP)
    title, foot = matrix_text.heading(result), _foot(result)
    least = math.ceil(max(len(title) * 1.2, len(result.summary), len(foot)) * _CHARACTER)
    width = max(left + len(grid.columns) * (wide + _GAP), least, 9 * 78) + _MARGIN
    height = bottom + 84
    parts = [
        svg.text(_MARGIN, 28, title, "ink title"),
        svg.text(_MARGIN, 48, result.summary),
        svg.text(_MARGIN, _TOP + 20, grid.corner),
    ]
    for column, name in enumerate(grid.columns):
        middle = left + column * (wide + _GAP) + wide // 2
        parts.append(svg.text(middle, _TOP + 20, name, "ink middle"))
    for row, (name, cells) in enumerate(zip(grid.rows, grid.cells, strict=True)):
        top = _TOP + _HEAD + row * (_CELL_HEIGHT + _GAP)
        parts.append(svg.text(_MARGIN, top + 27, name))
        for column, cell in enumerate(cells):
            parts += _drawn(cell, result.baseline, left + column * (wide + _GAP), top, wide)
    parts += [*_legend(bottom + 14, result), svg.text(_MARGIN, height - 14, foot)]
    return svg.document(width, height, parts, title=title, description=_description(result), style=_style())


def _drawn(cell: Cell, baseline: str, left: int, top: int, wide: int) -> list[str]:
    """One cell: its colour, its number, its change and sign, its tooltip; the numbers in full as data."""
    kind, word = colour_of(cell, baseline), state(cell, baseline)
    value, change = texts(cell, word)
    facts = {
        "workload": cell.workload,
        "case": cell.case,
        "arm": cell.arm,
        "state": word,
        "mean": "" if cell.mean is None else repr(cell.mean),
        "ratio": "" if cell.ratio is None else repr(cell.ratio),
    }
    data = " ".join(f'data-{name}="{_attribute(fact)}"' for name, fact in facts.items())
    middle, words = left + wide // 2, _attribute(described(cell, baseline))
    mark = {"unknown": " edged open", "baseline": " edged"}.get(word, "")
    return [
        f'<g class="cell" role="img" aria-label="{words}" {data}>',
        f"<title>{xml(described(cell, baseline))}</title>",
        svg.rect(f"{kind}{mark}", left, top, wide, _CELL_HEIGHT, ' rx="3"'),
        svg.text(middle, top + 20, value, f"on-{kind} middle value"),
        svg.text(middle, top + 37, change, f"on-{kind} middle"),
        "</g>",
    ]


def texts(cell: Cell, state: str) -> tuple[str, str]:
    """A cell's value, and its change with its sign."""
    value, change, sign = matrix_text.parts(cell, state)
    return value, f"{change} {sign}".strip()


def described(cell: Cell, baseline: str) -> str:
    """A cell in words, with everything that its colour and sign stand for."""
    where, word = f"{cell.name}, {cell.arm}", state(cell, baseline)
    if word in ("failed", "unsupported"):
        return f"{where}: {word}: {cell.failed}"
    if word == "not measured":
        return f"{where}: {word}"
    text = f"{where}: {texts(cell, word)[0]} {cell.unit}"
    if cell.comparison is None:
        return f"{text}, {word}"
    sure = ", not beyond chance over all cells" if cell.holm is False else ""
    judged = f": {word}, {cell.comparison.reason}{sure}" if cell.verdict else ""
    count = f", {verdict.count_remark(cell.instructions)}" if cell.instructions else ""
    return f"{text}, {percent(cell.ratio)}{count} against {baseline}{judged}"


def _description(result: MatrixResult) -> str:
    """The whole map for readers who do not see it."""
    return ". ".join([result.summary, *(described(cell, result.baseline) for cell in result.cells)])


def _legend(top: int, result: MatrixResult) -> list[str]:
    parts = []
    for number, (kind, text) in enumerate(legend(result).items()):
        left = _MARGIN + (number % 5) * 140
        high = top + (number // 5) * 18
        parts += [svg.rect(kind, left, high, 14, 12, ' rx="2"'), svg.text(left + 20, high + 10, text)]
    return parts


def legend(result: MatrixResult) -> dict[str, str]:
    """Every colour, in the order of `COLOURS`, with the change it stands for."""
    judged = any(cell.better != "neither" for cell in result.cells)
    better, worse = ("better", "worse") if judged else ("less", "more")
    sizes = [f"to x{BOUNDS[0]}", f"to x{BOUNDS[1]}", f"to x{BOUNDS[2]}", f"over x{BOUNDS[2]}"]
    texts = {f"better-{step}": f"{better} {size}" for step, size in enumerate(sizes, 1)}
    texts |= {f"worse-{step}": f"{worse} {size}" for step, size in enumerate(sizes, 1)}
    texts |= {"level": "same, or open", "failed": "failed"}
    return {kind: texts[kind] for kind in COLOURS}


def _foot(result: MatrixResult) -> str:
    around = result.environment
    return (
        f"{result.mode} mode, {matrix_text.clocks(result)}, QEMU {around.qemu}, "
        f"{wording.threshold(result)}, result {result.result}"
    )


def rules(form: str) -> tuple[str, str]:
    """A rule for each kind of cell on light and on dark pages. form: of a rule, with `kind`, `colour` and `ink`."""
    light = "".join(form.format(kind=kind, colour=c.light, ink=c.light_ink) for kind, c in COLOURS.items())
    return light, "".join(form.format(kind=kind, colour=c.dark, ink=c.dark_ink) for kind, c in COLOURS.items())


def _style() -> str:
    """The colours of both themes, and the type."""
    light, dark = rules(".{kind}{{fill:{colour}}}.on-{kind}{{fill:{ink}}}")
    papers = [f".paper{{fill:{p}}}.ink{{fill:{ink}}}.edged{{stroke:{ink}}}" for p, ink in (_PAPER[:2], _PAPER[2:])]
    return _TYPE + svg.themes(light + papers[0], dark + papers[1])


_TYPE = (
    "text{font:12px system-ui,DejaVu Sans,sans-serif}.middle{text-anchor:middle}.value{font-size:13px}"
    ".ink.title{font-size:15px;font-weight:bold}.edged{stroke-width:1.5}.open{stroke-dasharray:4 3}"
)


def _attribute(text: str) -> str:
    return xml(text).replace('"', "&quot;")
