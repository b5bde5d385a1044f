"""`lab ab` in exact mode: the same guest around both arms, runs paired by seed, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from msgspec.structs import replace as replace_fields

from lab.compare import contention, estimates, result_folders, robustness, sampling
from lab.compare.judge import boot_remarks, judge, with_code_remarks
from lab.compare.measurement import Measurement
from lab.compare.plan import Plan
from lab.compare.prepare import ExactGuests, prepare_around, require_fixed_work
from lab.compare.results import Finding, ResultEnvironment
from lab.compare.sampling import SeedRequest, Series, fill
from lab.core.errors import HostFailed
from lab.core.executor import Work
from lab.core.text import from_to, plural
from lab.guests.hardware import Machine
from lab.guests.run import Arm
from lab.stats.verdict import Outcome


@dataclass(frozen=True, kw_only=True)
class ExactComparison:
    """The guests of both arms, which run the same seeds."""

    plan: Plan
    measurement: Measurement
    guests: ExactGuests

    @classmethod
    def around(cls, arms: tuple[Arm, ...], measurement: Measurement, plan: Plan, work: Work) -> Self:
        """The guests around arms; `UserError` for a workload whose work follows the clock."""
        guests = prepare_around(measurement, arms, work.progress)
        require_fixed_work(guests)
        return cls(plan=plan, measurement=measurement, guests=guests)

    @property
    def environment(self) -> ResultEnvironment:
        """The environment of both arms' guests."""
        return self.guests.environment

    def measure(self, work: Work) -> None:
        """Run both arms, seed by seed, until every case is decided, or no seed or time is left."""
        series = self.guests.series
        fill(series, self.guests.arms, self.plan, self._undecided, work, loss="case")
        failures = [one.failures(case) for one in series for case in one.cases]
        if all(failures):  # nothing is left to judge
            raise next(iter(failures[0].values()))
        if not all(one.seeds() for one in series):
            raise HostFailed(
                "the budget was used up before one pair of guests had run",
                hint=f"give it more; go on by `lab ab --resume {result_folders.reference(self.measurement.folder)}`",
            )

    def judge(self, work: Work) -> Finding:
        """Judge every case, and all of them together."""
        series = self.guests.series
        cases, overall = judge(series, self.plan)
        if turned := contention.resting_on_price(cases, series, self.guests.arms, self.plan, work):
            cases, overall = judge(series, self.plan, turned)
        cases = contention.with_curves(cases, series, self.plan)
        cases = with_code_remarks(cases, series, work.progress)
        if self.plan.robust:
            cases = robustness.judged(cases, series, self.plan, partial(self._one_seed_on, work), work)
        return Finding(
            seeds=sorted({seed for one in series for seed in one.seeds()}),
            cases=cases,
            overall=overall,
            reproduce=f"lab replay {result_folders.reference(self.measurement.folder)}",
            remarks=boot_remarks(series, self.guests.arms),
        )

    def _undecided(self, one: Series) -> SeedRequest:
        """The cases that more seeds could settle."""
        cases, _ = judge(self.guests.series, self.plan)
        open_cases = {
            case.case
            for case in cases
            if case.workload == one.bench.workload.name and not case.failed
            if case.verdict == Outcome.UNKNOWN
            if sampling.can_be_settled(case.primary, self.plan.max_seeds)
        }
        return SeedRequest(self.guests.arms, [case for case in one.cases if case.name in open_cases])

    def _one_seed_on(self, work: Work, ref: str, machine: Machine) -> list[Series]:
        """The runs of one seed on another modelled machine."""
        plan = replace_fields(self.plan, machine=ref, seeds=1, max_seeds=1, fixed_seeds=True)
        place = self.measurement.folder / "machines" / machine.name
        (place / "runs").mkdir(parents=True, exist_ok=True)
        around = prepare_around(replace(self.measurement, plan=plan, folder=place), self.guests.arms, work.progress)
        fill(around.series, self.guests.arms, plan, lambda _: SeedRequest((), ()), work, loss="case")
        return around.series


def announce(measurement: Measurement, plan: Plan, work: Work) -> None:
    """Show the number of cases and guests, and about how long they take."""
    if plan.too_few and not plan.certificate:
        work.progress.log(plan.too_few)
    selected = measurement.selected
    least, most = plan.seed_range(three_decide=plan.base.is_like(plan.test))
    shared = [(workload, together) for workload, cases in selected for together in workload.by_guest(cases)]
    arms = {name: arm.spec for name, arm in plan.planned.items()}
    guests, seconds = sampling.left(plan, measurement.folder, shared, arms, range(1, least + 1))
    _, longer = sampling.left(plan, measurement.folder, shared, arms, range(least + 1, most + 1))
    there = 2 * least * len(shared) - guests
    cases = sum(len(chosen) for _, chosen in selected)
    work.progress.log(
        f"{plural(cases, 'case')}, {from_to(least, most)} seed{'s' * (most > 1)}: "
        f"{estimates.announced(guests, there, seconds, longer, work)}"
    )
