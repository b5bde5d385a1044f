"""Simulated live comparisons through the code that decides them: how often it is wrong, and what it finds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import stats

from lab.compare.rounds import Block, BootReading, Rounds
from lab.stats import sequential
from lab.stats.verdict import Metric, Outcome, primary_of

CHANGED = (Outcome.REGRESSION, Outcome.IMPROVEMENT)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What a simulated host does to every metric; the unit is sigma, the sd of one sample from one fresh boot.

    Boots scatter by boot_sd, samples inside one by sample_sd; an AR(1) drift in time is shared by both arms; outliers
    are slow-downs of outlier_scale |t3|. effect: what the test arm loses of every primary metric. sigma: in logs.
    duet: both arms at the same instant, on halves of the host that disturb each other (15 % more inside a boot).
    """

    effect: float = 0.0
    sigma: float = 0.1
    boot_sd: float = 0.6
    sample_sd: float = 0.8
    drift_sd: float = 0.5
    drift_memory_s: float = 900.0
    outliers: float = 0.02
    outlier_scale: float = 4.0
    boot_s: float = 5.0
    sample_s: float = 5.0
    duet: bool = False

    @property
    def inside_sd(self) -> float:
        """By how much samples of one boot scatter, in sigma."""
        return self.sample_sd * (1.15 if self.duet else 1.0)


@dataclass(frozen=True, kw_only=True)
class Design:
    """A comparison: its cases, the metrics of each (the first one primary), and how far it may go.

    resumed_s: how long an undecided comparison goes on when the budget, for which it was planned, is used up.
    """

    cases: int = 1
    metrics: int = 1
    threshold: float = 0.02
    alpha: float = 0.01
    max_blocks: int = 40
    budget_s: float = math.inf
    resumed_s: float = 0.0
    fixed_iterations: int | None = None
    to_the_end: bool = False


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One comparison: the words of all its metrics at the end, what other tests say, and its cost.

    ever: whether any metric was called changed at any look. naive: the smallest p of t-tests over all iterations.
    planned: p of the t-test over the blocks of the first case, which is right if it is done once, at the end.
    """

    primary: list[Outcome]
    words: list[Outcome]
    ever: bool
    naive: float
    planned: float
    blocks: int
    iterations: float
    seconds: float


class Host:
    """The clock and the luck of one simulated host."""

    def __init__(self, noise: Noise, metrics: dict[str, list[Metric]], seed: tuple[int, ...]) -> None:
        self.noise, self.metrics, self.now_s = noise, metrics, 0.0
        self._random = np.random.default_rng(seed)
        self._number = sum(map(len, metrics.values()))
        self._drift = noise.drift_sd * self._random.standard_normal()

    def block(self, block: Block) -> list[BootReading]:
        """Do one round."""
        if not self.noise.duet:
            return [self._boot(arm, self._instants(block.iterations)) for arm in block.order]
        drift = self._instants(block.iterations)
        return [self._boot(arm, drift) for arm in block.order]

    def _instants(self, iterations: int) -> list[float]:
        """The host's drift at each iteration of one boot, and the time that takes."""
        self._pass(self.noise.boot_s)
        return [self._pass(self.noise.sample_s) for _ in range(iterations)]

    def _pass(self, seconds: float) -> float:
        noise = self.noise
        kept = math.exp(-seconds / noise.drift_memory_s)
        self.now_s += seconds
        self._drift = kept * self._drift + noise.drift_sd * math.sqrt(1 - kept**2) * self._random.standard_normal()
        return self._drift

    def _boot(self, arm: str, drift: Sequence[float]) -> BootReading:
        noise, chance, shape = self.noise, self._random, (self._number, len(drift))
        y = noise.boot_sd * chance.standard_normal((self._number, 1)) + noise.inside_sd * chance.standard_normal(shape)
        y -= (chance.random(shape) < noise.outliers) * noise.outlier_scale * np.abs(chance.standard_t(3, shape))
        rows = iter(np.exp(noise.sigma * (y + np.asarray(drift))))
        values = {case: {m.name: next(rows) for m in metrics} for case, metrics in self.metrics.items()}
        lost = math.exp(-noise.sigma * noise.effect) if arm == "test" else 1.0
        return BootReading(
            arm,
            {
                case: {m.name: (values[case][m.name] * (lost if m.primary else 1.0)).tolist() for m in metrics}
                for case, metrics in self.metrics.items()
            },
        )


def compare(noise: Noise, design: Design, seed: tuple[int, ...]) -> Compared:
    """One comparison, decided by the lab as its blocks come in."""
    metrics = {
        f"case{c}": [Metric(name=f"m{k}", unit="", better="higher", primary=not k) for k in range(design.metrics)]
        for c in range(design.cases)
    }
    host = Host(noise, metrics, seed)
    rounds = Rounds(
        metrics, threshold=design.threshold, alpha=design.alpha, max_blocks=design.max_blocks, seed=seed[-1],
        boot_s=noise.boot_s, sample_s=noise.sample_s, fixed_iterations=design.fixed_iterations,
        fixed_blocks=design.to_the_end,
    )  # fmt: skip
    ever = False
    while block := rounds.next():
        if host.now_s + _round_s(noise, block.iterations) > design.budget_s + design.resumed_s:
            break
        rounds.add(block, host.block(block))
        _plan(rounds, noise, design.budget_s - host.now_s)
        ever |= any(word in CHANGED for word in _words(rounds))
    return Compared(
        primary=[Outcome(primary_of(found).verdict or "unknown") for found in rounds.standing().values()],
        words=_words(rounds),
        ever=ever,
        naive=_naive(rounds),
        planned=float(stats.ttest_1samp(rounds.differences("case0"), 0).pvalue),
        blocks=len(rounds.blocks),
        iterations=float(np.mean([block.iterations for block, _ in rounds.blocks])),
        seconds=host.now_s,
    )


def _round_s(noise: Noise, iterations: float) -> float:
    return (1 if noise.duet else 2) * (noise.boot_s + iterations * noise.sample_s)


def best_possible(noise: Noise, seconds: float, alpha: float) -> float:
    """The share in % of such losses that any test, wrong in alpha at most, can call changed in that time.

    Neyman and Pearson's bound for two sides alike, told more than any test is: how much boots and iterations scatter,
    that nothing drifts and no outlier comes; with the number of iterations that is best, whole or not. Looking early
    or stopping early cannot raise it.
    """

    def standard_error(iterations: float) -> float:
        blocks = seconds / _round_s(noise, iterations)
        return math.sqrt(2 * (noise.boot_sd**2 + noise.inside_sd**2 / iterations) / blocks)

    best = max(1.0, noise.inside_sd / noise.boot_sd * math.sqrt(noise.boot_s / noise.sample_s))
    shift, critical = noise.effect / standard_error(best), stats.norm.isf(alpha / 2)
    return 100 * float(stats.norm.sf(critical - shift) + stats.norm.sf(critical + shift))


def _plan(rounds: Rounds, noise: Noise, left_s: float) -> None:
    """Plan the rounds as `lab.compare.round_runner` does."""
    if rounds.round_plan is not None:
        return
    if math.isinf(left_s):
        rounds.plan(sequential.plan_without_budget(rounds.max_blocks, rounds.min_blocks))
        return
    iterations = rounds.iterations()
    planned = sequential.plan_within(
        left_s, round_s=_round_s(noise, iterations), done=len(rounds.blocks), most=rounds.max_blocks,
        fewest=rounds.min_blocks, iterations=iterations,
    )  # fmt: skip
    if planned:
        rounds.plan(planned)


def _words(rounds: Rounds) -> list[Outcome]:
    return [c.verdict for found in rounds.standing().values() for c in found if c.verdict is not None]


def _naive(rounds: Rounds) -> float:
    """What everybody does: all iterations of all boots in one heap for each arm, and Welch's t-test of the heaps."""

    def heap(arm: str, case: str, metric: str) -> list[float]:
        boots = [boot for _, block in rounds.blocks for boot in block if boot.arm == arm]
        return [math.log(value) for boot in boots for value in boot.values[case][metric]]

    found = [
        stats.ttest_ind(heap("base", case, m.name), heap("test", case, m.name), equal_var=False).pvalue
        for case, metrics in rounds.metrics.items()
        for m in metrics
    ]
    return float(min(found))


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Shares of many comparisons, in %, and means. wrong: some metric is called changed at the end."""

    wrong: float
    ever: float
    found: float
    naive_1: float
    naive_5: float
    planned_1: float
    planned_5: float
    blocks: float
    iterations: float
    seconds: float


def figures(compared: Sequence[Compared]) -> Figures:
    """What many comparisons come to. found: the first case's primary metric is called changed."""

    def share(hits: list[bool]) -> float:
        return 100 * sum(hits) / len(hits)

    return Figures(
        wrong=share([any(word in CHANGED for word in one.words) for one in compared]),
        ever=share([one.ever for one in compared]),
        found=share([one.primary[0] in CHANGED for one in compared]),
        naive_1=share([one.naive < 0.01 for one in compared]),
        naive_5=share([one.naive < 0.05 for one in compared]),
        planned_1=share([one.planned < 0.01 for one in compared]),
        planned_5=share([one.planned < 0.05 for one in compared]),
        blocks=float(np.mean([one.blocks for one in compared])),
        iterations=float(np.mean([one.iterations for one in compared])),
        seconds=float(np.mean([one.seconds for one in compared])),
    )


def many(noise: Noise, design: Design, comparisons: int, seed: int, jobs: int = 1) -> list[Compared]:
    """So many comparisons, each on a host of its own."""
    one = partial(compare, noise, design)
    seeds = [(seed, i) for i in range(comparisons)]
    if jobs == 1:
        return [one(each) for each in seeds]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(one, seeds, chunksize=4))
