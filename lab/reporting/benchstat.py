"""`benchstat`: Go's benchmark format, one line per seed and arm: `benchstat -col arm FILE` does its own statistics."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab.reporting import figures
from lab.reporting.stored import Report, Reports
from lab.results import CaseResult
from lab.stats.verdict import Comparison


def render(reports: Reports) -> str:
    """Configuration lines, units with their better side, then the numbers of both arms."""
    lines: list[str] = []
    for item in reports.items:
        lines += _settings(item, reports)
        lines += _units(item)
        for arm in ("base", "test"):
            lines += ["", f"arm: {arm}"]
            for case in item.result.cases:
                lines += _case(item, case, arm)
        lines.append("")
    return "\n".join(lines)


def _settings(item: Report, reports: Reports) -> list[str]:
    around = item.result.environment
    found = [
        f"result: {item.result.result}",
        f"base-kernel: {figures.arm_words(item.result.base)}",
        f"test-kernel: {figures.arm_words(item.result.test)}",
        f"mode: {item.result.mode}",
        f"model: {around.model}",
        f"fingerprint: {around.fingerprint}",
    ]
    return [*found, f"note: {reports.mark}"] if reports.mark else found


def _units(item: Report) -> Iterator[str]:
    seen = {}
    for case in item.result.cases:
        for comparison in case.metrics:
            seen[_unit(comparison)] = comparison.better
    for unit, better in seen.items():
        if better != "neither":
            yield f"Unit {unit} better={better}"


def _case(item: Report, case: CaseResult, arm: str) -> Iterator[str]:
    guest = item.result.environment.guests.get(case.workload)
    # What a Go benchmark has behind the last dash is how many CPUs it used.
    name = f"BenchmarkLab/workload={_word(case.workload)}/case={_word(case.case)}-{guest.vcpus if guest else 1}"
    for seed, _ in enumerate(item.seeds(case)):
        values = [
            f"{value!r} {_unit(c)}"
            for c in case.metrics
            for value in [(c.base if arm == "base" else c.test)[seed]]
            if value is not None
        ]
        if values:
            yield f"{name} 1 {' '.join(values)}"


def _unit(comparison: Comparison) -> str:
    """Metric and unit in one word: the format knows metrics by their units alone."""
    return f"{_word(comparison.name)}-{_word(comparison.unit)}"


def _word(text: str) -> str:
    return re.sub(r"\s+", "-", text)
