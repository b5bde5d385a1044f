"""Counters by how far they moved."""

from __future__ import annotations

from lab.compare import counters
from lab.compare.results import CaseResult
from lab.stats import multiple
from lab.stats.verdict import Comparison, Metric, Outcome, compare_metric

SPEED = Metric(name="throughput", unit="op/s", better="higher", primary=True)


def _moved(name: str, base: list[float], test: list[float]) -> Comparison:
    return compare_metric(Metric(name=name, unit="", better="neither"), base, test, exact=True)


def test_movers_rank_from_zero_first_and_leave_out_the_unmoved() -> None:
    metrics = [
        _moved("still", [5, 5, 5], [5, 5, 5]),
        _moved("halved", [8, 8, 8], [4, 4, 4]),
        _moved("born", [0, 0, 0], [9, 9, 9]),
        _moved("grown", [10, 10, 10], [500, 500, 500]),
        _moved("nothing", [0, 0, 0], [0, 0, 0]),
        _moved("born big", [0, 0, 0], [900, 900, 900]),
        compare_metric(SPEED, [1, 1, 1], [99, 99, 99], exact=True),
        _moved("latency_p99", [1, 1, 1], [9999, 9999, 9999]),
        _moved("guest_throughput", [1, 1, 1], [9999, 9999, 9999]),
    ]
    case = CaseResult(
        workload="w", case="c", control=False, verdict=Outcome.IMPROVEMENT, metrics=multiple.mark_secondary(metrics),
        guest_clock="guest_throughput",
    )  # fmt: skip
    assert [c.name for c in counters.movers(case, most=9)] == ["born big", "born", "grown", "halved"]
    assert len(counters.movers(case)) == 3
