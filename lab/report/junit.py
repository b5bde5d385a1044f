"""`junit`: test results. A regression fails, a case without a measurement is an error, an undecided one is skipped.

The rules of `junit` are those of the schema for Ant's JUnit reports, which is the strictest one in use.
"""

from __future__ import annotations

from datetime import UTC, datetime

from lab.compare import counters
from lab.compare.results import AbResult, CaseResult
from lab.report import templates, wording
from lab.report.inputs import Comparisons
from lab.report.wording import shown
from lab.stats.verdict import Outcome

_MOST_MOVERS = 10


def comparison(comparisons: Comparisons) -> str:
    """One test suite per result, one test case per case."""
    return templates.text(
        "junit.xml.j2",
        comparisons=comparisons,
        kinds_of=lambda result: [_kind(case) for case in result.cases],
        started=lambda result: f"{datetime.fromisoformat(result.started).astimezone(UTC):%Y-%m-%dT%H:%M:%S}",
        movers=lambda result, case: "\n".join(_movers(result, case)),
    )


def _kind(case: CaseResult) -> str:
    """The state of a case in JUnit: `passed`, `failure`, `error` or `skipped`."""
    if case.word == "unsupported":
        return "skipped"
    if not case.is_measured:
        return "error"
    return {Outcome.REGRESSION: "failure", Outcome.UNKNOWN: "skipped"}.get(case.verdict, "passed")


def _movers(result: AbResult, case: CaseResult) -> list[str]:
    """The metrics that moved, the primary one first."""
    return [
        f"{c.name}: {wording.change(c)} ({shown(c.base)} -> {shown(c.test)} {wording.unit(c, result)})"
        for c in [case.primary, *counters.changed(case)[:_MOST_MOVERS]]
    ]
