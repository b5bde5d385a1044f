"""What the formats are given of a matrix, and those formats that are a line each."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console

from lab import heatmap, matrixresults, matrixtable
from lab.core import records
from lab.core.text import visible_record
from lab.matrixresults import MatrixResult

_WIDTH = 1000


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """One matrix. `raw` is as stored; in `result` every string is visible."""

    raw: MatrixResult
    folder: Path

    @cached_property
    def result(self) -> MatrixResult:
        """The matrix with its strings made visible."""
        return visible_record(self.raw)


def open_matrix(folder: Path) -> Matrix:
    """The finished matrix in a folder."""
    return Matrix(raw=matrixresults.load_result(folder), folder=folder)


def text(one: Matrix) -> str:
    """`text`: the terminal's table, without colour."""
    stream = io.StringIO()
    matrixtable.show(one.raw, Console(file=stream, width=_WIDTH, no_color=True))
    return stream.getvalue()


def json(one: Matrix) -> str:
    """`json`: the document as `lab matrix --json` printed it."""
    return records.encode(one.raw).decode()


def svg(one: Matrix) -> str:
    """`svg`: the heat map."""
    return heatmap.svg(one.raw)
