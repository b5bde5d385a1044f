"""`csv`: one row per raw sample, with the verdict of its case or cell, for a spreadsheet or data frame."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from lab.compare.matrix_results import Cell, MatrixResult
from lab.compare.results import CaseResult
from lab.report.inputs import Comparisons, StoredComparison, StoredMatrix
from lab.stats.verdict import Comparison

COLUMNS = (
    "result", "fingerprint", "comparable", "base_spec", "test_spec", "workload", "case", "control", "case_verdict",
    "metric", "unit", "model", "better", "primary", "seed", "base", "test", "ratio", "low", "high", "verdict",
)  # fmt: skip


def comparison(comparisons: Comparisons) -> str:
    """One row per pair of numbers, of all results under one heading; a case that failed has one row too."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for item in comparisons.items:
        for case in item.result.cases:
            for comparison in [case.primary] if case.failed else case.metrics:
                writer.writerows(_rows(item, case, comparison, comparable=not comparisons.mark))
    return stream.getvalue()


def _rows(
    item: StoredComparison, case: CaseResult, comparison: Comparison, *, comparable: bool
) -> Iterator[list[object]]:
    result = item.result
    low, high = comparison.interval or (None, None)
    before = [
        result.result, result.environment.fingerprint, word(comparable), safe(result.base.spec),
        safe(result.test.spec), safe(case.workload), safe(case.case), word(case.control), case.word,
        safe(comparison.name), safe(comparison.unit), result.environment.model, comparison.better,
        word(comparison.primary),
    ]  # fmt: skip
    after = [comparison.ratio, low, high, comparison.verdict]
    pairs = (
        [(None, None, None)] if case.failed else zip(item.seeds(case), comparison.base, comparison.test, strict=False)
    )
    for seed, base, test in pairs:
        yield [*before, seed, base, test, *after]


def word(value: bool) -> str:
    """A truth as programs write it."""
    return "true" if value else "false"


def safe(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


_BEFORE = ("result", "fingerprint", "workload", "case", "control", "arm")
_AFTER = (
    "baseline", "metric", "unit", "model", "better", "seed", "value", "mean", "ratio", "low", "high", "verdict",
    "state", "failed", "instructions_ratio", "instructions_low", "instructions_high",
)  # fmt: skip


def matrix(stored: StoredMatrix) -> str:
    """One row per cell and seed, each axis as a column; a cell without numbers has one row too."""
    result = stored.result
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*_BEFORE, *(safe(f"at_{axis.name}") for axis in result.axes), *_AFTER])
    for cell in result.cells:
        writer.writerows(_matrix_rows(result, cell))
    return stream.getvalue()


def _matrix_rows(result: MatrixResult, cell: Cell) -> Iterator[list[object]]:
    at = next(arm.at for arm in result.arms if arm.label == cell.arm)
    low, high = (cell.comparison.interval if cell.comparison else None) or (None, None)
    guest = result.environment.guests.get(cell.workload)
    before = [
        safe(result.result), result.environment.fingerprint, safe(cell.workload), safe(cell.case), word(cell.control),
        safe(cell.arm), *map(safe, at), safe(result.baseline), safe(cell.metric), safe(cell.unit),
        guest.model if guest else "", cell.better,
    ]  # fmt: skip
    count = cell.instructions
    count_low, count_high = (count.interval if count else None) or (None, None)
    after = [
        cell.mean, cell.ratio, low, high, cell.verdict, result.state(cell), safe(cell.failed or ""),
        count.ratio if count else None, count_low, count_high,
    ]  # fmt: skip
    for seed, value in zip(cell.seeds, cell.values, strict=False) if cell.seeds else [(None, None)]:
        yield [*before, seed, value, *after]
