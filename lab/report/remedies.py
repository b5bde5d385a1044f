"""The option that settles an `unknown`, by its reason, with its time; docs/verdict.md has the same as a table."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from lab.compare.results import AbResult, CaseResult
from lab.core.text import plural, span
from lab.stats.defaults import MIN_PAIRS
from lab.stats.verdict import Comparison, Outcome


class Remedy(NamedTuple):
    """A remedy. reason: a pattern in the reasons that it is for. does: the option and its effect."""

    reason: str
    does: str


REMEDIES = (
    Remedy("rests on the model", "`--metric instructions` or `--metric cycles` lets one of the two decide"),
    Remedy("(?:to|from) threads and softirqs", "`--metric cycles` judges the caller's cost alone"),
    Remedy("waits .* (?:longer|less)", "`--metric cycles` judges the cost without the waits"),
    Remedy("not beyond chance over all", "`-w CASE` measures the case without correction for the others"),
    Remedy("another CPU than|no model counts what", "`@mitigations=off` in both kernels compares them without any"),
    Remedy(r"^\d+ of \d+ seeds: ", "the page shows the odd seeds; `--metric instructions` counts without a model"),
    Remedy("zeros have no ratio", "`--metric NAME` takes another metric of the workload"),
)
"""The first that fits a reason is taken, if no number of seeds settles the case."""


_WIDEST = 0.5
"""A threshold of more says nothing."""


def remedy(case: CaseResult, result: AbResult) -> str:
    """The option that settles a case, with its price; empty for a case with a verdict, or without a remedy."""
    if case.word != Outcome.UNKNOWN:
        return ""
    primary, pairs = case.primary, result.pairs
    done = len(result.seeds)
    if primary.more_blocks and "cannot settle it" not in primary.reason:
        wanted = done + primary.more_blocks
        took = f", about {span(result.seconds * wanted / done)}" if done else ""
        option = f"--{pairs}s" if wanted <= MIN_PAIRS else f"--max-{pairs}s"
        return f"`{option} {wanted}` settles it ({plural(primary.more_blocks, f'more {pairs}')}{took})"
    if found := next((one for one in REMEDIES if re.search(one.reason, primary.reason)), None):
        return found.does
    return _by_threshold(primary, result.threshold)


def _by_threshold(primary: Comparison, threshold: float) -> str:
    """The threshold that the interval is inside of, in whole percent."""
    wide = max((abs(bound - 1) for bound in primary.interval or ()), default=math.inf)
    if not threshold < wide < _WIDEST:
        return "no option settles it: the case scatters too much, a longer or warmed-up one scatters less"
    return f"`--threshold {math.ceil(100 * wide + 0.1)}%` calls it the same"


def remedies(result: AbResult) -> dict[str, list[CaseResult]]:
    """The cases of a result that each remedy settles."""
    found: dict[str, list[CaseResult]] = {}
    for case in result.cases:
        if text := remedy(case, result):
            found.setdefault(text, []).append(case)
    return found
