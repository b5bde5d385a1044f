"""`html` of a matrix: its heat maps, which are tables, and every cell with its numbers and reasons."""

from __future__ import annotations

import shlex
from functools import cached_property
from typing import NamedTuple

from lab.compare.matrix_results import Cell, MatrixResult
from lab.core.text import visible
from lab.guests.costs import BASES
from lab.report import heatmap, matrix_text, page, wording
from lab.report.heatmap import COLOURS
from lab.report.inputs import StoredMatrix
from lab.report.matrix_text import Grid
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
        """The interval of its change."""
        return self.cell.comparison.interval_text if self.cell.comparison else ""


class MatrixView:
    """The values in the template."""

    def __init__(self, stored: StoredMatrix) -> None:
        self.result: MatrixResult = stored.result

    @property
    def heading(self) -> str:
        """The heading of the numbers."""
        return matrix_text.heading(self.result)

    @property
    def tone(self) -> str:
        """The state by which the page colours the summary: the worst there is."""
        return next(
            (word for word in ("regression", "failed", "unknown", "improvement") if word in self.states), "same"
        )

    @property
    def size(self) -> str:
        """The change of the cell that moved most in the direction of the tone."""
        cells = [cell for cell in self.result.cells if self.result.state(cell) == self.tone and cell.ratio]
        return percent(max(cells, key=lambda cell: distance(cell.ratio)).ratio) if cells else ""

    @cached_property
    def grids(self) -> list[Grid]:
        """The heat maps."""
        return matrix_text.grids(self.result)

    def field(self, cell: Cell) -> Field:
        """A cell as it is shown."""
        state = self.result.state(cell)
        value, change = heatmap.texts(cell, state)
        return Field(
            cell=cell,
            state=state,
            kind=heatmap.colour_of(cell, self.result.baseline),
            value=value,
            change=change,
            described=heatmap.described(cell, self.result.baseline),
        )

    @cached_property
    def fields(self) -> list[Field]:
        """All cells."""
        return [self.field(cell) for cell in self.result.cells]

    @property
    def units(self) -> bool:
        """True if the cells are not all of one metric, so that each has to name its own."""
        return len({(cell.metric, cell.unit) for cell in self.result.cells}) > 1

    @property
    def reasons(self) -> bool:
        """True if any cell has something to explain."""
        return any(cell.reasons or cell.notes for cell in self.result.cells)

    @property
    def counts(self) -> bool:
        """True if instructions stand beside the cells' modelled cycles."""
        return any(cell.instructions for cell in self.result.cells)

    def name(self, cell: Cell) -> str:
        """A case as far as it is needed: without the workload where there is only one."""
        several = len({each.workload for each in self.result.cells}) > 1
        return cell.name if several else cell.case

    @property
    def states(self) -> list[str]:
        """The states that cells can be filtered by."""
        return list(dict.fromkeys(field.state for field in self.fields))

    @property
    def tooltips(self) -> bool:
        """True if there is room for them."""
        return len(self.result.cells) <= MOST_TOOLTIPS

    @property
    def rows(self) -> list[Field]:
        """The table of cells, as far as there is room."""
        return self.fields[:MOST_ROWS]

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The colours of the map and what they stand for."""
        kinds = {field.kind for field in self.fields}
        return [(kind, words) for kind, words in heatmap.legend(self.result).items() if kind in kinds]

    @property
    def kernels(self) -> list[tuple[str, str]]:
        """Each kernel, and what there is to note about it."""
        return [*matrix_text.kernels(self.result), *(("note", note) for note in self.result.notes)]

    @property
    def axes(self) -> list[tuple[str, str]]:
        """The axes that vary."""
        return [(axis.name, ", ".join(axis.values)) for axis in self.result.axes]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The environment of all arms."""
        result, around = self.result, self.result.environment
        return [
            ("fingerprint", around.fingerprint),
            ("mode", result.mode),
            ("counted in", matrix_text.clocks(result)),
            ("threshold", f"±{100 * result.threshold:g} %"),
            *wording.guest_facts(around),
            ("started", f"{result.started}, {result.seconds:g} s"),
            ("lab", around.lab),
            ("result", result.result),
        ]

    @property
    def listed(self) -> bool:
        """True if there is room for every raw value."""
        return sum(len(cell.values) for cell in self.result.cells) <= MOST_VALUES

    @property
    def commands(self) -> list[str]:
        """Commands that show the result, repeat it, and look closer at the cell that changed most."""
        result = self.result
        commands = [result.repeat, f"lab report {result.result}"]
        if (worst := result.worst) is not None:
            specs = {arm.label: arm.arm.spec for arm in result.arms}
            argv = ["lab", "ab", "--base", specs[result.baseline], "--test", specs[worst.arm], "-w", worst.name]
            argv += ["--metric", result.metric] if result.metric in BASES else []
            commands.append(shlex.join(argv))
        return [visible(command) for command in commands]


def matrix(stored: StoredMatrix) -> str:
    """The whole page."""
    view = MatrixView(stored)
    return page.fill("matrix.html.j2", more_style=_style(), view=view, result=view.result, zip=zip)


def _style() -> str:
    """The heat map's colours as backgrounds; paper is light."""
    light = "".join(f".heat-{n}{{background:{c.light};color:{c.light_ink}}}" for n, c in COLOURS.items())
    dark = "".join(f".heat-{n}{{background:{c.dark};color:{c.dark_ink}}}" for n, c in COLOURS.items())
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}@media print{{{light}}}"
