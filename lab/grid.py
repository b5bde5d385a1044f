"""How a matrix lies on paper: what its rows and columns are, for the table and the heat map alike."""

from __future__ import annotations

from typing import NamedTuple

from lab import axes
from lab.guests import costs
from lab.matrixresults import Cell, MatrixResult
from lab.results import clock


class Grid(NamedTuple):
    """Cells in rows and columns. corner: what the rows and the columns are, as `rows \\ columns`."""

    corner: str
    rows: list[str]
    columns: list[str]
    cells: list[list[Cell]]

    def turned(self) -> Grid:
        """Rows as columns and columns as rows."""
        corner = " \\ ".join(reversed(self.corner.split(" \\ ")))
        return Grid(corner, self.columns, self.rows, [list(column) for column in zip(*self.cells, strict=True)])


def lay_out(result: MatrixResult) -> Grid:
    """One case and two axes that vary: a row for each value of the first. Else cases are rows, arms columns."""
    cells = {(cell.workload, cell.case, cell.arm): cell for cell in result.cells}
    cases = list(dict.fromkeys((cell.workload, cell.case) for cell in result.cells))
    labels = [arm.label for arm in result.arms]
    varying = axes.varying(result.axes)
    if len(cases) == 1 and len(varying) == 2:
        return _of_two_axes(result, varying[0], varying[1], cells)
    several = len({workload for workload, _ in cases}) > 1
    controls = {(cell.workload, cell.case) for cell in result.cells if cell.control}
    rows = [
        (f"{workload}:{case}" if several else case) + (" (control)" if (workload, case) in controls else "")
        for workload, case in cases
    ]
    return Grid("case \\ arm", rows, labels, [[cells[*case, label] for label in labels] for case in cases])


def _of_two_axes(result: MatrixResult, first: int, second: int, cells: dict[tuple[str, str, str], Cell]) -> Grid:
    down, across = result.axes[first], result.axes[second]
    arms = {(arm.at[first], arm.at[second]): arm.label for arm in result.arms}
    only = result.cells[0]
    return Grid(
        f"{down.name} \\ {across.name}",
        list(down.values),
        list(across.values),
        [[cells[only.workload, only.case, arms[row, column]] for column in across.values] for row in down.values],
    )


def clocks(result: MatrixResult) -> str:
    """What the numbers are counted in; whatever is modelled says so, and on which machine."""
    modelled = {metric.name for metric in costs.METRICS}
    models = {
        result.environment.guests[cell.workload].model if cell.metric in modelled else "none" for cell in result.cells
    }
    return " and ".join(clock(model) for model in sorted(models))


def heading(result: MatrixResult) -> str:
    """What the numbers are: the case where there is one, metric, unit, and which side is better."""
    what = {(cell.metric, cell.unit, cell.better) for cell in result.cells}
    cases = {f"{cell.workload}:{cell.case}" for cell in result.cells}
    which = {cell.workload for cell in result.cells}
    where = cases.pop() if len(cases) == 1 else ", ".join(sorted(which))
    return f"{where}: " + "; ".join(
        f"{metric}, {unit}" + (f" ({better} is better)" if better != "neither" else "")
        for metric, unit, better in sorted(what)
    )
