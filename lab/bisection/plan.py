"""The plan of a bisection, resolved: enough to continue after any stop, or to repeat everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from lab.compare.plan import ArmPlan, CommonPlan, Plan
from lab.stats.defaults import CONFIDENCE, SEEDS
from lab.stats.verdict import Metric
from lab.workloads import selection

Panics = Literal["untestable", "bad"]

FIRST_SEED = 101
"""Searches use seeds from here on, so the proof, which compares from seed 1 on as `lab ab` does, has fresh ones."""

FAILED = Metric(name="failed", unit="", better="lower", primary=True)
"""The metric of a search by exit status: 0 for a command that works, 1 for one that fails."""


def outcome_word(values: Sequence[float | None]) -> str:
    """The values of `FAILED` in a word. A command that fails with one seed fails."""
    return "fails" if any(values) else "works"


class BisectPlan(CommonPlan, frozen=True, kw_only=True):
    """`plan.json` in a result folder.

    terms: the names of the ends, (good, bad) or (old, new); with (good, bad) only a change for the worse counts.
    selection: the workload and its cases, as `lab ab` takes them.
    case: None until the ends have shown the case that changed most.
    suite: the suite that this case is chosen from; until then `workload` and `selection` are its name.
    metric: `cycles` or `instructions`, the unit of the workload's own one, or a name; None for the primary one.
    seeds: the exact number; None for as many as the ends need.
    probes: the number of commits to measure between ends that are alike.
    panics: the meaning of a kernel panic in the workload.
    command: the command line that started it.
    run: the command that decides by working in the guest or failing; None if a metric decides.
    layouts_sd: of the logs of kernels that differ in their layout alone, by this host's certificates of builds; None
    without such certificates.
    inside: True if a search of packages continues among the commits between their sources.
    """

    kind: Literal["bisect"] = "bisect"
    terms: tuple[str, str] = msgspec.field(name="words")
    old: ArmPlan
    new: ArmPlan
    workload: str
    case: str | None
    selection: str
    metric: str | None
    confidence: float
    seeds: int | None
    probes: int
    panics: Panics
    speculate: bool
    command: list[str]
    layouts_sd: float | None = None
    inside: bool = True
    suite: str | None = None
    run: str | None = None

    @property
    def alpha(self) -> float:
        """The accepted chance of an error: that equal ends are searched, and that a wrong culprit is confirmed."""
        return 1 - max(self.confidence, CONFIDENCE)

    @property
    def is_live(self) -> bool:
        """True if commits are booted and timed (live mode), not computed (exact mode)."""
        return self.mode == "live"

    @property
    def worse_only(self) -> bool:
        """True if only a change for the worse counts."""
        return self.terms == ("good", "bad")

    @property
    def selections(self) -> list[str]:
        """The cases that a comparison measures: the selection, or all of the suite while no case is chosen."""
        if self.suite and self.case is None:
            return list(selection.suite(self.suite).selections)
        return [self.selection]

    def comparison(self, base: ArmPlan, test: ArmPlan, threshold: float | None = None) -> Plan:
        """A comparison of two kernels under this plan's conditions, as `lab ab` makes it, or to another threshold."""
        common = {name: getattr(self, name) for name in CommonPlan.__struct_fields__}
        common["threshold"] = self.threshold if threshold is None else threshold
        common["max_seeds"] = max(self.max_seeds, SEEDS)
        return Plan(
            **common, base=base, test=test, workloads=self.selections, alpha=self.alpha, seeds=SEEDS,
            fixed_seeds=False, metric=None if self.is_live else self.metric,
        )  # fmt: skip
