"""Simulated searches: how often they are right, how often they say so, and what they cost."""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from lab.bisection.acquisition import Costs
from lab.bisection.live_search import LiveSearch, Result, SearchOutcome, StoppingRules
from lab.stats.evidence import Estimate
from lab.stats.posterior import NO_DRIFT, Image, Reading

from .world import Noise, World

INDEPENDENT = NO_DRIFT
"""Readings without a drift in common: what a search believes that has no model of it."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """One search: its answer, whether that is right, and its cost. forecasts: (seconds promised, seconds it took)."""

    done: Result
    right: bool
    samples: int
    builds: int
    seconds: float
    forecasts: tuple[tuple[float, float], ...]

    @property
    def named(self) -> bool:
        """Whether it claims to have an answer."""
        return self.done.outcome in (SearchOutcome.FOUND, SearchOutcome.CONFIRMED)

    @property
    def confirmed(self) -> bool:
        """Whether fresh boots bore the answer out."""
        return self.done.outcome is SearchOutcome.CONFIRMED


def search(noise: Noise, rules: StoppingRules, seed: tuple[int, ...]) -> Found:
    """Let the lab search one simulated history."""
    world = World(noise, seed)
    costs = Costs(noise.build_s, noise.boot_s + noise.sample_s)
    live = LiveSearch(noise.commits, costs=costs, rules=rules, seed=seed[-1])
    forecasts: list[tuple[float, float]] = []
    while not isinstance(step := live.next(), Result):
        if (promised := live.outlook().seconds_left) is not None:
            forecasts.append((promised, world.now_s))
        if not world.build(Image(step.commit)):
            live.skip(step.commit)
            continue
        for image in step.boots:
            world.build(image)
            value = world.boot(image)
            live.record(Reading(image.commit, world.now_s, value, image.layout))
    return Found(
        done=step,
        right=noise.effect != 0 and world.culprit in step.suspects and set(step.suspects[:-1]) <= world.broken,
        samples=world.samples,
        builds=world.builds,
        seconds=world.now_s,
        forecasts=tuple((promised, world.now_s - at_s) for promised, at_s in forecasts),
    )


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Means over many searches, in %, numbers and seconds. right_named: of those that name a commit.

    confirmed, misled: numbers of confirmed answers, and of those among them that are wrong. begun: of those that
    went beyond the ends.
    """

    searches: int
    right: float
    named: float
    claimed: float
    right_named: float
    confirmed: int
    misled: int
    begun: float
    samples: float
    builds: float
    seconds: float
    cpu_s: float


def many(noise: Noise, rules: StoppingRules, searches: int, seed: int, jobs: int = 1) -> tuple[Figures, list[Found]]:
    """So many searches, each of its own history."""
    started = _cpu_s()
    seeds = [(seed, i) for i in range(searches)]
    one = partial(search, noise, rules)
    if jobs == 1:
        found = [one(each) for each in seeds]
    else:
        with ProcessPoolExecutor(jobs) as pool:
            found = list(pool.map(one, seeds, chunksize=4))
    return _figures(found, _cpu_s() - started), found


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.children_user


def halvings(noise: Noise, searches: int, seed: int, boots: int = 10) -> tuple[Figures, list[Found]]:
    """`git bisect run` with a threshold half-way between the ends, as everybody does it."""
    started = _cpu_s()
    found = [_halving(World(noise, (seed, i)), boots) for i in range(searches)]
    return _figures(found, _cpu_s() - started), found


def _halving(world: World, boots: int) -> Found:
    def mean(commit: int) -> float:
        world.build(Image(commit))
        return _mean([world.boot(Image(commit)) for _ in range(boots)])

    low, high = 0, world.noise.commits
    threshold = (mean(low) + mean(high)) / 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if mean(middle) > threshold else (low, middle)
    done = Result(
        outcome=SearchOutcome.FOUND, reason="", last_good=low, first_bad=high, suspects=(high,), probability=math.nan,
        effect=Estimate(math.nan, None),
    )  # fmt: skip
    right = world.noise.effect != 0 and high == world.culprit
    return Found(done=done, right=right, samples=world.samples, builds=world.builds, seconds=world.now_s, forecasts=())


def _figures(found: Sequence[Found], cpu_s: float) -> Figures:
    named = [each for each in found if each.named]
    return Figures(
        searches=len(found),
        right=100 * _mean([each.right for each in found]),
        named=100 * _mean([each.named for each in found]),
        claimed=100 * _mean([each.done.probability for each in named]),
        right_named=100 * _mean([each.right for each in named]),
        confirmed=sum(each.confirmed for each in found),
        misled=sum(each.confirmed and not each.right for each in found),
        begun=100 * _mean([each.done.outcome is not SearchOutcome.NO_CULPRIT for each in found]),
        samples=_mean([each.samples for each in found]),
        builds=_mean([each.builds for each in found]),
        seconds=_mean([each.seconds for each in found]),
        cpu_s=cpu_s,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
