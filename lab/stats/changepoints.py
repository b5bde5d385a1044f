"""Change points of a series: lasting changes of its level, apart from noise and from single outliers.

The method is that of Apache Otava (Fleming and others, "Hunter: Using Change Point Detection to Hunt for Performance
Regressions", https://doi.org/10.1145/3578244.3583719): E-divisive means (Matteson and James, arXiv:1306.4933) in
windows, Student's t-test in the place of permutations, and a second pass that drops weak steps. It is computed here,
not by the package of that name, whose pinned versions of numpy and scipy exclude the lab's; a test compares with
numbers that the package itself gave.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

Array = npt.NDArray[np.float64]

_WINDOW = 50
MAX_P = 1e-5
"""Stricter than Otava's default .001: a night looks at every series again. docs/history.md has the rates."""

HOLDS = 3
"""Points that a new level has to last. Fewer that stand out are outliers, until more follow."""

_OUTLIER_SDS = 5.0
_OUTLIER_ONE_IN = 8
_PLAUSIBLE = 6.63  # chi-square, 99 %, one degree of freedom


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Two levels, the second from `index` on, and the chance of such a difference without a step."""

    index: int
    before: float
    after: float
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change of level of positive numbers. It is somewhere in (earliest - 1, latest], most likely at `index`.

    ratio: of the level after it to that before.
    """

    index: int
    earliest: int
    latest: int
    ratio: float
    p_value: float


def steps(values: Sequence[float], *, least: float = 0.0) -> list[Step]:
    """The steps of a series of positive numbers, by their logarithms.

    least: the smallest change that counts, .01 is 1 %.
    """
    if len(values) < 2 * HOLDS or min(values) <= 0:
        return []
    logs = np.log(np.asarray(values, dtype=np.float64))
    outliers = set(outlying(values))
    kept = [i for i in range(len(logs)) if i not in outliers]
    calm = logs[kept]
    found = _lasting(change_points(calm, max_p=MAX_P, least=math.log1p(least)), calm)
    edges = [0, *(one.index for one in found), len(calm)]
    made = []
    for number, one in enumerate(found):
        around = calm[edges[number] : edges[number + 2]]
        if _is_slope(around, one.index - edges[number]):
            continue
        low, high = _plausible(around, one.index - edges[number])
        made.append(
            Step(
                index=kept[one.index],
                earliest=kept[low + edges[number] - 1] + 1,  # an outlier before it may have been its first point
                latest=kept[high + edges[number]],
                ratio=math.exp(one.after - one.before),
                p_value=one.p_value,
            )
        )
    return made


def outlying(values: Sequence[float]) -> list[int]:
    """Points far from the seven around them, by Hampel's rule on logarithms; at the end they may be a new level yet.

    Seven points alone would know their spread badly: it is taken to be no smaller than that from point to point. More
    such points than one in eight are not outliers but a second kind of point; then there are no outliers.
    """
    logs = [math.log(value) for value in values]
    hops = [abs(after - before) for before, after in pairwise(logs)]
    usual = 1.4826 * statistics.median(hops) / math.sqrt(2) if hops else 0.0
    found = []
    for place, value in enumerate(logs):
        around = logs[max(0, place - HOLDS) : place + HOLDS + 1]
        middle = statistics.median(around)
        spread = max(usual, 1.4826 * statistics.median(abs(one - middle) for one in around))
        if abs(value - middle) > _OUTLIER_SDS * spread:
            found.append(place)
    return found if len(found) <= max(1, len(logs) // _OUTLIER_ONE_IN) else []


def _lasting(found: Sequence[Split], x: Array) -> list[Split]:
    """Without levels that lasted for less than they have to: the weaker of their two ends goes."""
    kept = list(found)
    while True:
        edges = [0, *(one.index for one in kept), len(x)]
        short = next((i for i in range(len(kept) + 1) if edges[i + 1] - edges[i] < HOLDS), None)
        if short is None or not kept:
            return kept
        ends = [i for i in (short - 1, short) if 0 <= i < len(kept)]
        del kept[max(ends, key=lambda i: kept[i].p_value)]
        kept = _again(kept, x)


def _is_slope(x: Array, at: int) -> bool:
    """True if a straight line fits better than two levels: a creep, which E-divisive sees as a flight of stairs."""
    places = np.arange(len(x), dtype=np.float64)
    line = np.polynomial.Polynomial.fit(places, x, 1)(places)
    left, right = x[:at], x[at:]
    two_levels = ((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum()
    return bool(((x - line) ** 2).sum() < two_levels)


def _plausible(x: Array, at: int) -> tuple[int, int]:
    """The first and last place of a change of mean that the numbers do not rule out, by the likelihood ratio."""

    def misfit(place: int) -> float:
        left, right = x[:place], x[place:]
        return float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum())

    best = misfit(at)
    tiny = 1e-24 * len(x)

    def plausible(place: int) -> bool:
        return len(x) * math.log((misfit(place) + tiny) / (best + tiny)) < _PLAUSIBLE

    low = high = at
    while low > 1 and plausible(low - 1):
        low -= 1
    while high < len(x) - 1 and plausible(high + 1):
        high += 1
    return low, high


# ---- Otava's method


def change_points(x: Array, *, max_p: float, least: float = 0.0) -> list[Split]:
    """All changes of the mean that are significant, and larger than `least`."""
    return _merge(_split(x, 10 * max_p), x, max_p, least)


def _split(x: Array, max_p: float) -> list[Split]:
    """Candidates, from windows that overlap by half."""
    start, places = 0, set()
    while start < len(x):
        found = [start + place for place in _divide(x[start : start + _WINDOW], max_p)]
        places.update(found)
        start = max(max(found, default=0), start + _WINDOW // 2)
    return _again([Split(index=place, before=0, after=0, p_value=0) for place in sorted(places)], x)


def _divide(x: Array, max_p: float) -> list[int]:
    """Cut a window in two at the best separation, then its parts, while a cut is significant."""
    # Two-dimensional running sums of the distances between all pairs.
    distances = np.abs(x[:, None] - x[None, :])
    sums = np.pad(distances.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    places: list[int] = []
    while True:
        edges = [0, *sorted(places), len(x)]
        parts = [(a, b) for a, b in pairwise(edges) if b - a > 1]
        if not parts:
            return sorted(places)
        place, _ = max((_best_cut(sums, a, b) for a, b in parts), key=lambda cut: cut[1])
        low, high = next((a, b) for a, b in parts if a < place < b)
        if not _compare(x[low:place], x[place:high], place).p_value <= max_p:
            return sorted(places)
        places.append(place)


def _best_cut(sums: Array, start: int, end: int) -> tuple[int, float]:
    """The cut at tau of start:kappa, over all tau < kappa <= end, with the largest energy distance Q of its sides.

    Q = 2/(n+m) sum|X-Y| - 2m/((n+m)(n-1)) sum|X-X'| - 2n/((n+m)(m-1)) sum|Y-Y'|, sums over pairs.
    """
    tau = np.arange(start + 1, end)[:, None]
    kappa = np.arange(start + 2, end + 1)[None, :]
    n, m = tau - start, kappa - tau
    whole = _square(sums, start, kappa)
    left, right = _square(sums, start, tau), _square(sums, tau, kappa)
    between = (whole - left - right) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        within = np.where(n > 1, m / (n - 1) * left, 0.0) + np.where(m > 1, n / (m - 1) * right, 0.0)
        q = np.where(m > 0, (2 * between - within) / (n + m), -np.inf)
    row, column = np.unravel_index(int(np.argmax(q)), q.shape)
    return int(row) + 1 + start, float(q[row, column])


def _square(sums: Array, start: int | npt.NDArray[np.int_], end: npt.NDArray[np.int_]) -> Array:
    """Twice the sum of the distances of all pairs within start:end."""
    found: Array = sums[end, end] - sums[start, end] - sums[end, start] + sums[start, start]
    return found


def _merge(found: list[Split], x: Array, max_p: float, least: float) -> list[Split]:
    """Drop the weakest until all others are significant and large enough."""
    kept = list(found)
    while kept:
        weakest = max(kept, key=lambda one: one.p_value)
        if weakest.p_value < max_p:
            weakest = min(kept, key=lambda one: abs(one.after - one.before))
            if abs(weakest.after - weakest.before) > least:
                return kept
        kept.remove(weakest)
        kept = _again(kept, x)
    return kept


def _again(found: Sequence[Split], x: Array) -> list[Split]:
    """Each change with the values on both sides of it, up to the next changes."""
    edges = [0, *(one.index for one in found), len(x)]
    return [
        _compare(x[before:place], x[place:after], place)
        for before, place, after in zip(edges, edges[1:], edges[2:], strict=False)
    ]


def _compare(left: Array, right: Array, index: int) -> Split:
    """Student's t-test. The deviations are those of the sample itself (n, not n - 1), as Otava has them."""
    n, m = len(left), len(right)
    before, after = float(left.mean()), float(right.mean())
    freedom = n + m - 2
    if freedom < 1:
        return Split(index=index, before=before, after=after, p_value=1.0)
    variance = ((n - 1) * float(left.var()) + (m - 1) * float(right.var())) / freedom
    error = math.sqrt(variance * (1 / n + 1 / m))
    if error == 0:
        p_value = 0.0 if before != after else 1.0
    else:
        p_value = float(2 * stdtr(freedom, -abs(before - after) / error))
    return Split(index=index, before=before, after=after, p_value=p_value)
