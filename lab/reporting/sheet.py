"""`csv`: one row per pair of numbers, so that a spreadsheet or data frame has every raw sample with its verdict."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from lab.reporting.stored import Report, Reports
from lab.results import CaseResult
from lab.stats.verdict import Comparison

COLUMNS = (
    "result", "fingerprint", "comparable", "base_spec", "test_spec", "workload", "case", "control", "case_verdict",
    "metric", "unit", "model", "better", "primary", "seed", "base", "test", "ratio", "low", "high", "verdict",
)  # fmt: skip


def render(reports: Reports) -> str:
    """The rows of all results under one heading."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for item in reports.items:
        for case in item.result.cases:
            for comparison in case.metrics:
                writer.writerows(_rows(item, case, comparison, comparable=not reports.mark))
    return stream.getvalue()


def _rows(item: Report, case: CaseResult, comparison: Comparison, *, comparable: bool) -> Iterator[list[object]]:
    result = item.result
    low, high = comparison.interval or (None, None)
    before = [
        result.result, result.environment.fingerprint, word(comparable), cell(result.base.spec),
        cell(result.test.spec), cell(case.workload), cell(case.case), word(case.control), case.verdict,
        cell(comparison.name), cell(comparison.unit), result.environment.model, comparison.better,
        word(comparison.primary),
    ]  # fmt: skip
    after = [comparison.ratio, low, high, comparison.verdict]
    for seed, base, test in zip(item.seeds(case), comparison.base, comparison.test, strict=False):
        yield [*before, seed, base, test, *after]


def word(value: bool) -> str:
    """A truth as programs write it."""
    return "true" if value else "false"


def cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
