"""The reach of caches and TLBs: steps in curves of time over size, and lines through times over length. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from math import exp, log1p


class Unclear(Exception):
    """A value that the samples do not give; the message is the reason."""


def quantile(ranked: Sequence[float], share: float) -> float:
    place = share * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)


def steps(points: Sequence[tuple[int, float]], number: int) -> list[int]:
    """The starts of the later plateaus when a curve is fitted by several, with the least sum of absolute errors.

    The logarithm is fitted: a second-level hit beside a walk would otherwise be lost in the scatter of walks.
    """
    values = [log1p(max(0.0, value)) for _, value in points]

    def error(first: int, last: int) -> float:
        middle = statistics.median(values[first:last])
        return sum(abs(value - middle) for value in values[first:last])

    errors = {(i, k): error(i, k) for i in range(len(values)) for k in range(i + 2, len(values) + 1)}
    best, chosen = float("inf"), []
    for starts in combinations(range(2, len(values) - 1), number - 1):
        edges = [0, *starts, len(values)]
        if any(last - first < 2 for first, last in pairwise(edges)):
            continue
        total = sum(errors[edge] for edge in pairwise(edges))
        if total < best:
            best, chosen = total, list(starts)
    if not chosen:
        raise Unclear("too few sizes were measured")
    return chosen


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The number at which a curve has half risen from one plateau to the next, between two measured numbers."""

    value: float
    low: int
    high: int

    def agrees_with(self, nominal: float) -> bool:
        """True if a number is in the measured range, give or take a tenth."""
        return self.low / 1.1 <= nominal <= self.high * 1.1


def crossing(points: Sequence[tuple[int, float]], level: float) -> Reach:
    """The place where a curve crosses a level for good."""
    for (x, y), (next_x, next_y) in reversed(list(pairwise(points))):
        if y < level <= next_y:
            return Reach(value=x + (next_x - x) * (level - y) / (next_y - y), low=x, high=next_x)
    raise Unclear("there is no step in its curve")


@dataclass(frozen=True, kw_only=True)
class TlbFit:
    """The reach of the levels of a TLB, and the costs behind them; None if the curve ends before."""

    first: Reach
    hit: float
    second: Reach | None = None
    walk: float | None = None


def fit_tlb(points: Sequence[tuple[int, float]]) -> TlbFit:
    """Fit the cost of pages beyond the caches' as two steps, or one if the second level was not exhausted."""
    deepest = max(value for _, value in points)
    if deepest < 2:
        raise Unclear("there is no step in its curve")
    if deepest > 25:  # a walk: hits of the second level take 5 to 10 cycles
        first, second = steps(points, 3)
        hit = statistics.median(value for _, value in points[first:second])
        lower = [(x, value) for x, value in points if x < points[second][0]]
        reach, walk = _fit_walk(points, hit)
        return TlbFit(first=crossing(lower, hit / 2), hit=hit, second=reach, walk=walk)
    (start,) = steps(points, 2)
    hit = statistics.median(value for _, value in points[start:])
    return TlbFit(first=crossing(points, hit / 2), hit=hit)


def _fit_walk(points: Sequence[tuple[int, float]], hit: float) -> tuple[Reach, float]:
    """The entries and the cost of a miss that give the least absolute errors, for either kind of replacement."""
    upper = [(x, value - hit) for x, value in points if value > hit / 2]
    best = (float("inf"), 0.0, 0.0)
    most = upper[-1][0]
    for entries in (most * 0.99**i for i in range(40, 400)):  # two thirds of the largest number at most
        for rule in (_misses_of_random, _misses_of_lru):
            shares = [rule(x / entries) for x, _ in upper]
            for walk in [value / share for (_, value), share in zip(upper, shares, strict=True) if share > 0.3]:
                error = sum(abs(value - walk * share) for (_, value), share in zip(upper, shares, strict=True))
                best = min(best, (error, entries, walk))
    _, entries, walk = best
    low = max((x for x, value in upper if value < walk / 10), default=upper[0][0])
    high = min((x for x, value in upper if value > walk / 2), default=most)
    if walk <= hit or high <= low:
        raise Unclear("there is no second step in its curve")
    return Reach(value=entries, low=low, high=high), walk


def _misses_of_lru(pages: float) -> float:
    return float(pages > 1)


@cache
def _misses_of_random(pages: float) -> float:
    """The share of misses if pages are visited in turn, as a multiple of the entries, and a miss evicts any entry.

    A page is still there at its next turn if none of the misses in between evicted it: h = exp(-pages * (1 - h)).
    """
    if pages <= 1:
        return 0.0
    hits = 0.0
    for _ in range(60):
        hits = exp(-pages * (1 - hits))
    return 1 - hits


def fit_strings(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """The start and the cost of a byte that give the least sum of relative errors: a line through two of the points."""
    best = (float("inf"), 0.0, 0.0)
    for (x, y), (other_x, other_y) in combinations(points, 2):
        if x == other_x:
            continue
        byte = (other_y - y) / (other_x - x)
        start = y - byte * x
        if byte >= 0 and start >= 0:
            best = min(best, (sum(abs(start + byte * at - of) / of for at, of in points), start, byte))
    if best[0] == float("inf"):
        raise Unclear("the lengths do not lie on a line")
    return best[1], best[2]
