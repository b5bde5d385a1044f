"""The rounds of one comparison: the next boots, their iterations, and the end. No I/O.

`next()` gives the boots of a round, `add()` takes their values. The state depends only on the arguments and on the
values added, so stored rounds restore any comparison.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from lab.core.records import Record
from lab.stats import evidence, iterations, multiple, verdict
from lab.stats.defaults import FIRST_LOOK_ROUNDS
from lab.stats.iterations import Spread, WarmUp
from lab.stats.sequential import RoundPlan
from lab.stats.verdict import Comparison, Metric, Outcome, primary_of

ARMS = ("base", "test")
CONTROL_CHANGED = 0.1
"""A control whose change has a smaller p-value may have changed itself. Nothing is lost if it has not."""

FIRST_ITERATIONS = 2
"""Before variances are known: enough to tell noise inside a boot from noise between boots, and to see warm-up."""


@dataclass(frozen=True)
class Block:
    """One round: the arms of its boots in order, and how often each boot runs each case."""

    number: int
    order: tuple[str, ...]
    iterations: int


@dataclass(frozen=True)
class BootReading:
    """The values of one boot: by case and metric, the value of each iteration, in order."""

    arm: str
    values: dict[str, dict[str, list[float]]]


class Sampling(Record, frozen=True, kw_only=True):
    """The sampling of a case, and its noise.

    boot_sd, iteration_sd: of the logs, between boots and inside them; None if not known. outliers: blocks (from 0)
    whose change is beyond 3.5 robust sds of the others: they are kept, and pulled in for the test alone.
    """

    blocks: int
    iterations: list[int]
    boot_sd: float | None
    iteration_sd: float | None
    warm_up: WarmUp
    outliers: list[int]


class Covariate(Record, frozen=True, kw_only=True):
    """The part of a case's noise that a control case of the same boots shares, as a noise certificate knows it.

    control: its full name. slope: of the case's log ratios of rounds on the control's. correlation: between them.
    pairs: the number of rounds that both are from.
    """

    control: str
    slope: float
    correlation: float
    pairs: int


@dataclass(frozen=True, kw_only=True)
class Design:
    """The rules of any comparison: when it ends, and how it is judged.

    seed: of the order of boots. fixed_iterations: of each boot; None: as many as the noise needs. fixed_blocks:
    continue to max_blocks, decided or not.
    """

    threshold: float
    alpha: float
    max_blocks: int
    seed: int
    fixed_iterations: int | None = None
    fixed_blocks: bool = False


@dataclass(eq=False)
class Rounds:
    """A comparison of two arms, block by block, until every case is decided.

    metrics: of each case, exactly one of them primary.
    boot_s: of a boot without any iteration; sample_s: of one iteration of all cases. Both may be set again after a
    measurement.
    covariates: by case; the control of each is a case as well.
    open_cases: compared by every other number that all of their boots have, too.
    round_plan: set once, when the rounds have been planned; before that nothing but very large changes are found.
    """

    metrics: Mapping[str, Sequence[Metric]]
    design: Design
    _: KW_ONLY
    boot_s: float
    sample_s: float
    covariates: dict[str, Covariate] = field(default_factory=dict)
    open_cases: Collection[str] = ()
    blocks: list[tuple[Block, list[BootReading]]] = field(default_factory=list, init=False)
    round_plan: RoundPlan | None = field(default=None, init=False)
    _standing: dict[str, list[Comparison]] | None = field(default=None, init=False)

    # ---- the calls

    def next(self) -> Block | None:
        """The next round; None when every case is decided, or at max_blocks."""
        done = len(self.blocks)
        if done >= self.design.max_blocks or (
            not self.design.fixed_blocks and done >= FIRST_LOOK_ROUNDS and not self.undecided()
        ):
            return None
        return Block(number=done, order=order(self.design.seed, done), iterations=self.iterations())

    def add(self, block: Block, readings: Sequence[BootReading]) -> None:
        """Add the values of a block's boots. ValueError: not the next block, or not its requested boots."""
        if block.number != len(self.blocks):
            raise ValueError(f"block {block.number} was added after {len(self.blocks)}")
        if tuple(reading.arm for reading in readings) != block.order or set(block.order) != set(ARMS):
            raise ValueError(f"block {block.number}: the readings are of other boots")
        for reading in readings:
            if missing := set(self.metrics) - set(reading.values):
                raise ValueError(f"block {block.number}: no values of {', '.join(sorted(missing))}")
        self.blocks.append((block, list(readings)))
        self._standing = None

    def drop(self, cases: Collection[str]) -> None:
        """Leave cases out, in the blocks so far too."""
        self.metrics = {case: metrics for case, metrics in self.metrics.items() if case not in cases}
        self.covariates = {
            case: covariate
            for case, covariate in self.covariates.items()
            if case not in cases and covariate.control not in cases
        }
        self._standing = None

    def plan(self, round_plan: RoundPlan) -> None:
        self.round_plan, self._standing = round_plan, None

    def standing(self) -> dict[str, list[Comparison]]:
        """Every metric of every case so far, corrected for their number (see `lab.stats.multiple`)."""
        if self._standing is None:
            compared = {
                case: [self._compare(case, metric) for metric in (*measured, *self._undeclared(case))]
                for case, measured in self.metrics.items()
            }
            self._standing = multiple.beyond_chance(compared, alpha=self.design.alpha, planned=self._planned)
        return self._standing

    def undecided(self) -> list[str]:
        return [
            case for case, comparisons in self.standing().items() if primary_of(comparisons).verdict == Outcome.UNKNOWN
        ]

    # ---- sampling

    def sampling(self) -> dict[str, Sampling]:
        """The noise, the warm-up and the outliers of each case."""
        return {case: self._sampling(case) for case in self.metrics}

    def _sampling(self, case: str) -> Sampling:
        noise = self.spread(case)
        x = self.differences(case)
        defined = [value for value in x if math.isfinite(value)]
        clipped = dict(zip(defined, evidence.clip(defined), strict=True))
        return Sampling(
            blocks=len(self.blocks),
            iterations=[block.iterations for block, _ in self.blocks],
            boot_sd=noise.boot if noise else None,
            iteration_sd=noise.iteration if noise else None,
            warm_up=self.warm_up(case),
            outliers=[number for number, value in enumerate(x) if value in clipped and clipped[value] != value],
        )

    def differences(self, case: str) -> list[float]:
        """log(test) - log(base) of each block, of the primary metric; NaN if there is none."""
        base, test = self._arms(case, self._primary(case))
        pairs = zip(base, test, strict=True)
        return [math.log(t / b) if 0 < b < math.inf and 0 < t < math.inf else math.nan for b, t in pairs]

    def spread(self, case: str) -> Spread | None:
        """The noise of a case, between boots and inside them; None without enough boots."""
        dropped = self.warm_up(case).dropped
        boots = [values[dropped:] for values in self._boots(case)]
        return iterations.spread([value for value in self.differences(case) if math.isfinite(value)], boots)

    def warm_up(self, case: str) -> WarmUp:
        """The first iterations of a case's boots, by its primary metric."""
        return iterations.warm_up(self._boots(case))

    def iterations(self) -> int:
        """Iterations of each boot, by the noise of the undecided cases: see `lab.stats.iterations`.

        Two in the first four blocks, then estimated before each block until the rounds are planned. That plan may not
        depend on how the kernels compare, so all cases count before it. Iterations of warm-up come on top.
        """
        if self.design.fixed_iterations:
            return self.design.fixed_iterations
        if len(self.blocks) < FIRST_LOOK_ROUNDS:
            return FIRST_ITERATIONS
        if self.round_plan and self.round_plan.iterations:
            return self.round_plan.iterations
        cases = (self.undecided() if self.round_plan else []) or list(self.metrics)
        noise = [spread for spread in map(self.spread, cases) if spread and spread.iteration > 0]
        if not noise:
            return FIRST_ITERATIONS
        warm = max(self.warm_up(case).dropped for case in cases)
        boot_s = self.boot_s + warm * self.sample_s
        return warm + iterations.iterations(noise, boot_s=boot_s, sample_s=self.sample_s)

    # ---- the numbers

    @property
    def _planned(self) -> int:
        """The planned number of rounds; 0 before there is a plan, so that its part of alpha is not spent."""
        return self.round_plan.rounds if self.round_plan else 0

    def _undeclared(self, case: str) -> list[Metric]:
        """Numbers beside the metrics of a case, which every boot has."""
        if case not in self.open_cases or not self.blocks:
            return []
        found = set.intersection(*(set(boot.values[case]) for _, block in self.blocks for boot in block))
        names = sorted(found - {metric.name for metric in self.metrics[case]})
        return [Metric(name=name, unit="as printed", better="neither") for name in names]

    def _compare(self, case: str, metric: Metric) -> Comparison:
        base, test = self._arms(case, metric)
        covariate = self.covariates.get(case) if metric.primary else None
        shared = self._shared_noise(covariate) if covariate else None

        def compare(values: Sequence[float]) -> Comparison:
            return verdict.compare_metric(
                metric, base, values, threshold=self.design.threshold, alpha=self.design.alpha, planned=self._planned,
                exact=False,
            )  # fmt: skip

        return verdict.adjust(compare(test), compare(shared.taken_off(test)), shared) if shared else compare(test)

    def _shared_noise(self, covariate: Covariate) -> verdict.SharedNoise | None:
        """The noise of each round that the control tells; None if a round has no value of it."""
        control = covariate.control
        x = self.differences(control)
        if not all(map(math.isfinite, x)):
            return None
        alone = self._compare(control, self._primary(control))
        return verdict.SharedNoise(
            control, [covariate.slope * value for value in x], moved=alone.p_value < CONTROL_CHANGED
        )  # fmt: skip

    def _arms(self, case: str, metric: Metric) -> tuple[list[float], list[float]]:
        """A number for each arm and block; several boots of an arm in one block give one (`iterations.together`)."""
        dropped = self.warm_up(case).dropped

        def of(arm: str) -> list[float]:
            boots = [[_values(boot, case, metric) for boot in block if boot.arm == arm] for _, block in self.blocks]
            return [iterations.together([iterations.summary(values, dropped) for values in block]) for block in boots]

        return of("base"), of("test")

    def _primary(self, case: str) -> Metric:
        return next(metric for metric in self.metrics[case] if metric.primary)

    def _boots(self, case: str) -> list[list[float]]:
        """The iterations of every boot of both arms, of the primary metric."""
        return [_values(boot, case, self._primary(case)) for _, block in self.blocks for boot in block]


def order(seed: int, number: int) -> tuple[str, ...]:
    """The arms of a block's boots. Every two blocks are base-test-test-base or the other way round, by the seed.

    So a drift of the host that is even over two blocks cancels, and no other rhythm of it can side with one arm.
    """
    turned = random.Random(f"{seed}/{number // 2}").random() < 0.5  # noqa: S311 - the order of boots, not a secret
    return ARMS[::-1] if turned != bool(number % 2) else ARMS


def _values(reading: BootReading, case: str, metric: Metric) -> list[float]:
    return reading.values[case].get(metric.name, [])
