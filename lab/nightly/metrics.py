"""A plan for a scrape, in the OpenMetrics text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lab.history.trends import Trend
from lab.nightly.memory import Memory
from lab.nightly.night import Night
from lab.report.bench_formats import family, sample

_KINDS = ("regression", "creep", "step", "known")


def render(plan: str, nights: Sequence[Night], memory: Memory, trends: Sequence[Trend]) -> str:
    """What is open, how the last night went, and the last value of every trend."""
    return "\n".join([*_lines(plan, nights, memory, trends), "# EOF"]) + "\n"


def _lines(plan: str, nights: Sequence[Night], memory: Memory, trends: Sequence[Trend]) -> Iterator[str]:
    yield from family("lab_nightly_nights", "gauge", "Nights of the plan so far.")
    yield sample("lab_nightly_nights", {"plan": plan}, len(nights))
    yield from family("lab_nightly_open", "gauge", "Changes that are open and not acknowledged.")
    for kind in _KINDS:
        count = sum(event.kind == kind for event in memory.minded)
        yield sample("lab_nightly_open", {"plan": plan, "kind": kind}, count)
    yield from family(
        "lab_nightly_measured", "gauge", "Whether the last night measured the branch, or had nothing new."
    )
    for one in nights[-1].branches if nights else []:
        labels = {"plan": plan, "tree": one.tree, "branch": one.branch}
        yield sample("lab_nightly_measured", labels, int(one.state in ("measured", "nothing new")))
    yield from family("lab_nightly_value", "gauge", "The last value of a case's primary metric.")
    for trend in trends:
        value = next((dot.value for dot in reversed(trend.points) if dot.value is not None), None)
        if value is not None:
            yield sample("lab_nightly_value", {"plan": plan, **_labels(trend)}, value)
    yield from family("lab_nightly_steps", "gauge", "Steps in the trend of a case's primary metric.")
    for trend in trends:
        yield sample("lab_nightly_steps", {"plan": plan, **_labels(trend)}, len(trend.changes))


def _labels(trend: Trend) -> Mapping[str, str]:
    one = trend.series
    return {
        "tree": one.tree, "branch": one.branch, "workload": one.workload, "case": one.case, "metric": one.metric,
        "unit": one.unit, "mode": one.mode,
    }  # fmt: skip
