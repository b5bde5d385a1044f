"""`lab ab` in exact mode: the same guest around both arms, runs paired by seed, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace as replace_fields

from lab.compare import estimates, result_folders, robustness, sampling
from lab.compare.arms import arm_result
from lab.compare.judge import boot_remarks, judge, with_code_remarks
from lab.compare.plan import Plan
from lab.compare.prepare import ExactGuests, prepare, prepare_around
from lab.compare.result_folders import Clock
from lab.compare.results import AbResult
from lab.compare.sampling import SeedRequest, Series, fill
from lab.core.errors import HostFailed
from lab.core.executor import Work
from lab.core.text import from_to, plural
from lab.guests.hardware import Machine
from lab.stats.verdict import Outcome
from lab.workloads.spec import Case, Workload


def measure(plan: Plan, folder: Path, work: Work) -> AbResult:
    """Do what a plan says, in its result folder; what is already there is not done again."""
    clock, name = Clock(), result_folders.reference(folder)
    guests = prepare(plan, folder, work)
    fill(guests.series, guests.arms, plan, lambda series: _undecided(series, guests, plan), work, loss="case")
    failures = [one.failures(case) for one in guests.series for case in one.cases]
    if all(failures):  # nothing is left to judge
        raise next(iter(failures[0].values()))
    if not all(series.seeds() for series in guests.series):
        raise HostFailed(
            "the budget was used up before one pair of guests had run",
            hint=f"give it more; go on by `lab ab --resume {name}`",
        )
    cases, overall = judge(guests.series, plan)
    cases = with_code_remarks(cases, guests.series, work.progress)
    if plan.robust:
        elsewhere = partial(_one_seed_on, guests, plan, folder, work)
        cases = robustness.judged(cases, guests.series, plan, elsewhere, work)
    base, test = map(arm_result, guests.arms)
    return result_folders.finish(
        folder,
        plan,
        clock,
        AbResult,
        base=base,
        test=test,
        environment=guests.environment,
        seeds=sorted({seed for series in guests.series for seed in series.seeds()}),
        cases=cases,
        verdict=overall.verdict,
        reason=overall.reason,
        metric=plan.metric,
        suite=plan.suite,
        reproduce=f"lab replay {name}",
        remarks=boot_remarks(guests.series, guests.arms),
    )


def _one_seed_on(guests: ExactGuests, plan: Plan, folder: Path, work: Work, ref: str, machine: Machine) -> list[Series]:
    """The runs of one seed on another modelled machine."""
    other = replace_fields(plan, machine=ref, seeds=1, max_seeds=1, fixed_seeds=True)
    place = folder / "machines" / machine.name
    (place / "runs").mkdir(parents=True, exist_ok=True)
    around = prepare_around(guests.arms, guests.series[0].bench.qemu, other, place, work.progress)
    fill(around.series, guests.arms, other, lambda _: SeedRequest((), ()), work, loss="case")
    return around.series


def _undecided(one: Series, guests: ExactGuests, plan: Plan) -> SeedRequest:
    """The cases that more seeds could settle."""
    cases, _ = judge(guests.series, plan)
    open_cases = {
        case.case
        for case in cases
        if case.workload == one.bench.workload.name and not case.failed
        if case.verdict == Outcome.UNKNOWN
        if sampling.can_be_settled(case.primary, plan.max_seeds)
    }
    return SeedRequest(guests.arms, [case for case in one.cases if case.name in open_cases])


def announce(plan: Plan, selected: Sequence[tuple[Workload, list[Case]]], work: Work) -> None:
    """Show what will run, and about how long it takes."""
    least, most = plan.seed_range(three_decide=plan.base.is_like(plan.test))
    low, high = (
        sum(
            estimates.planned_seconds(plan, workload, together, arm.spec, seeds)
            for workload, cases in selected
            for together in workload.by_guest(cases)
            for arm in (plan.base, plan.test)
        )
        for seeds in (least, most)
    )
    guests = 2 * sum(len(workload.by_guest(cases)) for workload, cases in selected)
    cases = sum(len(chosen) for _, chosen in selected)
    work.progress.log(
        f"{plural(cases, 'case')}, {from_to(least, most)} seed{'s' * (most > 1)}: "
        f"{estimates.announced(f'{from_to(guests * least, guests * most)} guests', low, high, work)}"
    )
