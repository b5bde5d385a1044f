"""Nights on hosts that never were, judged by the lab's own code: how often a quiet one raises a false alarm.

    python -m tests.scenarios.simulation.nights                 1,000 quiet nights of each kind of host, and more
    python -m tests.scenarios.simulation.nights --nights 200    fewer

A live host has the noise of docs/live-search.md: boots and samples, drift, outliers. In exact mode there is none, but
two kernels that do the same differ by code layout, a little in each seed.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from lab.nightly import events
from lab.nightly.events import EventSource, PlanState, SeriesStep
from lab.nightly.plan import BranchPlan
from lab.nightly.record import BranchNight, CaseChange, Event, Night, TipComparison
from lab.stats import changepoints, multiple, verdict
from lab.stats.verdict import Metric, Outcome

METRIC = Metric(name="time", unit="s", better="lower", primary=True)
PLAN = BranchPlan(tree="linux", branch="main")
FIRST = date(2026, 1, 1)
THRESHOLD = 0.02


@dataclass(frozen=True, kw_only=True)
class Host:
    """What one measures on. sigma: of one sample from a fresh boot, as a share; the rest in units of it.

    layout: by how much kernels differ that do the same, as a share. same: the share of nights whose kernel is
    yesterday's to the last digit in what is measured.
    """

    exact: bool = False
    cases: int = 6
    blocks: int = 20
    sigma: float = 0.02
    boot: float = 0.6
    sample: float = 0.8
    drift: float = 0.5
    drift_blocks: float = 30.0
    outliers: float = 0.02
    outlier_scale: float = 4.0
    layout: float = 0.001
    same: float = 0.0


LIVE = Host()
EXACT = Host(exact=True, blocks=6, layout=0.003, same=0.5)

#: The true level of a case at a night, as a share of what it was at first.
Truth = Callable[[int, int], float]


def quiet(night: int, case: int) -> float:
    return 1.0


class World:
    """A host, and the kernels of all nights. Each seed is another."""

    def __init__(self, host: Host, truth: Truth, seed: int) -> None:
        self.host, self.truth = host, truth
        self._chance = np.random.default_rng(seed)
        self._kernels: list[np.ndarray] = []
        self._drift = 0.0

    def kernel(self, night: int) -> np.ndarray:
        """By how much the kernel of a night differs for no reason, in logarithms: of each case, in each seed."""
        host = self.host
        while len(self._kernels) <= night:
            like_before = self._kernels and self._chance.random() < host.same
            seeds = host.blocks if host.exact else 1
            fresh = self._chance.normal(0, host.layout, (host.cases, seeds))
            self._kernels.append(self._kernels[-1] if like_before else fresh)
        return self._kernels[night]

    def values(self, nights: Sequence[int], case: int) -> list[list[float]]:
        """One list of numbers for each of some kernels that are measured side by side, block by block."""
        found: list[list[float]] = [[] for _ in nights]
        for block in range(self.host.blocks):
            drift = 0.0 if self.host.exact else self._drifted()
            for place, night in enumerate(nights):
                own = self.kernel(night)[case]
                level = math.log(self.truth(night, case)) + own[block if self.host.exact else 0]
                noise = 0.01 * block if self.host.exact else drift + self._noise()
                found[place].append(100.0 * math.exp(level + noise))
        return found

    def _drifted(self) -> float:
        host = self.host
        kept = math.exp(-1 / host.drift_blocks)
        self._drift = kept * self._drift + math.sqrt(1 - kept**2) * host.drift * self._chance.normal()
        return float(self._drift * host.sigma)

    def _noise(self) -> float:
        host = self.host
        value = host.boot * self._chance.normal() + host.sample * self._chance.normal()
        if self._chance.random() < host.outliers:
            value += host.outlier_scale * abs(self._chance.standard_t(3))
        return float(value * host.sigma)


def nights(world: World, count: int) -> list[Event]:
    """The news of so many nights, one new tip each."""
    host, stored = world.host, list[Night]()
    series: list[list[float]] = [[] for _ in range(host.cases)]
    numbers: dict[str, int] = {}
    for number in range(1, count + 1):
        today = (FIRST + timedelta(days=number - 1)).isoformat()
        tip = f"c{number}"
        numbers[tip] = number
        state = PlanState.after(stored, {})
        chosen = events.baselines(PLAN, state, tip, None, today, 30)
        measured = []
        for one in chosen:
            said, values = compared(world, numbers[one.commit], number)
            measured.append(TipComparison(baselines=one.names, commit=one.commit, result="", cases=said))
            if one is chosen[0]:
                for case in range(host.cases):
                    series[case].append(float(np.mean(values[case][:6])))
        if not chosen:
            for case in range(host.cases):
                series[case].append(float(np.mean(world.values([number], case)[0][:6])))
        source = EventSource(plan="p", night=number, date=today, branch=("linux", "main"), tip=tip, threshold=THRESHOLD)
        told = events.find_events(source, state, measured, steps(series))
        branch = BranchNight(tree="linux", branch="main", state="measured", tip=tip, measured=measured, events=told)
        stored.append(Night(plan="p", number=number, date=today, started="", finished="x", branches=[branch]))
    return [event for night in stored for event in night.events]


def compared(world: World, base: int, test: int) -> tuple[list[CaseChange], list[list[float]]]:
    """Two kernels compared in all cases, as `lab ab` does; and the second one's numbers."""
    comparisons, values = [], []
    for case in range(world.host.cases):
        left, right = world.values([base, test], case)
        values.append(right)
        comparisons.append(verdict.compare_metric(METRIC, left, right, threshold=THRESHOLD, exact=world.host.exact))
    words = [multiple.case_verdict(str(case), [one]) for case, one in enumerate(comparisons)]
    survived = multiple.overall(words).survived
    said = [
        CaseChange(
            workload="w", case=str(case), metric="time", better="lower", verdict=one.verdict or Outcome.UNKNOWN,
            ratio=one.ratio, low=one.interval[0] if one.interval else None,
            high=one.interval[1] if one.interval else None, counts=str(case) in survived,
        )
        for case, one in enumerate(comparisons)
    ]  # fmt: skip
    return said, values


def steps(series: Sequence[Sequence[float]]) -> list[SeriesStep]:
    """The steps of all cases, as `lab nightly` sees them in the history."""
    return [
        SeriesStep(
            workload="w", case=str(case), metric="time", better="lower", earliest=step.earliest + 1,
            latest=step.latest + 1, after=f"c{step.earliest}", commit=f"c{step.latest + 1}", ratio=step.ratio,
        )
        for case, values in enumerate(series)
        for step in changepoints.steps(values, least=THRESHOLD / 2)
    ]  # fmt: skip


def alarms(events: Sequence[Event]) -> list[Event]:
    """The news that would be mailed."""
    return [event for event in events if event.kind in ("regression", "creep", "step")]


def false_nights(host: Host, count: int, seed: int) -> int:
    """How many of so many quiet nights raised an alarm."""
    return len({event.night for event in alarms(nights(World(host, quiet, seed), count))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=1000)
    parser.add_argument("--worlds", type=int, default=1)
    asked = parser.parse_args()
    for name, host in (("live", LIVE), ("exact", EXACT)):
        for seed in range(1, asked.worlds + 1):
            told = alarms(nights(World(host, quiet, seed), asked.nights))
            kinds = {kind: sum(event.kind == kind for event in told) for kind in ("regression", "creep", "step")}
            print(  # noqa: T201
                f"{name}, seed {seed}: {len({event.night for event in told})} of {asked.nights} quiet nights "
                f"with a false alarm {kinds}"
            )


if __name__ == "__main__":
    main()
