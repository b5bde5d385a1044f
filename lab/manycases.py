"""Many metrics and many cases: one verdict over all, and what is chance among so many.

A case's verdict is that of its primary metric; secondary metrics explain it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lab import evidence
from lab.records import Record
from lab.verdict import Comparison, Outcome


class CaseVerdict(Record, frozen=True, kw_only=True):
    """A case as `overall` needs it: its name, its primary metric's verdict and p-value."""

    name: str
    verdict: Outcome
    p_value: float


class Overall(Record, frozen=True, kw_only=True):
    """The verdict over all cases, the cases whose change counts for it, and why."""

    verdict: Outcome
    survived: list[str]
    reason: str


def mark_secondary(comparisons: Sequence[Comparison], rate: float = 0.05) -> list[Comparison]:
    """The comparisons in the same order; each secondary one says whether it survives Benjamini-Hochberg.

    The family is all secondary comparisons given, so give those of all cases at once.
    """
    family = [i for i, c in enumerate(comparisons) if not c.primary]
    adjusted = evidence.benjamini_hochberg([comparisons[i].p_value for i in family])
    out = list(comparisons)
    for i, p in zip(family, adjusted, strict=True):
        out[i] = msgspec.structs.replace(out[i], exploratory=True, survived=p <= rate)
    return out


def case_verdict(name: str, comparisons: Iterable[Comparison]) -> CaseVerdict:
    """A case's verdict is that of its primary metric. ValueError unless exactly one is primary and judged."""
    primary = [c for c in comparisons if c.primary]
    if len(primary) != 1 or primary[0].verdict is None:
        raise ValueError(f"{name}: needs exactly one primary metric with a better side")
    return CaseVerdict(name=name, verdict=primary[0].verdict, p_value=primary[0].p_value)


def overall(cases: Sequence[CaseVerdict], alpha: float = 0.01) -> Overall:
    """One verdict over all cases: a case's change counts when it survives Holm over all cases at alpha.

    Any regression that counts is a regression; else a case that is unknown, or changed without surviving,
    makes it unknown; else any improvement that counts; else same.
    """
    if not cases:
        return Overall(verdict=Outcome.UNKNOWN, survived=[], reason="no cases")
    changed = (Outcome.REGRESSION, Outcome.IMPROVEMENT)
    adjusted = evidence.holm([c.p_value for c in cases])
    counts = [c for c, p in zip(cases, adjusted, strict=True) if c.verdict in changed and p <= alpha]
    survived = [c.name for c in counts]
    failed = sum(c.verdict in changed for c in cases) - len(counts)
    open_cases = sum(c.verdict == Outcome.UNKNOWN for c in cases)
    word, reason = _overall_word(counts, failed, open_cases, len(cases))
    return Overall(verdict=word, survived=survived, reason=reason)


def _overall_word(counts: Sequence[CaseVerdict], failed: int, open_cases: int, n: int) -> tuple[Outcome, str]:
    worse = sum(c.verdict == Outcome.REGRESSION for c in counts)
    if worse:
        return Outcome.REGRESSION, f"{worse} of {_cases(n)} worse"
    if open_cases or failed:
        parts = [f"{open_cases} of {_cases(n)} unknown"] if open_cases else []
        parts += [f"{failed} changed, but not beyond chance over {_cases(n)}"] if failed else []
        return Outcome.UNKNOWN, "; ".join(parts)
    if counts:
        return Outcome.IMPROVEMENT, f"{len(counts)} of {_cases(n)} better, none worse"
    return Outcome.SAME, f"{_cases(n)} within threshold"


def _cases(n: int) -> str:
    return f"{n} case{'s' * (n != 1)}"
