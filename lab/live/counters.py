"""What a case's counters say where its time is too noisy for a verdict.

Counters of events (faults, mappings) come out alike in every boot of a kernel, or nearly so. Where they changed they
are no verdict on time, but they are evidence, and stand beside an `unknown`.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.stats.verdict import Comparison, Outcome, percent

_STEADY = 0.01
_MOST = 3


def changed(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The secondary metrics that hardly scatter in either arm, and have a verdict of their own."""
    return [
        one
        for one in comparisons
        if not one.primary and one.verdict in (Outcome.REGRESSION, Outcome.IMPROVEMENT) and one.survived is not False
        if _steady(one.base) and _steady(one.test)
    ]


def _steady(values: Sequence[float | None]) -> bool:
    numbers = [value for value in values if value is not None]
    return len(numbers) == len(values) > 0 and max(numbers) - min(numbers) <= _STEADY * abs(max(numbers))


def beside(comparisons: Sequence[Comparison]) -> str:
    """The same in words: `its counters say regression: vmas x14.0`; empty where none changed."""
    words = []
    for outcome in (Outcome.REGRESSION, Outcome.IMPROVEMENT):
        found = [one for one in changed(comparisons) if one.verdict == outcome]
        if found:
            shown = ", ".join(f"{one.name} {percent(one.ratio)}" for one in found[:_MOST])
            words.append(f"{outcome}: {shown}")
    return f"its counters say {'; '.join(words)}" if words else ""
