"""Simulated comparisons of exact mode with work that others do and with waits, through the code that decides them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lab.compare import sampling
from lab.stats import whole
from lab.stats.defaults import ALPHA, FIRST_LOOK_SEEDS, MAX_SEEDS, MORE_SEEDS, SEEDS, THRESHOLD
from lab.stats.verdict import Comparison, Metric, Outcome, compare_metric

LOOKS = (FIRST_LOOK_SEEDS, *range(SEEDS, MAX_SEEDS + 1, MORE_SEEDS))


@dataclass(frozen=True, kw_only=True)
class World:
    """A case, in shares of the caller's cost and of its time in base.

    caller, deferred, waits: the true changes in the test arm; deferred work and waits are added. background, waited: of
    both arms. scatter: sd of the caller's log, by seed and arm; deferred_sd and waits_sd: of what is deferred and
    waited, in the caller's cost and time. burst: the share of windows in which a thread does as much as the caller.
    """

    caller: float = 0.0
    deferred: float = 0.0
    waits: float = 0.0
    background: float = 0.02
    waited: float = 0.2
    scatter: float = 0.002
    deferred_sd: float = 0.01
    waits_sd: float = 0.005
    burst: float = 0.05


def worlds() -> Iterator[tuple[str, World, Outcome | None]]:
    """Labels, worlds, and the word that is false there; None for any change."""
    plain, better, same = World(), Outcome.IMPROVEMENT, Outcome.SAME
    for moved in (0.03, 0.1, 0.3):
        one = replace(plain, caller=-moved, deferred=moved)
        label = f"{100 * moved:.0f} % of the caller moved"
        yield label, one, better
        yield f"{label}, deferred work scatters by 5 %", replace(one, deferred_sd=0.05), better
        yield f"{label}, a burst in 15 % of windows", replace(one, burst=0.15), better
    yield "10 % moved, and 5 % more", replace(plain, caller=-0.1, deferred=0.15), better
    yield "as much work, waits +4 % of the time", replace(plain, waits=0.04), same
    yield "waits +4 %, which scatter by 2 %", replace(plain, waits=0.04, waits_sd=0.02), same
    yield "waits -10 %", replace(plain, waits=-0.1), same
    yield "10 % better, waits +10 %", replace(plain, caller=-0.1, waits=0.1), better
    yield "10 % of deferred work more", replace(plain, deferred=0.1), same
    yield "nothing changed", plain, None
    yield "nothing changed, all scatter by 1 %", World(scatter=0.01, deferred_sd=0.01, waits_sd=0.01), None
    for gain in (0.04, 0.1, 0.3):
        yield f"{100 * gain:.0f} % better, nothing moved", replace(plain, caller=-gain), Outcome.REGRESSION
    yield "10 % better, a tenth of it moved", replace(plain, caller=-0.1, deferred=0.01), Outcome.REGRESSION


def words(world: World, comparisons: int, seed: int) -> Counter[Outcome]:
    """The words at the end of so many comparisons."""
    chance = np.random.default_rng(seed)
    return Counter(_compared(world, chance) for _ in range(comparisons))


def _compared(world: World, chance: np.random.Generator) -> Outcome:
    """The word of one comparison, which looks again as the lab does."""
    amounts = _drawn(world, chance)
    for look in LOOKS:
        primary = _look(*([arm[:look].tolist() for arm in one] for one in amounts))
        if primary.verdict != Outcome.UNKNOWN or (look >= SEEDS and not sampling.can_be_settled(primary, MAX_SEEDS)):
            break
    return primary.verdict or Outcome.UNKNOWN


Arms = list[list[float]]


def _look(caller: Arms, deferred: Arms, waited: Arms) -> Comparison:
    time = [[0.8 + wait for wait in arm] for arm in waited]
    primary = sampling.weigh(_judged("cycles", caller), three_decide=False, threshold=THRESHOLD, max_seeds=MAX_SEEDS)
    return whole.weigh(
        primary, _judged("cycles", deferred), _judged("ns", time), _judged("ns", waited),
        threshold=THRESHOLD, alpha=ALPHA, chosen=False,
    )[0]  # fmt: skip


def _judged(unit: str, arms: Arms) -> Comparison:
    return compare_metric(Metric(name=unit, unit=unit, better="lower", primary=True), *arms, exact=True)


def _amounts(means: np.ndarray, sd: float, chance: np.random.Generator) -> np.ndarray:
    """Amounts that are never negative, by seed: of a gamma law, with one mean for each arm."""
    return chance.gamma((means / sd) ** 2, sd**2 / means, (2, MAX_SEEDS))


def _drawn(world: World, chance: np.random.Generator) -> list[list[np.ndarray]]:
    """Of the caller, of deferred work and of waits: an amount of each seed, in both arms."""
    size = (2, MAX_SEEDS)
    arms = np.array([[0.0], [1.0]])
    caller = (1 + world.caller * arms) * np.exp(world.scatter * chance.standard_normal(size))
    deferred = _amounts(world.background + world.deferred * arms, world.deferred_sd, chance)
    deferred += chance.random(size) < world.burst
    waited = _amounts(world.waited + world.waits * arms, world.waits_sd, chance)
    return [[*caller], [*deferred], [*waited]]
