"""A comparison of two kernels: the guests of both arms in the plan's mode, and the document of their findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, Self

from msgspec.structs import replace as replace_fields

from lab.compare import contention, result_folders, robustness, sampling
from lab.compare.contention import Change
from lab.compare.judge import boot_remarks, judge, with_code_remarks
from lab.compare.live import LiveComparison
from lab.compare.measurement import ExactGuests, Measurement, prepare_around, require_fixed_work
from lab.compare.plan import Plan
from lab.compare.result_folders import Clock
from lab.compare.results import AbResult, ArmResult, Finding, ResultEnvironment
from lab.compare.sampling import SeedRequest, Series, fill
from lab.core.errors import HostFailed
from lab.core.executor import Work
from lab.core.text import plural
from lab.guests.exact import ExactMachine, exact_machine
from lab.guests.hardware import Machine
from lab.guests.live_machine import LiveMachine, live_parameters
from lab.guests.run import Arm, overridden
from lab.kernels.kernel import KernelSpec
from lab.kernels.spec import MOUNT, READ_BACK
from lab.stats.verdict import Outcome
from lab.workloads.spec import Workload


class Guests(Protocol):
    """The guests of a comparison: of exact mode, by seeds, or of live mode, in rounds."""

    @property
    def environment(self) -> ResultEnvironment:
        """The environment of both arms' guests."""

    def measure(self, work: Work) -> None:
        """Run guests until every case is decided, or no seed, round or time is left.

        Guests that are on disk already do not run again. Raises `HostFailed` if there is nothing to judge then.
        """

    def judge(self, work: Work) -> Finding:
        """Judge every case, and all of them together."""


def around(arms: tuple[Arm, ...], measurement: Measurement, plan: Plan, work: Work) -> Guests:
    """The guests of a plan's mode around arms whose kernels are at hand."""
    if plan.live is None:
        return ExactComparison.around(arms, measurement, plan, work)
    return LiveComparison.around(arms, measurement, plan, plan.live, work)


def measure(plan: Plan, folder: Path, work: Work, *, aloud: bool = False) -> AbResult:
    """Carry out a plan in its result folder; guests that ended are not run again.

    aloud: announce the guests first.
    """
    clock = Clock()
    measurement = Measurement.of(plan, folder, plan.base.spec)
    same = remark_on(plan, measurement)
    if aloud and same:
        work.progress.log(same)
    if aloud and plan.live is None:
        announce(measurement, plan, work)
    arms = measurement.arms(plan.planned, work)
    guests = around(arms, measurement, plan, work)
    guests.measure(work)
    found = guests.judge(work)
    base, test = (ArmResult.of(arm, guests.environment) for arm in arms)
    return result_folders.finish(
        folder,
        plan,
        clock,
        AbResult,
        base=base,
        test=test,
        environment=guests.environment,
        seeds=found.seeds,
        cases=found.cases,
        verdict=found.overall.verdict,
        reason=found.overall.reason,
        metric=plan.metric,
        suite=plan.suite,
        reproduce=found.reproduce,
        live=found.live,
        remarks=[*([same] if same else []), *found.remarks],
    )


def remark_on(plan: Plan, measurement: Measurement) -> str | None:
    """The line that says that both arms are the same guest; None if they differ, or are meant to be the same."""
    if plan.certificate or plan.base.cc != plan.test.cc:
        return None
    machine = exact_machine(measurement.architecture.name) if plan.live is None else live_parameters()
    return same_guest(plan.base.spec, plan.test.spec, [workload for workload, _ in measurement.selected], machine)


def measure_part(plan: Plan, folder: Path, work: Work) -> AbResult:
    """Measure a part of a larger work, in a folder inside that one's; the plan is stored there first."""
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    if not (folder / "plan.json").exists():
        result_folders.store_plan(folder, plan)
    return measure(plan, folder, work)


def measure_aloud(plan: Plan, folder: Path, work: Work) -> AbResult:
    """Measure for a command: announce the guests, and say how to continue after a stop."""
    with result_folders.kept(folder, work.progress):
        return measure(plan, folder, work, aloud=True)


GuestMachine = ExactMachine | LiveMachine


def same_guest(base: KernelSpec, test: KernelSpec, workloads: Sequence[Workload], machine: GuestMachine) -> str | None:
    """The line about two specs that are the same guest, with the settings that change nothing; None if they differ.

    One compiler builds both. machine: that of every guest. A default of the kernel's own is not known before it boots.
    """
    one, other = dict(base.settings), dict(test.settings)
    if (base.source, base.kconfig) != (test.source, test.kconfig) or any(
        _guest(workload, one, machine) != _guest(workload, other, machine) for workload in workloads
    ):
        return None
    idle = sorted({*one.items()} ^ {*other.items()})
    names = ", ".join(f"{name.removeprefix('cmdline.')}={value}" for name, value in idle)
    why = f"{names} is so in every guest" if names else "their kernels and settings do not differ"
    return f"both arms are the same guest: {why}"


def _guest(workload: Workload, settings: Mapping[str, str], machine: GuestMachine) -> tuple[object, ...]:
    """All that an arm's settings make of a guest. Its command line counts in any order."""
    applied = workload.guest_settings(machine.settings, settings)
    return (
        frozenset(overridden(machine.cmdline, workload.arguments(settings))),
        {name: value for name, value in applied.items() if name not in READ_BACK},
        workload.environment(settings),
        settings.get(MOUNT),
    )


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
        series = self.guests.series
        cases, overall = judge(series, self.plan)
        by_name = {case.name: case.primary for case in cases if case.verdict.is_change}
        changes = [
            Change(name, one, case, by_name[name])
            for one in series
            for case in one.cases
            if (name := f"{one.bench.workload.name}:{case.name}") in by_name
        ]
        if turned := contention.resting_on_price(changes, self.guests.arms, self.plan.threshold, work):
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
    cases = sum(len(chosen) for _, chosen in measurement.selected)
    said, _ = sampling.announced(
        plan, plan.planned, measurement.folder, measurement.selected, work, three_decide=plan.base.is_like(plan.test)
    )
    work.progress.log(f"{plural(cases, 'case')}, {said}")
