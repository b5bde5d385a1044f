"""A comparison for Prometheus: gauges, e.g. for node_exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from lab.compare.results import CaseResult, mean
from lab.report import wording
from lab.report.inputs import Comparisons, StoredComparison
from lab.stats.verdict import Comparison, Outcome

Labels = Mapping[str, str]

_RATIOS: tuple[tuple[str, str, Callable[[Comparison], float | None]], ...] = (
    ("lab_ratio", "Test over base.", lambda c: c.ratio),
    ("lab_ratio_low", "Lower end of the interval of the ratio.", lambda c: c.interval[0] if c.interval else None),
    ("lab_ratio_high", "Upper end of the interval of the ratio.", lambda c: c.interval[1] if c.interval else None),
)


def comparison(comparisons: Comparisons) -> str:
    """All families, each with the samples of all results."""
    lines: list[str] = []
    lines += family("lab_result", "info", "The comparison, and its surroundings.")
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
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
