"""Formats of other benchmarking tools: `openmetrics` (Prometheus), `bmf` (Bencher) and `benchstat` (Go)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lab.compare.results import AbResult, CaseResult, mean, numbers
from lab.core import records
from lab.report import wording
from lab.report.inputs import Comparisons, StoredComparison
from lab.stats.verdict import Comparison, Outcome

Labels = Mapping[str, str]

_RATIOS: tuple[tuple[str, str, Callable[[Comparison], float | None]], ...] = (
    ("lab_ratio", "Test over base.", lambda c: c.ratio),
    ("lab_ratio_low", "Lower end of the interval of the ratio.", lambda c: c.interval[0] if c.interval else None),
    ("lab_ratio_high", "Upper end of the interval of the ratio.", lambda c: c.interval[1] if c.interval else None),
)


# ---- openmetrics: gauges, e.g. for node_exporter's textfile collector


def openmetrics(comparisons: Comparisons) -> str:
    """All families, each with the samples of all results."""
    lines: list[str] = []
    lines += family("lab_result", "info", "What was compared, and around what.")
    for item in comparisons.items:
        lines.append(sample("lab_result_info", _about(item, comparisons), 1))
    lines += family("lab_result_verdict", "stateset", "The verdict over all cases.")
    for item in comparisons.items:
        lines += _states("lab_result_verdict", {"result": item.result.result}, item.result.verdict)
    lines += family("lab_case_verdict", "stateset", "The verdict of each case.")
    for item in comparisons.items:
        for case in item.result.cases:
            lines += _states("lab_case_verdict", _case(item, case), case.verdict)
    lines += family("lab_case_failed", "gauge", "1 for a case that failed and has no numbers.")
    for item in comparisons.items:
        lines += [
            sample("lab_case_failed", _case(item, case), int(case.word == "failed")) for case in item.result.cases
        ]
    lines += family("lab_mean", "gauge", "Mean of a metric over all seeds, of one arm.")
    for item in comparisons.items:
        lines += _means(item)
    for name, text, of in _RATIOS:
        lines += family(name, "gauge", text)
        for item in comparisons.items:
            for case, comparison in _comparisons(item):
                if (value := of(comparison)) is not None:
                    lines.append(sample(name, _metric(item, case, comparison), value))
    return "\n".join([*lines, "# EOF"]) + "\n"


def family(name: str, kind: str, text: str) -> list[str]:
    """The lines before the samples of a family."""
    return [f"# TYPE {name} {kind}", f"# HELP {name} {text}"]


def _about(item: StoredComparison, comparisons: Comparisons) -> Labels:
    result = item.result
    return {
        "result": result.result,
        "base": result.base.spec,
        "test": result.test.spec,
        "base_commit": result.base.commit or "",
        "test_commit": result.test.commit or "",
        "mode": result.mode,
        "model": result.environment.model,
        "qemu": result.environment.qemu,
        "fingerprint": result.environment.fingerprint,
        "note": comparisons.mark,
    }


def _comparisons(item: StoredComparison) -> Iterator[tuple[CaseResult, Comparison]]:
    for case in item.result.cases:
        for comparison in case.metrics:
            yield case, comparison


def _case(item: StoredComparison, case: CaseResult) -> dict[str, str]:
    return {"result": item.result.result, "workload": case.workload, "case": case.case}


def _metric(item: StoredComparison, case: CaseResult, comparison: Comparison) -> dict[str, str]:
    return {
        **_case(item, case),
        "metric": comparison.name,
        "unit": wording.unit(comparison, item.result),
        "primary": "yes" if comparison.primary else "no",
        "fingerprint": item.result.environment.fingerprint,
    }


def _means(item: StoredComparison) -> Iterator[str]:
    for case, comparison in _comparisons(item):
        for arm, values in (("base", comparison.base), ("test", comparison.test)):
            if (value := mean(values)) is not None:
                yield sample("lab_mean", {**_metric(item, case, comparison), "arm": arm}, value)


def _states(name: str, labels: Labels, state: Outcome) -> Iterator[str]:
    for outcome in Outcome:
        yield sample(name, {**labels, name: outcome}, int(outcome == state))


def sample(name: str, labels: Labels, value: float) -> str:
    """One sample."""
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


# ---- bmf: means with their smallest and largest value, and the change with its interval


def bmf(comparisons: Comparisons) -> str:
    """Benchmarks `workload:case base`, `... test` and `... change`; the result's id in front if there are several."""
    document: dict[str, Any] = {}
    for item in comparisons.items:
        # The format has no place for a note, so what does not compare is told apart by its name.
        front = f"{item.result.result} " if comparisons.several else ""
        front += f"[environments differ: {item.result.environment.fingerprint}] " if comparisons.mark else ""
        document |= {front + name: measures for name, measures in _benchmarks(item.result).items() if measures}
    return records.encode(document).decode()


def _benchmarks(result: AbResult) -> dict[str, dict[str, Any]]:
    benchmarks: dict[str, dict[str, Any]] = {}
    for case in result.cases:
        for arm in ("base", "test"):
            benchmarks[f"{case.name} {arm}"] = {
                _measure(c, result): {"value": mean(values), "lower_value": min(values), "upper_value": max(values)}
                for c in case.metrics
                if (values := numbers(c.base if arm == "base" else c.test))
            }
        changes = [c for c in (case.primary, case.instructions) if c is not None and c.ratio is not None]
        if changes:
            benchmarks[f"{case.name} change"] = {f"ratio of {_measure(c, result)}": _ratio(c) for c in changes}
    return benchmarks


def _measure(comparison: Comparison, result: AbResult) -> str:
    return f"{comparison.name}, {wording.unit(comparison, result)}"


def _ratio(comparison: Comparison) -> dict[str, float | None]:
    ends = dict(zip(("lower_value", "upper_value"), comparison.interval or (), strict=False))
    return {"value": comparison.ratio, **ends}


# ---- benchstat: one line per seed and arm; `benchstat -col arm FILE` does its own statistics


def benchstat(comparisons: Comparisons) -> str:
    """Configuration lines, units with their better side, then the numbers of both arms."""
    lines: list[str] = []
    for item in comparisons.items:
        lines += _settings(item.result, comparisons.mark)
        lines += _units(item.result)
        for arm in ("base", "test"):
            lines += ["", f"arm: {arm}"]
            for case in item.result.cases:
                lines += _benchstat_case(item, case, arm)
        lines.append("")
    return "\n".join(lines)


def _settings(result: AbResult, mark: str) -> list[str]:
    settings = [
        f"result: {result.result}",
        f"base-kernel: {result.base}",
        f"test-kernel: {result.test}",
        f"mode: {result.mode}",
        f"model: {result.environment.model}",
        f"fingerprint: {result.environment.fingerprint}",
    ]
    return [*settings, f"note: {mark}"] if mark else settings


def _units(result: AbResult) -> Iterator[str]:
    units = {_unit(comparison): comparison.better for case in result.cases for comparison in case.metrics}
    for unit, better in units.items():
        if better != "neither":
            yield f"Unit {unit} better={better}"


def _benchstat_case(item: StoredComparison, case: CaseResult, arm: str) -> Iterator[str]:
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
