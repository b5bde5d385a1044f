"""Evidence from paired blocks: tests that hold after every block, with their estimates, intervals and power.

A block (live mode: one boot of each arm; exact mode: one seed on each arm) gives one number,
`x = log(test) - log(base)`. All effects, intervals and standard deviations here are in those log units.

The e-value needs no plan. It is the Bayes factor of the one-sample t-test with a normal prior of variance g on the
effect size: Gönen et al., The American Statistician 59 (2005), 252; that it stays valid under optional stopping:
Hendriksen, de Heide, Grünwald, Bayesian Analysis 16 (2021), 961.

O'Brien and Fleming's bound is for N planned blocks. Under no change the sums of the first k of them are a random walk.
Its statistic is `c = |z_k| sqrt(k / N)`, z_k the normal deviate with the tail of the t statistic of k blocks: it has
hardly any power early, and nearly that of a single look at the end. `crossing_probability` is the chance that a normal
random walk is ever that far out at the looks from the sixth block to the N-th, so the test holds at a look after every
block, or after any of them. It is not defined after more than N blocks.
O'Brien, Fleming, Biometrics 35 (1979), 549; t statistics by their tails, the integration, and intervals that hold at
every look: Jennison, Turnbull, Group Sequential Methods with Applications to Clinical Trials (2000), chapters 3, 9, 19.

Both know of noise that is not normal by the sd that they are given (`noisy_moments`). The 3.5 robust sds: Iglewicz,
Hoaglin, How to Detect and Handle Outliers (1993); the sd of clipped numbers: Tukey, McLaughlin, Sankhya A 25 (1963),
331; the tail of t by the kurtosis: Gayen, Biometrika 36 (1949), 353.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist, median
from typing import Any, NamedTuple

from lab.stats.defaults import MIN_PAIRS

EFFECT_VARIANCES = (0.1, 1.0, 10.0)
"""The mixture's g: variances of the effect, in units of the variance of x."""

NO_SPREAD = 1e-12
"""Log ratios closer together than this are one number: the rounding of two logarithms is 1e-15."""

EVIDENCE_CAP = 300.0
"""log10 E at and above which evidence is called infinite: JSON has no infinity."""

CLIP_FROM = 8
CLIP_AT = 3.5
CLIP_ONE_IN = 16
"""At most one block in so many is an outlier; one may always be."""

FLAT_TAIL = 0.4
"""(t^2 - 3) / 12 where t is 2.8, about the bound: by so much, over n, an excess kurtosis of -1 raises the bound."""

EXACT_BOUND_BLOCKS = 200
"""The longest plan whose bound is integrated. That of a longer one is the bound of looks without end."""

_EXACT_RANKS = 50
_TAIL = (1 - 0.95) / 2


class Moments(NamedTuple):
    """Number, mean and standard deviation (n - 1 in the denominator; exactly 0 without spread) of x."""

    n: int
    mean: float
    sd: float


class Estimate(NamedTuple):
    """A value and its interval (None if no interval of that confidence exists)."""

    value: float
    interval: tuple[float, float] | None


# ---- the e-value


def moments(x: Sequence[float]) -> Moments:
    """Number, mean and sd of x."""
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


def log_evidence(m: Moments) -> float:
    """Natural log of the evidence in blocks of these moments against "no change".

    Numbers without spread: all 0 is a t of 0 (E below 1, no evidence of a change); all the same and not 0
    is infinite from three on, because the formula's limit there is about noise that such numbers do not have.
    """
    if m.sd == 0 and m.mean and m.n >= 3:
        return math.inf
    return log_e(m.n, t_statistic(m))


def p_value(log_e: float) -> float:
    """min(1, 1/E): under no change the chance that the evidence is ever that large. Infinite evidence is 10^300."""
    return float(min(1.0, 10.0 ** -min(log_e / math.log(10), EVIDENCE_CAP)))


@cache
def critical_t(n: int, alpha: float) -> float:
    """The |t| at which E_n reaches 1/alpha; infinite when n blocks cannot (n < 5 at alpha = .01)."""
    goal = -math.log(alpha)
    if log_e(n, math.inf) <= goal:
        return math.inf
    low, high = 0.0, 1.0
    while log_e(n, high) < goal:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if log_e(n, middle) < goal else (low, middle)
    return high


def interval(m: Moments, alpha: float) -> tuple[float, float] | None:
    """Interval of the mean with coverage 1 - alpha at all looks together: `mean +- critical_t sd / sqrt(n)`.

    It leaves out 0 exactly when E_n exceeds 1/alpha. No width without spread (from three blocks on); None if no finite
    interval exists yet.
    """
    return bounds(m, critical_t(m.n, alpha))


def bounds(m: Moments, critical: float) -> tuple[float, float] | None:
    """`mean +- critical sd / sqrt(n)`, the interval whose test asks for |t| > critical."""
    if m.sd == 0:
        return (m.mean, m.mean) if m.n >= 3 else None
    half = critical * m.sd / math.sqrt(m.n)
    return None if math.isinf(half) else (m.mean - half, m.mean + half)


def clip(x: Sequence[float]) -> list[float]:
    """x with outliers pulled in to 3.5 robust sds (1.4826 MAD) around the median, from 8 blocks on.

    For the test only. If more blocks than one in sixteen are that far out, they are not outliers but another kind of
    boot, or the MAD is that of one kind alone: then nothing is clipped, else all of x would become that kind, with
    hardly any spread, and leave huge evidence.
    """
    if len(x) < CLIP_FROM:
        return list(x)
    middle = median(x)
    reach = CLIP_AT * 1.4826 * median(abs(v - middle) for v in x)
    if reach <= NO_SPREAD:
        return list(x)
    low, high = middle - reach, middle + reach
    outliers = sum(not low <= v <= high for v in x)
    return [min(max(v, low), high) for v in x] if outliers <= max(1, len(x) // CLIP_ONE_IN) else list(x)


def noisy_moments(x: Sequence[float]) -> Moments:
    """The moments of x for the test: outliers pulled in, and the sd as large as the error of the mean asks for.

    A block that is pulled in makes the others look closer together than they are: `1 + 1 / (n - 1)` for each. Noise
    with flatter tails than the normal law (two kinds of boots, few whole values) exceeds the bound of t more often. By
    how much is the first term of an Edgeworth expansion: `1 + .4 k / n` for an excess kurtosis of -k.
    """
    clipped = clip(x)
    m, n = moments(clipped), len(x)
    if m.sd == 0 or n < MIN_PAIRS:
        return m
    pulled_in = sum(was != now for was, now in zip(x, clipped, strict=True))
    return m._replace(sd=m.sd * (1 + FLAT_TAIL * max(0.0, -_excess_kurtosis(x)) / n + pulled_in / (n - 1)))


def _excess_kurtosis(x: Sequence[float]) -> float:
    """The fourth cumulant over the squared variance, as estimated by k-statistics; 0 for normal numbers."""
    n, mean = len(x), math.fsum(x) / len(x)
    squares = [(v - mean) ** 2 for v in x]
    second, fourth = math.fsum(squares) / n, math.fsum(s * s for s in squares) / n
    return (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * (fourth / second**2 - 3) + 6)


# ---- the estimate


def hodges_lehmann(x: Sequence[float]) -> Estimate:
    """Median of the n (n + 1) / 2 Walsh averages (x_i + x_j) / 2, i <= j, with the signed-rank interval of 95 %.

    The interval runs from the (k+1)-th smallest to the (k+1)-th largest average, k the largest number with
    P(signed rank <= k) <= .025: Hollander, Wolfe, Nonparametric Statistical Methods, 3.3. For one look at a time that
    was fixed beforehand; none exists below six blocks. The law of the rank is exact to 50 blocks, normal above.
    """
    n = len(x)
    averages = sorted((x[i] + x[j]) / 2 for i in range(n) for j in range(i, n))
    k = _signed_rank_quantile(n, _TAIL)
    return Estimate(median(averages), None if k is None else (averages[k], averages[-1 - k]))


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


def holm(p_values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Holm's adjusted p-values, in the given order: at most alpha means "survives" at family error alpha.

    Sorted by p / w, `max over j <= i of (w_j + w_(j+1) + ...) p_j / w_j`, at most 1; without weights those sums are
    m, m - 1, ... Holm, Scand. J. Statistics 6 (1979), 65; with weights in section 4 there.
    """
    w = [1.0] * len(p_values) if weights is None else weights
    adjusted, worst, left = [1.0] * len(p_values), 0.0, math.fsum(w)
    for i in sorted(range(len(p_values)), key=lambda i: p_values[i] / w[i]):
        worst = max(worst, left * p_values[i] / w[i])
        adjusted[i] = min(1.0, worst)
        left -= w[i]
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


# ---- a planned number of blocks


def bound_p_value(n: int, t: float, blocks: int) -> float:
    """The chance, under no change, of ever being as far out in that many planned blocks as t is after n of them."""
    from scipy.special import ndtri, stdtr  # not at the top: exact mode does without

    if not MIN_PAIRS <= n <= blocks:
        return 1.0
    return crossing_probability(-float(ndtri(stdtr(n - 1, -abs(t)))) * math.sqrt(n / blocks), blocks)


@cache
def bound_t(n: int, blocks: int, alpha: float) -> float:
    """The |t| after n of the planned blocks at which `bound_p_value` is alpha; infinite if none is."""
    from scipy.special import ndtr, stdtrit

    if not MIN_PAIRS <= n <= blocks:
        return math.inf
    return abs(float(stdtrit(n - 1, ndtr(-_bound(blocks, alpha) * math.sqrt(blocks / n)))))


@cache
def _bound(blocks: int, alpha: float) -> float:
    """The c at which `crossing_probability` is alpha."""
    from scipy.optimize import brentq

    return float(brentq(lambda c: math.log(crossing_probability(c, blocks) / alpha), 0.01, 12.0, xtol=1e-12))


def crossing_probability(c: float, blocks: int, first: int = MIN_PAIRS) -> float:
    """The chance that |S_k| >= c sqrt(N) at any look k = first ... N, S_k the sum of k standard normal numbers.

    By recursive integration of the density of the walks that are still inside, at Gauss-Legendre nodes closer together
    than one step. Above 200 blocks it is the limit of endless looks, 4 (1 - Phi(c)), by reflection.
    """
    import numpy as np
    from scipy.special import ndtr

    if c <= 0 or blocks > EXACT_BOUND_BLOCKS:
        return min(1.0, 4 * float(ndtr(-c)))
    if math.isinf(c):
        return 0.0
    edge = c * math.sqrt(blocks)
    nodes, weights = (edge * part for part in _gauss_legendre(32 * math.ceil(edge / 8 + 0.5)))
    leaves = ndtr(nodes - edge) + ndtr(-nodes - edge)
    step = np.exp(-((nodes[:, None] - nodes) ** 2) / 2) / math.sqrt(2 * math.pi) * weights[:, None]
    inside = np.exp(-(nodes**2) / (2 * first)) / math.sqrt(2 * math.pi * first) * weights
    crossed = 2 * float(ndtr(-edge / math.sqrt(first)))
    for _ in range(blocks - first):
        crossed += float(inside @ leaves)
        inside = step @ inside
    return min(1.0, crossed)


@cache
def _gauss_legendre(count: int) -> tuple[Any, Any]:
    """The nodes and weights of an integral from -1 to 1."""
    from numpy.polynomial.legendre import leggauss

    nodes, weights = leggauss(count)
    return nodes, weights
