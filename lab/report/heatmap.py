"""The heat map of a matrix: the colour of each cell, and the cell in words for people who do not see colours.

The scale runs from blue (better) to orange (worse), which people with any of the common colour deficiencies can
tell apart.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from lab.compare.matrix_results import Cell, MatrixResult, state
from lab.report import matrix_text
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


def legend(result: MatrixResult) -> dict[str, str]:
    """Every colour, in the order of `COLOURS`, with the change it stands for."""
    judged = any(cell.better != "neither" for cell in result.cells)
    better, worse = ("better", "worse") if judged else ("less", "more")
    sizes = [f"to x{BOUNDS[0]}", f"to x{BOUNDS[1]}", f"to x{BOUNDS[2]}", f"over x{BOUNDS[2]}"]
    texts = {f"better-{step}": f"{better} {size}" for step, size in enumerate(sizes, 1)}
    texts |= {f"worse-{step}": f"{worse} {size}" for step, size in enumerate(sizes, 1)}
    texts |= {"level": "same, or open", "failed": "failed"}
    return {kind: texts[kind] for kind in COLOURS}


def rules() -> tuple[str, str]:
    """The colours as rules for the backgrounds of cells, on light and on dark pages."""
    light = "".join(f".heat-{kind}{{background:{c.light};color:{c.light_ink}}}" for kind, c in COLOURS.items())
    return light, "".join(f".heat-{kind}{{background:{c.dark};color:{c.dark_ink}}}" for kind, c in COLOURS.items())
