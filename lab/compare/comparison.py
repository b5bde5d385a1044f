"""A comparison of two kernels: the guests of both arms in the plan's mode, and the document of their findings."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from lab.compare import alike, exact, result_folders
from lab.compare.exact import ExactComparison
from lab.compare.live import LiveComparison
from lab.compare.measurement import Measurement
from lab.compare.plan import Plan
from lab.compare.result_folders import Clock
from lab.compare.results import AbResult, ArmResult, Finding, ResultEnvironment
from lab.core.executor import Work
from lab.guests.exact import exact_machine
from lab.guests.live_machine import live_parameters
from lab.guests.run import Arm


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
        exact.announce(measurement, plan, work)
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
    return alike.remark(plan.base.spec, plan.test.spec, [workload for workload, _ in measurement.selected], machine)


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
