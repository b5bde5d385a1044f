"""`bmf`: Bencher's metric format. Means with their smallest and largest value, and the change with its interval."""

from __future__ import annotations

from typing import Any

from lab.core import records
from lab.reporting import figures
from lab.reporting.stored import Report, Reports
from lab.results import primary_of
from lab.stats.verdict import Comparison


def render(reports: Reports) -> str:
    """Benchmarks `workload:case base`, `... test` and `... change`; the result's id in front if there are several."""
    document: dict[str, Any] = {}
    for item in reports.items:
        # The format has no place for a note, so what does not compare is told apart by its name.
        front = f"{item.result.result} " if reports.several else ""
        front += f"[environments differ: {item.result.environment.fingerprint}] " if reports.mark else ""
        document |= {front + name: measures for name, measures in _benchmarks(item).items() if measures}
    return records.encode(document).decode()


def _benchmarks(item: Report) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for case in item.result.cases:
        name = figures.case_name(case)
        for arm in ("base", "test"):
            found[f"{name} {arm}"] = {
                _measure(c, item): _spread(values)
                for c in case.metrics
                if (values := figures.numbers(c.base if arm == "base" else c.test))
            }
        primary = primary_of(case)
        if primary.ratio is not None:
            found[f"{name} change"] = {f"ratio of {_measure(primary, item)}": _ratio(primary)}
    return found


def _measure(comparison: Comparison, item: Report) -> str:
    return f"{comparison.name}, {figures.unit(comparison, item.result)}"


def _spread(values: list[float]) -> dict[str, float]:
    middle = figures.mean(values)
    assert middle is not None  # noqa: S101  (never empty)
    return {"value": middle, "lower_value": min(values), "upper_value": max(values)}


def _ratio(comparison: Comparison) -> dict[str, float | None]:
    found = {"value": comparison.ratio}
    if comparison.interval:
        found |= {"lower_value": comparison.interval[0], "upper_value": comparison.interval[1]}
    return found
