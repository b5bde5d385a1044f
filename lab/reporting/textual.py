"""`text`: the terminal's table without colour; several results as columns side by side."""

from __future__ import annotations

import io
import string
from collections.abc import Iterable, Sequence

from rich.console import Console

from lab import results, table
from lab.reporting import figures
from lab.reporting.stored import Report, Reports
from lab.results import CaseResult

_WIDTH = 1000


def render(reports: Reports) -> str:
    """One result as its table, several as one table with a column each."""
    if not reports.several:
        stream = io.StringIO()
        table.show(reports.items[0].result, Console(file=stream, width=_WIDTH, no_color=True))
        return stream.getvalue()
    lines = [*_legend(reports), ""]
    lines += aligned([("case", "metric", *letters(reports)), *rows(reports)])
    if reports.mark:
        lines += ["", reports.mark]
    return "\n".join(lines) + "\n"


def letters(reports: Reports) -> list[str]:
    """A, B, C: short names of the results."""
    return [string.ascii_uppercase[i] if i < 26 else str(i + 1) for i in range(len(reports.items))]


def rows(reports: Reports) -> list[tuple[str, ...]]:
    """One row per case and primary metric that any of the results has: its change in each of them."""
    found = []
    for workload, case in dict.fromkeys((c.workload, c.case) for item in reports.items for c in item.result.cases):
        chosen = [_find(item, workload, case) for item in reports.items]
        metrics = [_metric(item, one) if one else None for item, one in zip(reports.items, chosen, strict=True)]
        for metric in dict.fromkeys(filter(None, metrics)):
            cells = [_cell(one) if one and mine == metric else "-" for one, mine in zip(chosen, metrics, strict=True)]
            found.append((f"{workload}:{case}", metric, *cells))
    return found


def aligned(cells: Sequence[Sequence[str]]) -> Iterable[str]:
    """Rows of equal columns, two blanks apart."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in cells]


def _find(item: Report, workload: str, case: str) -> CaseResult | None:
    return next((c for c in item.result.cases if (c.workload, c.case) == (workload, case)), None)


def _metric(item: Report, case: CaseResult) -> str:
    primary = results.primary_of(case)
    return f"{primary.name}, {figures.unit(primary, item.result)}"


def _cell(case: CaseResult) -> str:
    primary = results.primary_of(case)
    return f"{figures.change(primary)} {results.interval(primary)} {case.verdict}".replace("  ", " ")


def _legend(reports: Reports) -> list[str]:
    lines = []
    for letter, item in zip(letters(reports), reports.items, strict=True):
        result = item.result
        lines += [
            f"{letter}  {result.result}  {figures.sentence(result)}",
            f"   base  {figures.arm_words(result.base)}",
            f"   test  {figures.arm_words(result.test)}",
            f"   fingerprint {result.environment.fingerprint}, QEMU {result.environment.qemu}",
        ]
    return lines
