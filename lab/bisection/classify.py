"""The level of a commit's values: the old end's, the new end's, another one, or none that is clear. Pure.

All values are one number a seed, the same seeds for all commits, so they are compared in pairs, on log ratios.
Two are alike when their mean log ratio is within the dead band: the threshold, but never more than a third of the
difference between the ends, so that nothing is like both ends. Numbers without spread are decided by their values;
where the seeds disagree, three standard errors are kept clear of the band's edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lab.stats import evidence

_BAND_OF_EFFECT = 1 / 3
_ERRORS_APART = 3.0


@dataclass(frozen=True, slots=True)
class Distance:
    """Mean log ratio of values over reference, and three standard errors of it. Infinite where there are no logs."""

    mean: float
    error: float = 0.0

    @property
    def size(self) -> float:
        """The distance without its direction."""
        return abs(self.mean)


@dataclass(frozen=True, slots=True)
class Level:
    """The level of a commit, by its number. None: a `new` level, or none that is clear, for the reason in `why`."""

    number: int | None
    new: bool = False
    why: str = ""


def distance(values: Sequence[float], reference: Sequence[float]) -> Distance:
    """The distance of values from a reference, seed by seed. ValueError when they are not as many."""
    if len(values) != len(reference) or not values:
        raise ValueError(f"{len(values)} values against {len(reference)}")
    pairs = list(zip(values, reference, strict=True))
    if all(value == other for value, other in pairs):
        return Distance(0.0)
    if min(*values, *reference) <= 0:
        # Counters may be zero. From or to zero, or across it, there is no ratio: as different as can be.
        return Distance(math.copysign(math.inf, math.fsum(values) - math.fsum(reference)))
    moments = evidence.moments([math.log(value) - math.log(other) for value, other in pairs])
    return Distance(moments.mean, _ERRORS_APART * moments.sd / math.sqrt(moments.n))


def band(old: Sequence[float], new: Sequence[float], threshold: float) -> float:
    """The dead band's half width in log units, given the ends; the threshold alone for ends that are alike."""
    full, apart = math.log1p(threshold), distance(new, old).size
    return full if apart <= full else min(full, apart * _BAND_OF_EFFECT)


def classify(values: Sequence[float], levels: Sequence[Sequence[float]], half_width: float) -> Level:
    """The level of a commit, given the values of all levels so far, the old end's first.

    Where one side has fewer values, the seeds that both have are compared.
    """
    if any(not math.isfinite(value) for value in values):
        return Level(None, why="a value is not a number")
    pairs = [(values[: len(known)], known[: len(values)]) for known in levels]
    for level, (mine, known) in enumerate(pairs):
        if list(mine) == list(known):
            return Level(level)
    far = [distance(mine, known) for mine, known in pairs]
    order = sorted(range(len(levels)), key=lambda level: far[level].size)
    nearest = far[order[0]]
    if nearest.size <= half_width:
        return _alike(order, far)
    if nearest.size - nearest.error > half_width:
        return Level(None, new=True)
    # Beyond the band, but perhaps not really. Clear all the same if everything else is much further away.
    if len(order) > 1 and far[order[1]].size - far[order[1]].error > 3 * (nearest.size + nearest.error):
        return Level(order[0])
    return Level(None, why=f"the seeds disagree: {_spread(nearest)} from the nearest level")


def _alike(order: Sequence[int], far: Sequence[Distance]) -> Level:
    """The nearest level, unless the next one is hardly further."""
    first = far[order[0]]
    if len(order) > 1 and far[order[1]].size < 2 * first.size:
        return Level(None, why="as near to one level as to another")
    return Level(order[0])


def _spread(distance: Distance) -> str:
    return f"{100 * math.expm1(distance.mean):+.1f} % ± {100 * distance.error:.1f}"
