"""Sequential test over blocks: an always-valid e-value, plus O'Brien-Fleming bounds when their number is planned.

Without a plan the e-value has all of alpha. With one it keeps a twentieth: it finds very large changes early, and
continues beyond the plan. Most of the rest is the plan's, which finds small changes sooner (see `lab.stats.evidence`).
Both hold at all looks together. The rest of alpha is for noise that is not normal: two kinds of boots, whole
numbers.

The number of rounds of a comparison is planned once, before the changes are seen. It comes from the options and from
the time that rounds take, and never from how the kernels compare.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

from lab.core.records import Record
from lab.stats import evidence
from lab.stats.defaults import FIRST_LOOK_ROUNDS
from lab.stats.evidence import Moments

PLAN_SHARE = 0.82
"""The plan's part of alpha."""

FREE_SHARE = 0.05
"""The part of alpha that the e-value has beside a plan."""

_LIMIT = 10_000
_POWER = 0.8

Interval = tuple[float, float]

NO_BAND = (0.0, 0.0)
"""The threshold of a test that asks for any change at all."""


class SequentialTest(NamedTuple):
    """A test with an error of alpha over all looks.

    blocks: the number planned; None without any plan, 0 before it is made.
    exact: the numbers carry no noise, so they need no test.
    """

    alpha: float
    blocks: int | None = None
    exact: bool = False

    @property
    def _free(self) -> float:
        """The e-value's part of alpha."""
        return self.alpha if self.blocks is None else FREE_SHARE * self.alpha

    def critical_t(self, n: int) -> float:
        """The |t| from which the change of n blocks is beyond chance; infinite if n blocks cannot show one."""
        free = evidence.critical_t(n, self._free)
        if self.blocks is None or n > self.blocks:
            return free
        return min(free, evidence.bound_t(n, self.blocks, PLAN_SHARE * self.alpha))

    # ---- of blocks that are in

    def moments(self, x: Sequence[float]) -> Moments:
        """The moments of x as the test uses them."""
        return evidence.moments(x) if self.exact else evidence.noisy_moments(x)

    def p_value(self, x: Sequence[float]) -> float:
        """The chance, under no change, of ever seeing evidence as strong as that of x."""
        m = self.moments(x)
        free = min(1.0, evidence.p_value(evidence.log_evidence(m)) * self.alpha / self._free)
        if not self.blocks:
            return free
        if len(x) > self.blocks:
            return min(free, self.p_value(x[: self.blocks]))
        t = evidence.t_statistic(m)
        # Infinite t is about numbers without any spread, and the e-value gives the number that they need.
        return free if math.isinf(t) else min(free, evidence.bound_p_value(len(x), t, self.blocks) / PLAN_SHARE)

    def interval(self, x: Sequence[float]) -> Interval | None:
        """Interval of the mean with coverage 1 - alpha at all looks together; it leaves out 0 when p < alpha.

        No width without spread (from three blocks on); None if no finite interval exists yet. Beyond the plan it
        lies inside the interval of the plan's last block.
        """
        bounds = evidence.bounds(self.moments(x), self.critical_t(len(x)))
        if not self.blocks or len(x) <= self.blocks:
            return bounds
        return _common(bounds, self.interval(x[: self.blocks]))

    # ---- of blocks to come

    def detectable_effect(self, n: int, sd: float) -> float | None:
        """The |mean| that is beyond chance after n blocks of standard deviation sd, with a chance of 80 %.

        `delta sd / sqrt(n)`, delta the noncentrality with P(T >= critical_t) = .8, T noncentral t with n - 1 degrees of
        freedom. Looking at earlier blocks too can only help. None if n blocks cannot show a change.
        """
        critical = self.critical_t(n)
        return None if math.isinf(critical) else _noncentrality(n, critical) * sd / math.sqrt(n)

    def blocks_to_settle(
        self, m: Moments, *, band: Interval = NO_BAND, min_blocks: int, fewest: int = FIRST_LOOK_ROUNDS
    ) -> int | None:
        """The number of further blocks that settle it if mean and sd stay as they are; None: over 10,000 in all.

        It is settled when the interval lies inside the band (log units; from `fewest` blocks on), or leaves out 0 while
        the mean is beyond the band (from `min_blocks` on). With noise this is about the median of the real number. Up
        to 40 blocks in all, and for the last of a plan, it is exact; above that within 5 %.
        """
        beyond = not band[0] <= m.mean <= band[1]
        if m.sd == 0:
            return max(1, (min_blocks if beyond else fewest) - m.n)

        def settles(n: int) -> bool:
            half = self.critical_t(n) * m.sd / math.sqrt(n)
            if beyond:
                return n >= min_blocks and half < abs(m.mean)
            return n >= fewest and band[0] <= m.mean - half and m.mean + half <= band[1]

        last = self.blocks if self.blocks and self.blocks > m.n else None
        numbers = (n for n in _block_numbers() if n > m.n)
        later = sorted({*numbers, last}) if last else list(numbers)
        # A case that the plan has settled at its end stays settled, though at the block after it the e-value is alone.
        first = bisect_left(later, True, key=lambda n: settles(n) or (last is not None and n > last and settles(last)))
        return later[first] - m.n if first < len(later) else None


def _common(one: Interval | None, other: Interval | None) -> Interval | None:
    """The part that two intervals share; the first one if they share nothing."""
    if one is None or other is None:
        return one or other
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low <= high else one


@cache
def _noncentrality(n: int, critical: float) -> float:
    """The delta > 0 at which a noncentral t with n - 1 degrees of freedom exceeds `critical` with a chance of `_POWER`.

    With W = sqrt(chi^2_nu / nu): `P(T >= h) = E[Phi(delta - h W)]`, an integral over the law of W.
    """
    nodes, normal = _chi_nodes(n - 1), NormalDist()
    low, high = 0.0, 4 * critical + 10
    for _ in range(40):
        delta = (low + high) / 2
        chance = math.fsum(weight * normal.cdf(delta - critical * w) for w, weight in nodes)
        low, high = (delta, high) if chance < _POWER else (low, delta)
    return high


def _chi_nodes(nu: int) -> list[tuple[float, float]]:
    """Midpoints and probabilities of W = sqrt(chi^2_nu / nu), over all that is not below 1e-12."""
    steps, spread = 400, 8 / math.sqrt(2 * nu)
    low, high = max(0.0, 1 - spread), 1 + spread
    points = [low + (high - low) * (i + 0.5) / steps for i in range(steps)]
    density = [math.exp((nu - 1) * math.log(w) - nu * (w * w - 1) / 2) for w in points]
    total = math.fsum(density)
    return [(w, d / total) for w, d in zip(points, density, strict=True)]


@cache
def _block_numbers() -> tuple[int, ...]:
    """Block numbers worth planning for; few, so that `critical_t` is computed once for all metrics."""
    numbers = list(range(2, 41))
    while numbers[-1] < _LIMIT:
        numbers.append(math.ceil(numbers[-1] * 1.05))
    return tuple(numbers)


PLAN_AFTER = 1 / 3
"""The part of the rounds that time allows, after which their length and the best iterations are known well enough."""

FEWEST_SEEN = 4
"""Rounds before which no plan is made."""

_SHORTEST_S = 1e-3


class RoundPlan(Record, frozen=True, kw_only=True):
    """The planned number of rounds. iterations: of the boots after that; None: estimated before each round."""

    schema: int = 1
    rounds: int
    iterations: int | None


def plan_without_budget(most: int, fewest: int) -> RoundPlan:
    """The plan of a comparison without a budget: the most rounds that were requested."""
    return RoundPlan(rounds=max(most, fewest), iterations=None)


def plan_within(
    left_s: float, *, round_s: float, done: int, most: int, fewest: int, iterations: int
) -> RoundPlan | None:
    """The plan of a comparison with that much time left; None while it is too early.

    round_s: the length of a round with that many iterations.
    done: rounds so far.
    most, fewest: rounds that may be planned.
    """
    rounds = max(fewest, min(most, done + math.floor(max(0.0, left_s) / max(round_s, _SHORTEST_S))))
    if done < max(FEWEST_SEEN, PLAN_AFTER * rounds):
        return None
    return RoundPlan(rounds=rounds, iterations=iterations)
