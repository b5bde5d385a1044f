"""Many metrics, many cases: which changes are beyond what chance gives over all of them.

Holm's correction. A case's primary metric answers for the cases, a secondary one for all metrics of all cases: so
a comparison of kernels that are the same says `regression` or `improvement` anywhere about as seldom as one test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from lab import evidence
from lab.verdict import Comparison, Outcome, mark_secondary

_CHANGED = (Outcome.REGRESSION, Outcome.IMPROVEMENT)


def beyond_chance(
    cases: Mapping[str, Sequence[Comparison]], *, alpha: float, min_blocks: int
) -> dict[str, list[Comparison]]:
    """The same comparisons; a change that does not survive the correction becomes `unknown`, and says why."""
    flat = mark_secondary([comparison for found in cases.values() for comparison in found])
    primary = [i for i, c in enumerate(flat) if c.primary]
    judged = [i for i, c in enumerate(flat) if c.verdict is not None]
    over_cases = _adjusted(flat, primary)
    over_metrics = _adjusted(flat, judged)
    for i in judged:
        adjusted, number, what = (
            (over_cases[i], len(primary), "cases") if flat[i].primary else (over_metrics[i], len(judged), "metrics")
        )
        if flat[i].verdict in _CHANGED and adjusted > alpha:
            flat[i] = _taken_back(flat[i], f"significant alone, not over {number} {what}", alpha / number, min_blocks)
    each = iter(flat)
    return {case: [next(each) for _ in found] for case, found in cases.items()}


def _adjusted(flat: Sequence[Comparison], members: Sequence[int]) -> dict[int, float]:
    return dict(zip(members, evidence.holm([flat[i].p_value for i in members]), strict=True))


def _taken_back(comparison: Comparison, reason: str, alpha: float, min_blocks: int) -> Comparison:
    """`unknown`, with the blocks more that would be beyond chance over all of the family."""
    x = [math.log(t / b) for b, t in zip(comparison.base, comparison.test, strict=True) if b and t]
    m = evidence.moments(evidence.clip(x))
    more = evidence.blocks_to_settle(m, margin=0.0, alpha=alpha, min_blocks=min_blocks)
    return msgspec.structs.replace(comparison, verdict=Outcome.UNKNOWN, reason=reason, more_blocks=more)
