"""Many metrics, many cases: which changes are beyond what chance gives over all of them.

Holm's correction over all metrics of all cases, so a comparison of kernels that are the same says `regression` or
`improvement` anywhere no more often than one test would. The primary metrics, which verdicts are about, share four
fifths of alpha among them, the secondary ones a fifth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from lab import evidence
from lab.looks import Looks
from lab.manycases import mark_secondary
from lab.verdict import Comparison, Outcome

PRIMARY_SHARE = 0.8
"""Of alpha, where there are secondary metrics as well."""

_CHANGED = (Outcome.REGRESSION, Outcome.IMPROVEMENT)


def beyond_chance(
    cases: Mapping[str, Sequence[Comparison]], *, alpha: float, min_blocks: int, planned: int | None
) -> dict[str, list[Comparison]]:
    """The same comparisons; a change that does not survive the correction becomes `unknown`, and says why."""
    flat = mark_secondary([comparison for found in cases.values() for comparison in found])
    judged = [i for i, c in enumerate(flat) if c.verdict is not None]
    weights = _weights([flat[i].primary for i in judged])
    what = "cases" if all(flat[i].primary for i in judged) else "metrics"
    adjusted = evidence.holm([flat[i].p_value for i in judged], weights)
    for i, p_value, weight in zip(judged, adjusted, weights, strict=True):
        if flat[i].verdict in _CHANGED and p_value > alpha:
            reason = f"significant alone, not over {len(judged)} {what}"
            flat[i] = _taken_back(flat[i], reason, Looks(weight * alpha, planned), min_blocks)
    each = iter(flat)
    return {case: [next(each) for _ in found] for case, found in cases.items()}


def _weights(primary: Sequence[bool]) -> list[float]:
    """Every metric's part of alpha."""
    first = sum(primary)
    others = len(primary) - first
    if not first or not others:
        return [1 / len(primary)] * len(primary)
    return [PRIMARY_SHARE / first if one else (1 - PRIMARY_SHARE) / others for one in primary]


def _taken_back(comparison: Comparison, reason: str, looks: Looks, min_blocks: int) -> Comparison:
    """`unknown`, with the blocks more that would be beyond chance over all of the family."""
    x = [math.log(t / b) for b, t in zip(comparison.base, comparison.test, strict=True) if b and t]
    more = looks.blocks_to_settle(evidence.moments(looks.used(x)), margin=0.0, min_blocks=min_blocks)
    return msgspec.structs.replace(comparison, verdict=Outcome.UNKNOWN, reason=reason, more_blocks=more)
