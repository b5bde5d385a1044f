"""A test of a planned number of blocks, looked at after each of them: O'Brien and Fleming's bound.

Under no change the sums of the first k of N blocks are a random walk. Over `sqrt(N)` standard deviations it is a
Brownian motion B on 0 to 1, seen at k / N, and by reflection `P(max |B| > c) <= 4 (1 - Phi(c))`. So a comparison may
be looked at after every block, or after any of them, as long as what counts is `c = |z_k| sqrt(k / N)`: next to
nothing early on, nearly all of what a single look gives at the end. z_k is the normal deviate with the tail of the
t statistic of k blocks. After more than N blocks this says nothing.

Sources. O'Brien, Fleming, Biometrics 35 (1979), 549; t statistics by their tails, and intervals that hold at every
look: Jennison, Turnbull, Group Sequential Methods with Applications to Clinical Trials (2000), chapters 3 and 9. The
deviate: Hill, Algorithm 395, Communications of the ACM 13 (1970), 617. Pure Python, as `lab.evidence`.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

FIRST_LOOK = 4
"""Blocks before which no bound is of use, and the deviate is not exact enough."""

_FARTHEST_T = 1e9


def deviate(t: float, freedom: int) -> float:
    """The normal deviate z >= 0 with P(Z > z) = P(T > |t|), T Student's t with `freedom` degrees of freedom.

    Right to .001 from 4 degrees of freedom and for tails down to 1e-5, and closer with more.
    """
    if math.isinf(t):
        return math.inf
    a = freedom - 0.5
    b = 48 * a * a
    z = math.sqrt(a * math.log1p(t * t / freedom))
    far = z * (855 + z**2 * (240 + z**2 * (33 + 4 * z**2)))
    return z + z * (3 + z**2) / b - far / (10 * b * (b + 0.8 * z**4 + 100))


def p_value(n: int, t: float, blocks: int) -> float:
    """The chance, under no change, of ever being as far out in that many planned blocks as t is after n of them."""
    if not FIRST_LOOK <= n <= blocks:
        return 1.0
    c = deviate(t, n - 1) * math.sqrt(n / blocks)
    return min(1.0, 2 * math.erfc(c / math.sqrt(2)))


@cache
def critical_t(n: int, blocks: int, alpha: float) -> float:
    """The |t| after n of the planned blocks at which `p_value` is alpha; infinite where none is."""
    if not FIRST_LOOK <= n <= blocks:
        return math.inf
    goal = NormalDist().inv_cdf(1 - alpha / 4) * math.sqrt(blocks / n)
    low, high = 0.0, 1.0
    while deviate(high, n - 1) < goal:
        low, high = high, 2 * high
        if high > _FARTHEST_T:
            return math.inf
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if deviate(middle, n - 1) < goal else (low, middle)
    return high
