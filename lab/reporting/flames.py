"""A stored explanation as the page shows it: the differential flame graph, and the same as a table."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup, escape

from lab import flamegraph
from lab.core.text import visible_record
from lab.explain import Remembered, by_cost, differing
from lab.results import AbResult, CaseResult

_ROWS = 15


def view(stored: Remembered, case: CaseResult, result: AbResult) -> dict[str, Any]:
    """The picture with its text alternative, and the functions that differ most."""
    explanation, cost = visible_record(stored.explanation), stored.cost
    title = f"{case.workload}:{case.case}, {result.base.spec} against {result.test.spec}"
    machine = stored.machine if cost == "cycles" else ""
    drawn = flamegraph.svg(explanation, cost, title=title, machine=machine)
    unit = f"modelled cycles/op ({stored.model} {machine})" if cost == "cycles" else "instructions/op"
    label = f"Differential flame graph in {unit}; the table below has the same numbers"
    rows = [
        (
            row.name,
            row.space,
            flamegraph.short(explanation.per_operation(row, "base", cost)),
            flamegraph.short(explanation.per_operation(row, "test", cost)),
            flamegraph.signed(explanation.delta(row, cost)),
            float(explanation.delta(row, cost)),
        )
        for row in (differing(explanation, cost) or by_cost(explanation, cost))[:_ROWS]
    ]
    head = f'<svg role="img" aria-label="{escape(label)}" '
    return {"svg": Markup(drawn.replace("<svg ", head, 1)), "unit": unit, "rows": rows}  # noqa: S704  (it escapes)
