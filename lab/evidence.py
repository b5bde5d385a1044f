"""Evidence from paired blocks: a test that may be looked at after every block, and what goes with it.

A block (live mode: one boot of each arm; exact mode: one seed on each arm) gives one number,
`x = log(test) - log(base)`. All effects, intervals and standard deviations here are in those log units.
Pure Python, because importing scipy alone costs more than all of this computes.

Sources. The e-value is the Bayes factor of the one-sample t-test with a normal prior of variance g on the
effect size: Gönen et al., The American Statistician 59 (2005), 252; that it stays valid under optional
stopping: Hendriksen, de Heide, Grünwald, Bayesian Analysis 16 (2021), 961. The 3.5 robust sds: Iglewicz,
Hoaglin, How to Detect and Handle Outliers (1993).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

EFFECT_VARIANCES = (0.1, 1.0, 10.0)
"""The mixture's g: variances of the effect, in units of the variance of x."""

NO_SPREAD = 1e-12
"""Log ratios closer together than this are one number: the rounding of two logarithms is 1e-15."""

CLIP_FROM = 8
CLIP_AT = 3.5
_EXACT_RANKS = 50
_LIMIT = 10_000


class Moments(NamedTuple):
    """Number, mean and standard deviation (n - 1 in the denominator; exactly 0 without spread) of x."""

    n: int
    mean: float
    sd: float


class Estimate(NamedTuple):
    """A value and its interval (None where no interval of that confidence exists)."""

    value: float
    interval: tuple[float, float] | None


# ---- the e-value


def moments(x: Sequence[float]) -> Moments:
    """Number, mean and sd of x. ValueError when x is empty."""
    if not x:
        raise ValueError("no values")
    n = len(x)
    if max(x) - min(x) <= NO_SPREAD:
        middle = math.fsum(x) / n
        return Moments(n, 0.0 if abs(middle) <= NO_SPREAD else middle, 0.0)
    mean = math.fsum(x) / n
    return Moments(n, mean, math.sqrt(math.fsum((v - mean) ** 2 for v in x) / (n - 1)))


def log_e(n: int, t: float) -> float:
    """Natural log of the mixture e-value of n blocks whose t statistic is t (which may be infinite).

    `E_n = mean over g of (1 + n g)^(-1/2) ((1 + r) / (1 + r / (1 + n g)))^(n/2)`, `r = t^2 / (n - 1)`.
    Under no change P(E_n >= 1/alpha at any n) <= alpha. E_1 is 1: one number says nothing of its spread.
    At infinite t E_n is finite, the mean of (1 + n g)^((n-1)/2): 12 at n = 3, 92 at n = 4, 880 at n = 5.
    """
    if n < 2:
        return 0.0
    terms = [_log_term(n, t, g) for g in EFFECT_VARIANCES]
    top = max(terms)
    return top + math.log(math.fsum(math.exp(v - top) for v in terms) / len(terms))


def _log_term(n: int, t: float, g: float) -> float:
    shrink = 1 + n * g
    if math.isinf(t):
        return (n - 1) / 2 * math.log(shrink)
    r = t * t / (n - 1)
    return n / 2 * (math.log1p(r) - math.log1p(r / shrink)) - math.log(shrink) / 2


def t_statistic(m: Moments) -> float:
    """`mean sqrt(n) / sd`; without spread 0 when the mean is 0, else infinite with the sign of the mean."""
    if m.sd == 0:
        return math.copysign(math.inf, m.mean) if m.mean else 0.0
    return m.mean * math.sqrt(m.n) / m.sd


def log_evidence(x: Sequence[float]) -> float:
    """Natural log of the evidence in x against "no change"; x as it is, clipped by the caller or not.

    Numbers without spread: all 0 is a t of 0 (E below 1, no evidence of a change); all the same and not 0
    is infinite from three on, because the formula's limit there is about noise that such numbers do not have.
    """
    m = moments(x)
    if m.sd == 0 and m.mean and m.n >= 3:
        return math.inf
    return log_e(m.n, t_statistic(m))


@cache
def critical_t(n: int, alpha: float) -> float:
    """The |t| at which E_n reaches 1/alpha; infinite when n blocks cannot (n < 5 at alpha = .01)."""
    goal = -math.log(_fraction(alpha))
    if log_e(n, math.inf) <= goal:
        return math.inf
    low, high = 0.0, 1.0
    while log_e(n, high) < goal:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if log_e(n, middle) < goal else (low, middle)
    return high


def _fraction(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f"{value} is not between 0 and 1")
    return value


def interval(m: Moments, alpha: float) -> tuple[float, float] | None:
    """Interval of the mean with coverage 1 - alpha at all looks together: `mean +- critical_t sd / sqrt(n)`.

    It leaves out 0 exactly when E_n exceeds 1/alpha. No width without spread (from three blocks on); None
    when no finite interval exists yet.
    """
    if m.sd == 0:
        return (m.mean, m.mean) if m.n >= 3 else None
    half = half_width(m.n, m.sd, alpha)
    return None if math.isinf(half) else (m.mean - half, m.mean + half)


def half_width(n: int, sd: float, alpha: float) -> float:
    """Half the width of the always-valid interval of n blocks with standard deviation sd > 0."""
    return critical_t(n, alpha) * sd / math.sqrt(n)


def clip(x: Sequence[float]) -> list[float]:
    """x with outliers pulled in to 3.5 robust sds (1.4826 MAD) around the median, from 8 blocks on.

    For the test only. Where over half of x are one number the MAD is 0 and says nothing about the rest:
    then nothing is clipped, else every other value would vanish and leave infinite evidence.
    """
    if len(x) < CLIP_FROM:
        return list(x)
    middle = _median(sorted(x))
    reach = CLIP_AT * 1.4826 * _median(sorted(abs(v - middle) for v in x))
    if reach <= NO_SPREAD:
        return list(x)
    low, high = middle - reach, middle + reach
    return [min(max(v, low), high) for v in x]


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


# ---- the estimate


def hodges_lehmann(x: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Median of the n (n + 1) / 2 Walsh averages (x_i + x_j) / 2, i <= j, with the signed-rank interval.

    The interval runs from the (k+1)-th smallest to the (k+1)-th largest average, k the largest number with
    P(signed rank <= k) <= (1 - confidence) / 2: Hollander, Wolfe, Nonparametric Statistical Methods, 3.3.
    For one look at a time that was fixed beforehand; none of 95 % exists below six blocks. The law of the
    rank is exact to 50 blocks, normal above.
    """
    n = len(x)
    averages = sorted((x[i] + x[j]) / 2 for i in range(n) for j in range(i, n))
    k = _signed_rank_quantile(n, (1 - _fraction(confidence)) / 2)
    return Estimate(_median(averages), None if k is None else (averages[k], averages[-1 - k]))


@cache
def _signed_rank_quantile(n: int, tail: float) -> int | None:
    """The largest k with P(T <= k) <= tail, T the Wilcoxon signed rank of n symmetric values; None: no k."""
    if n > _EXACT_RANKS:
        sd = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return math.floor(n * (n + 1) / 4 - 0.5 + NormalDist().inv_cdf(tail) * sd)
    ways, room, k = 0, tail * 2**n, -1
    for count in _signed_rank_counts(n):
        ways += count
        if ways > room:
            break
        k += 1
    return k if k >= 0 else None


def _signed_rank_counts(n: int) -> list[int]:
    """In how many of the 2^n sign patterns the positive ranks add up to 0, 1, ...: product of (1 + z^r)."""
    counts = [1]
    for rank in range(1, n + 1):
        counts = [a + b for a, b in zip(counts + [0] * rank, [0] * rank + counts, strict=True)]
    return counts


# ---- many tests


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the given order: at most alpha means "survives" at family error alpha.

    Sorted, `max over j <= i of (m - j) p_j` (j from 0), at most 1. Holm, Scand. J. Statistics 6 (1979), 65.
    """
    adjusted, worst, m = [1.0] * len(p_values), 0.0, len(p_values)
    for rank, i in enumerate(sorted(range(m), key=p_values.__getitem__)):
        worst = max(worst, (m - rank) * p_values[i])
        adjusted[i] = min(1.0, worst)
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values for a false discovery rate, in the given order.

    Sorted, `min over j >= i of m p_j / j` (j from 1), at most 1. Benjamini, Hochberg, J. R. Statist. Soc. B
    57 (1995), 289.
    """
    m = len(p_values)
    adjusted, best = [1.0] * m, 1.0
    for rank, i in enumerate(sorted(range(m), key=p_values.__getitem__, reverse=True)):
        best = min(best, p_values[i] * m / (m - rank))
        adjusted[i] = best
    return adjusted


# ---- planning


def detectable_effect(n: int, sd: float, alpha: float, power: float = 0.8) -> float | None:
    """The |mean| at which E_n >= 1/alpha after n blocks of standard deviation sd, with the given chance.

    `delta sd / sqrt(n)`, delta the noncentrality with P(T >= critical_t) = power, T noncentral t with n - 1
    degrees of freedom. Looking at earlier blocks too can only help. None when n blocks cannot reach 1/alpha.
    """
    if math.isinf(critical_t(n, alpha)):
        return None
    return _noncentrality(n, alpha, _fraction(power)) * sd / math.sqrt(n)


@cache
def _noncentrality(n: int, alpha: float, power: float) -> float:
    """The delta > 0 at which a noncentral t with n - 1 degrees of freedom exceeds critical_t with `power`.

    With W = sqrt(chi^2_nu / nu): `P(T >= h) = E[Phi(delta - h W)]`, an integral over the law of W.
    """
    h, nodes, normal = critical_t(n, alpha), _chi_nodes(n - 1), NormalDist()
    low, high = 0.0, 4 * h + 10
    for _ in range(40):
        delta = (low + high) / 2
        chance = math.fsum(weight * normal.cdf(delta - h * w) for w, weight in nodes)
        low, high = (delta, high) if chance < power else (low, delta)
    return high


def _chi_nodes(nu: int, steps: int = 400) -> list[tuple[float, float]]:
    """Midpoints and probabilities of W = sqrt(chi^2_nu / nu), over all that is not below 1e-12."""
    spread = 8 / math.sqrt(2 * nu)
    low, high = max(0.0, 1 - spread), 1 + spread
    points = [low + (high - low) * (i + 0.5) / steps for i in range(steps)]
    density = [math.exp((nu - 1) * math.log(w) - nu * (w * w - 1) / 2) for w in points]
    total = math.fsum(density)
    return [(w, d / total) for w, d in zip(points, density, strict=True)]


def blocks_to_settle(m: Moments, *, margin: float, alpha: float, min_blocks: int, fewest: int = 4) -> int | None:
    """How many blocks more would settle it, if mean and sd stayed as they are; None: over 10,000 in all.

    Settled: the interval lies inside +-margin (log units; from `fewest` blocks on), or leaves out 0 (from
    `min_blocks` on). With noise this is about the median of what it takes. Up to 40 blocks in all it is
    exact, above that within 5 %.
    """
    if m.sd == 0:
        return max(1, (fewest if abs(m.mean) <= margin else min_blocks) - m.n)

    def settled(n: int) -> bool:
        half, size = half_width(n, m.sd, alpha), abs(m.mean)
        return (n >= fewest and size + half <= margin) or (n >= min_blocks and half < size)

    later = [n for n in _horizons() if n > m.n]
    found = bisect_left(later, True, key=settled)
    return later[found] - m.n if found < len(later) else None


@cache
def _horizons() -> tuple[int, ...]:
    """Block numbers worth planning for; few, so that `critical_t` is computed once for all metrics."""
    out = list(range(2, 41))
    while out[-1] < _LIMIT:
        out.append(math.ceil(out[-1] * 1.05))
    return tuple(out)
