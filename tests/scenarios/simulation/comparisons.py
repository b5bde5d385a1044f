"""Simulated live comparisons through the code that decides them: how often it is wrong, and what it finds."""

import math
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from scipy import stats

from lab.compare import certificates
from lab.compare import rounds as lab_rounds
from lab.compare.rounds import Block, BootReading, Covariate, Rounds, order
from lab.stats import sequential
from lab.stats.defaults import MIN_PAIRS
from lab.stats.verdict import Metric, Outcome, primary_of

CHANGED = (Outcome.REGRESSION, Outcome.IMPROVEMENT)
CONTROL = "control"


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What a simulated host does to every metric; the unit is sigma, the sd of one sample from one fresh boot.

    Boots scatter by boot_sd, samples inside one by sample_sd; an AR(1) drift in time is shared by both arms; outliers
    are slow-downs of outlier_scale |t3|. effect: what the test arm loses of every primary metric. sigma: in logs.
    duet: both arms at the same instant, on halves of the host that disturb each other (15 % more inside a boot).

    law: of boots and of samples; a lognormal one is a delay, of median 1, whose log has an sd of 1. slow: the share of
    boots that take 1 + slow_by times as long; slow_test: the same of the test arm, where that is the change. whole: the
    metric is a whole number, of this mean; 0: it has all digits. shared: the part of the variance that all cases of a
    boot have in common; with any, a control is measured as well.
    """

    law: Literal["normal", "t3", "lognormal"] = "normal"
    slow: float = 0.0
    slow_test: float | None = None
    slow_by: float = 0.0
    whole: float = 0.0
    shared: float = 0.0
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

    @property
    def change(self) -> float:
        """The true mean of log(test) - log(base) of a primary metric."""
        slower = 0.0 if self.slow_test is None else self.slow_test - self.slow
        return -self.sigma * self.effect - slower * math.log1p(self.slow_by)


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

    ever: whether any metric was called changed at any look. covered: whether the interval of the first case holds the
    true change at the end. naive: the smallest p of t-tests over all iterations.
    planned: p of the t-test over the blocks of the first case, which is right if it is done once, at the end.
    """

    primary: list[Outcome]
    words: list[Outcome]
    ever: bool
    covered: bool
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
        y = noise.boot_sd * self._noise((self._number, 1)) + noise.inside_sd * self._noise(shape)
        if noise.shared:
            common = noise.boot_sd * self._noise((1, 1)) + noise.inside_sd * self._noise((1, len(drift)))
            y = math.sqrt(noise.shared) * common + math.sqrt(1 - noise.shared) * y
        y -= (chance.random(shape) < noise.outliers) * noise.outlier_scale * np.abs(chance.standard_t(3, shape))
        logs = noise.sigma * (y + np.asarray(drift))
        share = noise.slow if arm == "base" or noise.slow_test is None else noise.slow_test
        if share:
            logs -= (chance.random((self._number, 1)) < share) * math.log1p(noise.slow_by)
        rows = iter(logs)
        lost = noise.sigma * noise.effect if arm == "test" else 0.0
        values: dict[str, dict[str, list[float]]] = {case: {} for case in self.metrics}
        for case, metrics in self.metrics.items():
            for one in metrics:
                values[case][one.name] = self._values(next(rows) - (lost if one.primary and case != CONTROL else 0.0))
        return BootReading(arm, values)

    def _noise(self, shape: tuple[int, int]) -> np.ndarray:
        """Noise of the host's law, the slow side negative."""
        match self.noise.law:
            case "t3":
                return self._random.standard_t(3, shape)
            case "lognormal":
                return -self._random.lognormal(size=shape)
        return self._random.standard_normal(shape)

    def _values(self, logs: np.ndarray) -> list[float]:
        """The values of a metric, by their logs around 0."""
        if not self.noise.whole:
            return [float(value) for value in np.exp(logs)]
        return [float(value) for value in np.maximum(1.0, np.round(self.noise.whole * np.exp(logs)))]


def compare(noise: Noise, design: Design, seed: tuple[int, ...]) -> Compared:
    """One comparison, decided by the lab as its blocks come in."""
    cases = [*(f"case{c}" for c in range(design.cases)), *([CONTROL] if noise.shared else [])]
    metrics = {
        case: [Metric(name=f"m{k}", unit="", better="higher", primary=not k) for k in range(design.metrics)]
        for case in cases
    }
    host = Host(noise, metrics, seed)
    asked = lab_rounds.Design(
        threshold=design.threshold, alpha=design.alpha, max_blocks=design.max_blocks, seed=seed[-1],
        fixed_iterations=design.fixed_iterations, fixed_blocks=design.to_the_end,
    )  # fmt: skip
    covariates = _covariates(noise, metrics, seed)
    rounds = Rounds(metrics, asked, boot_s=noise.boot_s, sample_s=noise.sample_s, covariates=covariates)
    ever = False
    while block := rounds.next():
        if host.now_s + _round_s(noise, block.iterations) > design.budget_s + design.resumed_s:
            break
        rounds.add(block, host.block(block))
        _plan(rounds, noise, design, design.budget_s - host.now_s)
        ever |= any(word in CHANGED for word in _words(rounds))
    return Compared(
        primary=[Outcome(primary_of(rounds.standing()[case]).verdict or "unknown") for case in cases],
        words=_words(rounds),
        ever=ever,
        covered=_covers(primary_of(rounds.standing()["case0"]).interval, noise.change),
        naive=_naive(rounds),
        planned=_one_look(rounds),
        blocks=len(rounds.blocks),
        iterations=float(np.mean([block.iterations for block, _ in rounds.blocks])),
        seconds=host.now_s,
    )


def _covariates(noise: Noise, metrics: dict[str, list[Metric]], seed: tuple[int, ...]) -> dict[str, Covariate]:
    """The covariates by a noise certificate of the host: 30 rounds of one kernel, measured before."""
    if not noise.shared:
        return {}
    host = Host(replace(noise, effect=0.0), metrics, (*seed, 1))
    to_the_end = lab_rounds.Design(
        threshold=0.0, alpha=0.01, max_blocks=30, seed=0, fixed_iterations=2, fixed_blocks=True
    )
    rounds = Rounds(metrics, to_the_end, boot_s=5.0, sample_s=5.0)
    for number in range(30):
        block = Block(number, order(0, number), 2)
        rounds.add(block, host.block(block))
    z, found = rounds.differences(CONTROL), {}
    for case in metrics:
        x = rounds.differences(case)
        if case != CONTROL and abs(correlation := statistics.correlation(z, x)) >= certificates.LEAST_CORRELATION:
            slope = statistics.linear_regression(z, x).slope
            found[case] = Covariate(control=CONTROL, slope=slope, correlation=correlation, pairs=30)
    return found


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


def _covers(interval: tuple[float, float] | None, change: float) -> bool:
    return interval is None or interval[0] <= math.exp(change) <= interval[1]


def _plan(rounds: Rounds, noise: Noise, design: Design, left_s: float) -> None:
    """Plan the rounds as `lab.compare.round_runner` does."""
    if rounds.round_plan is not None:
        return
    if math.isinf(left_s):
        rounds.plan(sequential.plan_without_budget(rounds.design.max_blocks, MIN_PAIRS))
        return
    iterations = rounds.iterations()
    planned = sequential.plan_within(
        left_s, round_s=_round_s(noise, iterations), done=len(rounds.blocks), most=rounds.design.max_blocks,
        fewest=MIN_PAIRS, iterations=iterations,
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

    if len({*heap("base", "case0", "m0"), *heap("test", "case0", "m0")}) < 2:
        return 1.0  # no spread
    found = [
        stats.ttest_ind(heap("base", case, m.name), heap("test", case, m.name), equal_var=False).pvalue
        for case, metrics in rounds.metrics.items()
        for m in metrics
    ]
    return float(min(found))


def _one_look(rounds: Rounds) -> float:
    """The p of a t-test over the rounds of the first case, done once."""
    x = rounds.differences("case0")
    return float(stats.ttest_1samp(x, 0).pvalue) if len({*x}) > 1 else 1.0


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Shares of many comparisons, in %, and means. wrong: some metric is called changed at the end.

    found, same: what the first case's primary metric is called; covered: the true change is in its interval.
    """

    wrong: float
    ever: float
    found: float
    same: float
    covered: float
    naive_1: float
    naive_5: float
    planned_1: float
    planned_5: float
    blocks: float
    iterations: float
    seconds: float


def figures(compared: Sequence[Compared]) -> Figures:
    def share(hits: list[bool]) -> float:
        return 100 * sum(hits) / len(hits)

    return Figures(
        wrong=share([any(word in CHANGED for word in one.words) for one in compared]),
        ever=share([one.ever for one in compared]),
        found=share([one.primary[0] in CHANGED for one in compared]),
        same=share([one.primary[0] is Outcome.SAME for one in compared]),
        covered=share([one.covered for one in compared]),
        naive_1=share([one.naive < 0.01 for one in compared]),
        naive_5=share([one.naive < 0.05 for one in compared]),
        planned_1=share([one.planned < 0.01 for one in compared]),
        planned_5=share([one.planned < 0.05 for one in compared]),
        blocks=float(np.mean([one.blocks for one in compared])),
        iterations=float(np.mean([one.iterations for one in compared])),
        seconds=float(np.mean([one.seconds for one in compared])),
    )


def many(noise: Noise, design: Design, comparisons: int, seed: int, jobs: int = 1) -> list[Compared]:
    one = partial(compare, noise, design)
    seeds = [(seed, i) for i in range(comparisons)]
    if jobs == 1:
        return [one(each) for each in seeds]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(one, seeds, chunksize=4))
