"""The words of a matrix that page and Markdown share: its grids, its kernels, and why a cell has no number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from lab import grid
from lab.grid import Grid
from lab.matrixresults import Cell, MatrixResult
from lab.matrixtable import kernel_words, reasons_of


class Titled(NamedTuple):
    """A grid and what it is of; empty where it is of everything."""

    title: str
    grid: Grid


def grids(result: MatrixResult) -> list[Titled]:
    """Where two axes vary, a grid of them for each case; else one of cases and arms."""
    cases = list(dict.fromkeys((cell.workload, cell.case) for cell in result.cells))
    single = [
        Titled(f"{workload}:{case}", grid.lay_out(_only(result, workload, case)))
        for workload, case in cases
    ]  # fmt: skip
    of_axes = all(one.grid.corner != "case \\ arm" for one in single)
    return single if of_axes else [Titled("", grid.lay_out(result))]


def _only(result: MatrixResult, workload: str, case: str) -> MatrixResult:
    return replace(result, cells=[cell for cell in result.cells if (cell.workload, cell.case) == (workload, case)])


def why(cell: Cell) -> str:
    """Why a cell has no number, or no plain verdict."""
    return "; ".join(reasons_of(cell))


def kernels(result: MatrixResult) -> Sequence[tuple[str, str]]:
    """What each kernel is."""
    return [(name, kernel_words(result, name, spec)) for name, spec in
            zip(result.axes[0].values, result.kernels, strict=True)]  # fmt: skip
