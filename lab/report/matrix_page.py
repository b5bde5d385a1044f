"""`html` of a matrix: its heat maps, which are tables, and every cell with its numbers and reasons."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from lab.compare.matrix_results import Cell, MatrixResult
from lab.core.text import visible
from lab.guests.costs import BASES
from lab.report import heatmap, matrix_text, plots, templates
from lab.report.inputs import StoredMatrix
from lab.stats.verdict import distance, percent

MOST_VALUES = 3000
"""Raw values that are listed; of more, the JSON and the CSV have them."""

MOST_TOOLTIPS, MOST_ROWS = 300, 600
"""Cells that say all in a tooltip too; rows of the table of cells. The heat map has every cell."""


class Field(NamedTuple):
    """A cell as it is shown on a grid and in the table."""

    cell: Cell
    state: str
    kind: str
    value: str
    change: str
    described: str

    @property
    def interval(self) -> str:
        return self.cell.comparison.interval_text if self.cell.comparison else ""


def matrix(stored: StoredMatrix) -> str:
    result = stored.result
    light, dark = heatmap.rules()
    fields = [_field(cell, result) for cell in result.cells]
    states = list(dict.fromkeys(field.state for field in fields))
    worst = next((word for word in ("regression", "failed", "unknown", "improvement") if word in states), "same")
    moved = [field.cell.ratio for field in fields if field.state == worst and field.cell.ratio]
    kinds = {field.kind for field in fields}
    return templates.fill(
        "matrix.html.j2",
        style=f"{plots.themes(light, dark)}@media print{{{light}}}",  # paper is light
        result=result,
        heading=matrix_text.heading(result),
        tone=worst,
        size=percent(max(moved, key=distance)) if moved and worst in ("regression", "improvement") else "",
        grids=matrix_text.grids(result),
        field=lambda cell: _field(cell, result),
        fields=fields,
        rows=fields[:MOST_ROWS],
        tooltips=len(fields) <= MOST_TOOLTIPS,
        listed=sum(len(cell.values) for cell in result.cells) <= MOST_VALUES,
        # Each cell names its metric if they are not all of one, and its workload if there are several.
        units=len({(cell.metric, cell.unit) for cell in result.cells}) > 1,
        several=len({cell.workload for cell in result.cells}) > 1,
        reasons=any(cell.reasons or cell.notes for cell in result.cells),
        counts=any(cell.instructions for cell in result.cells),
        states=states,
        open=matrix_text.notes(result),
        legend=[(kind, words) for kind, words in heatmap.legend(result).items() if kind in kinds],
        kernels=[*matrix_text.kernels(result), *(("note", note) for note in result.notes)],
        clocks=matrix_text.clocks(result),
        commands=[visible(command) for command in _commands(result)],
        zip=zip,
    )


def _field(cell: Cell, result: MatrixResult) -> Field:
    state = result.state(cell)
    value, change = heatmap.texts(cell, state)
    kind, described = heatmap.colour_of(cell, result.baseline), heatmap.described(cell, result.baseline)
    return Field(cell, state, kind, value, change, described)


def _commands(result: MatrixResult) -> list[str]:
    """Commands that show the result, repeat it, and look closer at the cell that changed most."""
    commands = [result.repeat, f"lab report {result.result}"]
    if (worst := result.worst) is not None:
        specs = {arm.label: arm.arm.spec for arm in result.arms}
        argv = ["lab", "ab", "--base", specs[result.baseline], "--test", specs[worst.arm], "-w", worst.name]
        argv += ["--metric", result.metric] if result.metric in BASES else []
        commands.append(shlex.join(argv))
    return commands
