"""Iterations inside boots: the one number of a boot, warm-up, and the noise between and inside boots.

The boot is the sampled unit. Its iterations share the same layout of pages and code, so thirty iterations of one boot
say little more than one: each boot gives one summary, and iterations of several boots are never pooled.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lab.core.records import Record
from lab.stats import evidence

MEDIAN_FROM = 3
"""The number of iterations from which on a boot's number is their median, which one outlier cannot move far."""

MOST_WARM = 3
MOST_ITERATIONS = 10
WARM_EVIDENCE = math.log(100)
_PRIOR_BLOCKS = 6


class WarmUp(Record, frozen=True, kw_only=True):
    """The first iterations of a case's boots, beside the rest of the same boot.

    boots: how many have enough iterations to judge. shift: the first iteration over the rest, as a ratio, None if not
    judged. dropped: how many first iterations are left out of every boot's number.
    """

    boots: int
    shift: float | None
    dropped: int

    def __str__(self) -> str:
        if self.shift is None:
            return "warm-up not judged: one iteration a boot"
        first = f"first iterations {100 * (self.shift - 1):+.1f} % over {self.boots} boots"
        return f"{first}: {self.dropped} dropped" if self.dropped else f"{first}: kept, no warm-up beyond chance"


class Spread(NamedTuple):
    """Standard deviations of logs: of boots of one kernel (in one block), and of iterations in one boot."""

    boot: float
    iteration: float


def summary(values: Sequence[float], dropped: int = 0) -> float:
    """One number for a boot: the median of its iterations from three on, else the mean of their logs.

    dropped: iterations of warm-up, left out if one remains. NaN without any iteration, or with one
    that is not a number.
    """
    kept = values[min(dropped, len(values) - 1) :] if values else []
    if not kept or not all(map(math.isfinite, kept)):
        return math.nan
    if len(kept) >= MEDIAN_FROM:
        return statistics.median(kept)
    return together(kept)


def together(values: Sequence[float]) -> float:
    """The mean of logs, as a value again; the plain mean if a zero or less forbids logs."""
    if all(v == values[0] for v in values):
        return values[0]  # to the last digit
    if not all(v > 0 for v in values):
        return math.fsum(values) / len(values)
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def warm_up(boots: Iterable[Sequence[float]]) -> WarmUp:
    """Judge the first iterations of boots, of both arms together: are they like the rest of their boot?

    An iteration is dropped when the evidence that it differs is 100 : 1 or more (the e-value of the verdict, on the
    log of the iteration over the median of those after it; one number a boot); then the next is judged, up to three.
    Both arms are judged as one, so that this can never make one of them look better.
    """
    logs = [[math.log(v) for v in boot] for boot in boots if boot and all(0 < v < math.inf for v in boot)]
    dropped, first = 0, _excess(logs, 0)
    while dropped < MOST_WARM:
        excess = _excess(logs, dropped)
        if len(excess) < 2 or evidence.log_evidence(evidence.noisy_moments(excess)) < WARM_EVIDENCE:
            break
        dropped += 1
    shift = math.exp(statistics.median(first)) if first else None
    return WarmUp(boots=len(first), shift=shift, dropped=dropped)


def _excess(logs: Iterable[Sequence[float]], place: int) -> list[float]:
    """Of each boot with more iterations after that place: the iteration there over their median."""
    return [boot[place] - statistics.median(boot[place + 1 :]) for boot in logs if len(boot) > place + 1]


def spread(differences: Sequence[float], boots: Sequence[Sequence[float]]) -> Spread | None:
    """The noise between boots and inside them; None without enough boots.

    differences: log(test) - log(base) of the blocks. boots: the iterations of all boots, without warm-up. A block's
    difference has twice the variance of a boot's number, which is that of boots plus its share of the iterations'.
    Outliers are pulled in (blocks), or have no weight (the median over boots), else one would steer the plan. Few
    blocks say little: six more are imagined in which boots scatter as much as iterations do.
    """
    several = [[math.log(v) for v in boot] for boot in boots if len(boot) > 1 and all(0 < v < math.inf for v in boot)]
    if len(differences) < 2 or not several or not all(map(math.isfinite, differences)):
        return None
    inside = statistics.median(statistics.variance(boot) / _median_chi(len(boot) - 1) for boot in several)
    share = statistics.fmean(_share(len(boot)) for boot in boots if boot)
    n, seen = len(differences), evidence.moments(evidence.clip(differences)).sd ** 2 / 2
    total = (n * seen + _PRIOR_BLOCKS * (1 + share) * inside) / (n + _PRIOR_BLOCKS)
    return Spread(math.sqrt(max(0.0, total - share * inside)), math.sqrt(inside))


def iterations(spreads: Sequence[Spread], *, boot_s: float, sample_s: float) -> int:
    """The iterations a boot that make the most of machine time: the least variance times cost, up to ten.

    For means that is at `sigma_iteration / sigma_boot sqrt(boot_s / sample_s)` (Kalibera and Jones, Rigorous
    benchmarking in reasonable time, ISMM 2013); medians count as their real cost. For several cases it is the geometric
    mean.
    """

    def price(m: int) -> float:
        variances = (s.boot**2 + _share(m) * s.iteration**2 for s in spreads)
        return (boot_s + m * sample_s) * statistics.geometric_mean(variances)

    return min(range(1, MOST_ITERATIONS + 1), key=price)


def _median_chi(freedom: int) -> float:
    """The median of chi^2 / degrees of freedom (Wilson, Hilferty, PNAS 17 (1931), 684)."""
    return (1 - 2 / (9 * freedom)) ** 3


def _share(n: int) -> float:
    """Variance of a boot's number over that of one iteration; a median of few is a third worse than a mean."""
    return (1.35 if n >= MEDIAN_FROM else 1.0) / n
