"""How many rounds a comparison has ahead of it: planned once, and kept.

A test that may be looked at after each of N rounds (`lab.planned`) needs N before the changes are seen, so it comes
from the options and from how long rounds take, and never from how the kernels compare.
"""

from __future__ import annotations

import math

from lab.records import Record

PLAN_AFTER = 1 / 3
"""Of the rounds that time allows: then what they take, and how many iterations are best, are known well enough."""

FEWEST_SEEN = 4
_SHORTEST_S = 1e-3


class Horizon(Record, frozen=True, kw_only=True):
    """The rounds that were planned, and the iterations of the boots after that; None: judged before each round."""

    schema: int = 1
    rounds: int
    iterations: int | None


def without_budget(most: int, fewest: int) -> Horizon:
    """Of a comparison that has all the time it wants: the most rounds that were asked for."""
    return Horizon(rounds=max(most, fewest), iterations=None)


def within(left_s: float, *, round_s: float, done: int, most: int, fewest: int, iterations: int) -> Horizon | None:
    """Of a comparison with so much time left; None as long as it is too early to plan.

    round_s: what a round takes with that many iterations. done: rounds so far; most, fewest: that may be planned.
    """
    rounds = max(fewest, min(most, done + math.floor(max(0.0, left_s) / max(round_s, _SHORTEST_S))))
    if done < max(FEWEST_SEEN, PLAN_AFTER * rounds):
        return None
    return Horizon(rounds=rounds, iterations=iterations)
