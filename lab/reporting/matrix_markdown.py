"""`md` of a matrix: a table for each grid, then every reason why a cell has no number."""

from __future__ import annotations

from collections.abc import Iterator

from lab import grid, heatmap, matrix
from lab.matrixresults import Cell, MatrixResult
from lab.reporting import matrix_words
from lab.reporting.markdown import code, table
from lab.reporting.matrices import Matrix


def render(one: Matrix) -> str:
    """Summary, kernels, grids, reasons."""
    result = one.result
    lines = ["### Kernel matrix", "", code(grid.heading(result)), "", code(result.summary), ""]
    lines += [f"- {code(name)}: {code(words)}" for name, words in matrix_words.kernels(result)]
    lines.append("")
    for titled in matrix_words.grids(result):
        lines += [f"**{code(titled.title)}**", ""] if titled.title else []
        shown = titled.grid
        rows = [
            (code(name), *(_cell(cell, result) for cell in cells))
            for name, cells in zip(shown.rows, shown.cells, strict=True)
        ]
        heading = (code(shown.corner), *map(code, shown.columns))
        lines += [*table([heading, *rows], right=range(1, len(heading))), ""]
    lines += [*_reasons(result), *_around(result)]
    return "\n".join(lines).rstrip() + "\n"


def _cell(cell: Cell, result: MatrixResult) -> str:
    state = matrix.state(cell, result.baseline)
    words = f"{heatmap.value_words(cell, state)} {heatmap.change_words(cell, state)}".strip()
    return f"**{words}**" if state in ("regression", "improvement") and cell.holm is not False else words


def _reasons(result: MatrixResult) -> Iterator[str]:
    for cell in result.cells:
        if why := matrix_words.why(cell):
            yield f"- {code(f'{cell.workload}:{cell.case}')} {code(cell.arm)}: {code(why)}"
    yield ""


def _around(result: MatrixResult) -> Iterator[str]:
    around = result.environment
    yield f"{code(grid.clocks(result))}, QEMU {code(around.qemu)}, {code(around.machine)}, fingerprint "
    yield f"{code(around.fingerprint)}, threshold {100 * result.threshold:g} %. Repeat with {code(result.reproduce)}."
