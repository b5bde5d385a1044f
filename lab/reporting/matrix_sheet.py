"""`csv` of a matrix: one row per cell and seed, with the cell's verdict; a cell without numbers has one row too."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from lab import matrix
from lab.matrixresults import Cell, MatrixResult
from lab.reporting.matrices import Matrix
from lab.reporting.sheet import cell as safe
from lab.reporting.sheet import word

_BEFORE = ("result", "fingerprint", "workload", "case", "control", "arm")
_AFTER = (
    "baseline", "metric", "unit", "model", "better", "seed", "value", "mean", "ratio", "low", "high", "verdict",
    "state", "failed",
)  # fmt: skip


def render(one: Matrix) -> str:
    """The rows under their heading; each axis is a column."""
    result = one.result
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*_BEFORE, *(safe(f"at_{axis.name}") for axis in result.axes), *_AFTER])
    for cell in result.cells:
        writer.writerows(_rows(result, cell))
    return stream.getvalue()


def _rows(result: MatrixResult, cell: Cell) -> Iterator[list[object]]:
    at = next(arm.at for arm in result.arms if arm.label == cell.arm)
    low, high = (cell.comparison.interval if cell.comparison else None) or (None, None)
    guest = result.environment.guests.get(cell.workload)
    before = [
        safe(result.result), result.environment.fingerprint, safe(cell.workload), safe(cell.case), word(cell.control),
        safe(cell.arm), *map(safe, at), safe(result.baseline), safe(cell.metric), safe(cell.unit),
        guest.model if guest else "", cell.better,
    ]  # fmt: skip
    after = [
        cell.mean, cell.comparison.ratio if cell.comparison else None, low, high, cell.verdict,
        matrix.state(cell, result.baseline), safe(cell.failed or ""),
    ]  # fmt: skip
    for seed, value in zip(cell.seeds, cell.values, strict=False) if cell.seeds else [(None, None)]:
        yield [*before, seed, value, *after]
