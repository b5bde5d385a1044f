"""Many metrics and many cases: one verdict over all cases, and corrections for the number of tests.

A case's verdict is that of its primary metric; secondary metrics explain it. Holm's correction over all metrics of all
cases holds the chance that equal kernels get any `regression` or `improvement` at that of one test. The primary
metrics share four fifths of alpha, the secondary ones a fifth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from lab.core.records import Record
from lab.core.text import plural
from lab.stats import evidence
from lab.stats.defaults import ALPHA, MIN_PAIRS
from lab.stats.sequential import SequentialTest
from lab.stats.verdict import Comparison, Outcome


class CaseVerdict(Record, frozen=True, kw_only=True):
    """A case's name, and its primary metric's verdict and p-value. control: it is not expected to change."""

    name: str
    verdict: Outcome
    p_value: float
    control: bool = False


class Overall(Record, frozen=True, kw_only=True):
    """The verdict over all cases, the cases whose change counts for it, and why."""

    verdict: Outcome
    survived: list[str]
    reason: str


_FALSE_DISCOVERIES = 0.05


def mark_secondary(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons in the same order; each secondary one says whether it survives Benjamini-Hochberg.

    The family is all secondary comparisons given, so give those of all cases at once.
    """
    family = [i for i, c in enumerate(comparisons) if not c.primary]
    adjusted = evidence.benjamini_hochberg([comparisons[i].p_value for i in family])
    out = list(comparisons)
    for i, p in zip(family, adjusted, strict=True):
        out[i] = msgspec.structs.replace(out[i], exploratory=True, survived=p <= _FALSE_DISCOVERIES)
    return out


def case_verdict(name: str, comparisons: Iterable[Comparison], *, control: bool = False) -> CaseVerdict:
    """A case's verdict is that of its primary metric. ValueError unless exactly one is primary and judged."""
    primary = [c for c in comparisons if c.primary]
    if len(primary) != 1 or primary[0].verdict is None:
        raise ValueError(f"{name}: needs exactly one primary metric with a better side")
    return CaseVerdict(name=name, verdict=primary[0].verdict, p_value=primary[0].p_value, control=control)


def overall(cases: Sequence[CaseVerdict], alpha: float = ALPHA) -> Overall:
    """One verdict over all cases: a case's change counts when it survives Holm over all cases at alpha.

    Any regression that counts is a regression; else a case that is unknown, or changed without surviving, makes it
    unknown; else any improvement that counts; else same. A control that moved is not a finding, unless there are only
    controls: it shows that something else than the change under test is different, so nothing is `same`.
    """
    if not cases:
        return Overall(verdict=Outcome.UNKNOWN, survived=[], reason="no cases")
    only_controls = all(c.control for c in cases)
    adjusted = evidence.holm([c.p_value for c in cases])
    counts = [c for c, p in zip(cases, adjusted, strict=True) if c.verdict.is_change and p <= alpha]
    survived = [c.name for c in counts]
    failed = sum(c.verdict.is_change for c in cases) - len(counts)
    open_cases = sum(c.verdict == Outcome.UNKNOWN for c in cases)
    moved = [] if only_controls else [c for c in counts if c.control]
    found = [c for c in counts if c not in moved]
    word, reason = _overall_word(found, failed, open_cases, len(cases) - len(moved))
    if moved:
        word = Outcome.UNKNOWN if word == Outcome.SAME else word
        names = ", ".join(c.name for c in moved[:_MOST_NAMED]) + ", ..." * (len(moved) > _MOST_NAMED)
        reason += f"; control moved ({names}): something else than the change is different"
    return Overall(verdict=word, survived=survived, reason=reason)


_MOST_NAMED = 3


def _overall_word(counts: Sequence[CaseVerdict], failed: int, open_cases: int, n: int) -> tuple[Outcome, str]:
    cases, worse = plural(n, "case"), sum(c.verdict == Outcome.REGRESSION for c in counts)
    if worse:
        return Outcome.REGRESSION, f"{worse} of {cases} worse"
    if open_cases or failed:
        parts = [f"{open_cases} of {cases} unknown"] if open_cases else []
        parts += [f"{failed} changed, but not beyond chance over {cases}"] if failed else []
        return Outcome.UNKNOWN, "; ".join(parts)
    if counts:
        return Outcome.IMPROVEMENT, f"{len(counts)} of {cases} better, none worse"
    return Outcome.SAME, f"{cases} within threshold"


PRIMARY_SHARE = 0.8
"""The share of alpha if there are secondary metrics as well."""

NOT_BEYOND_CHANCE = "not beyond chance over all"


def beyond_chance(
    cases: Mapping[str, Sequence[Comparison]], *, alpha: float, planned: int | None
) -> dict[str, list[Comparison]]:
    """The same comparisons; a change that does not survive the correction becomes `unknown`, and says why."""
    flat = mark_secondary([comparison for found in cases.values() for comparison in found])
    judged = [i for i, c in enumerate(flat) if c.verdict is not None]
    weights = _weights([flat[i].primary for i in judged])
    what = "cases" if all(flat[i].primary for i in judged) else "metrics"
    adjusted = evidence.holm([flat[i].p_value for i in judged], weights)
    for i, p_value, weight in zip(judged, adjusted, weights, strict=True):
        if flat[i].is_change and p_value > alpha:
            test = SequentialTest(weight * alpha, planned)
            flat[i] = withdraw(flat[i], f"{NOT_BEYOND_CHANCE} {what}", test)
    each = iter(flat)
    return {case: [next(each) for _ in found] for case, found in cases.items()}


def _weights(primary: Sequence[bool]) -> list[float]:
    """Every metric's part of alpha."""
    first = sum(primary)
    others = len(primary) - first
    if not first or not others:
        return [1 / len(primary)] * len(primary)
    return [PRIMARY_SHARE / first if one else (1 - PRIMARY_SHARE) / others for one in primary]


def withdraw(comparison: Comparison, reason: str, test: SequentialTest) -> Comparison:
    """The comparison as `unknown`, with the pairs more that would be beyond chance over all of the family by a test."""
    x = [math.log(t / b) for b, t in zip(comparison.base, comparison.test, strict=True) if b and t]
    more = test.blocks_to_settle(test.moments(x), min_blocks=MIN_PAIRS) if x else None
    return comparison.unknown(reason, more)
