"""A comparison for Prometheus: gauges, e.g. for node_exporter's textfile collector."""

from __future__ import annotations

from lab.compare.results import CaseResult, mean
from lab.report import templates, wording
from lab.report.inputs import Comparisons, StoredComparison
from lab.stats.verdict import Comparison, Outcome


def comparison(comparisons: Comparisons) -> str:
    """All families, each with the samples of all results."""
    return templates.text(
        "openmetrics.txt.j2",
        comparisons=comparisons,
        cases=[(item, case) for item in comparisons.items for case in item.result.cases],
        outcomes=list(Outcome),
        about=lambda item: _about(item, comparisons),
        of_case=_case,
        of_metric=_metric,
        mean=mean,
    )


def _about(item: StoredComparison, comparisons: Comparisons) -> dict[str, str]:
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
