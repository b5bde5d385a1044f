"""Sampling in exact mode: the seeds to run, their order, and the end of it.

Seeds are the blocks of exact mode: all arms run each seed. Guests do not disturb each other's numbers, so they run
side by side on all cores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import NamedTuple

from lab.compare import runs
from lab.compare.plan import ComparisonPlan
from lab.compare.runs import Bench, GuestRun, Run
from lab.core import records
from lab.core.errors import GuestFailed
from lab.core.executor import Work
from lab.core.progress import Task
from lab.guests.run import Arm, RunningGuests
from lab.stats.defaults import FIRST_LOOK_SEEDS, MORE_SEEDS
from lab.workloads.spec import Case, Metric


@dataclass(kw_only=True)
class Series:
    """One workload of a comparison: its bench, its cases, and the runs so far by name.

    failed: the guests that died, where the others go on without them.
    """

    bench: Bench
    cases: Sequence[Case]
    done: dict[str, Run] = field(default_factory=dict)
    failed: list[tuple[GuestRun, GuestFailed]] = field(default_factory=list)

    def guest(self, arm: Arm, seed: int, cases: Sequence[Case]) -> GuestRun:
        """A guest to run."""
        return GuestRun(bench=self.bench, arm=arm, seed=seed, cases=cases)

    def run(self, arm: str, seed: int, case: Case) -> Run | None:
        """The run of one arm and seed that had this case in it."""
        run = self.done.get(runs.run_name(self.bench.workload, arm, seed, [case]))
        return run if run is not None and case.name in run.cases else None

    def runs_of(self, arm: str, case: Case) -> dict[int, Run]:
        """An arm's runs of a case by seed, in the order of the seeds."""
        found = {seed: self.run(arm, seed, case) for seed in sorted({run.seed for run in self.done.values()})}
        return {seed: run for seed, run in found.items() if run is not None}

    def values(self, arm: str, case: Case, metric: str) -> dict[int, float]:
        """A metric of a case by seed; NaN where it is missing."""
        return {seed: run.metrics(case.name).get(metric, float("nan")) for seed, run in self.runs_of(arm, case).items()}

    def pairs(
        self, case: Case, metric: str, arms: tuple[str, str] = ("base", "test")
    ) -> tuple[list[int], list[float], list[float]]:
        """Seeds that both arms ran this case with, and the metric's values in them; NaN where it is missing."""
        base, test = (self.values(arm, case, metric) for arm in arms)
        seeds = [seed for seed in base if seed in test]
        return seeds, [base[seed] for seed in seeds], [test[seed] for seed in seeds]

    def seeds(self, arms: Sequence[str] = ("base", "test")) -> list[int]:
        """All seeds that all of the arms have run; none as long as there is a case without any."""
        found = [set.intersection(*(set(self.runs_of(arm, case)) for arm in arms)) for case in self.cases]
        return sorted(set().union(*found)) if all(found) else []

    def metrics(self, case: Case) -> list[Metric]:
        """Metrics that the workload declares, and where it is open to them, numbers that every run printed beside."""
        declared = list(self.bench.workload.metrics)
        if not self.bench.workload.open_metrics:
            return declared
        printed = [run.report.case(case.name) for run in self.done.values() if case.name in run.cases]
        names = [set(outcome.metrics) for outcome in printed if outcome]
        more = sorted(set.intersection(*names) - {metric.name for metric in declared}) if names else []
        return [*declared, *(_undeclared(name) for name in more)]

    def failure(self, arm: str, case: Case) -> GuestFailed | None:
        """The error of an arm's first guest, by seed, that died with this case in it."""
        died = [(guest.seed, error) for guest, error in self.failed if guest.arm.name == arm and case in guest.cases]
        return min(died, key=lambda one: one[0])[1] if died else None


def _undeclared(name: str) -> Metric:
    return Metric(name=name, unit="as printed", better="neither", description="printed, and not declared")


class SeedRequest(NamedTuple):
    """A request for more seeds of a series: all of these arms with all of these cases."""

    arms: Sequence[Arm]
    cases: Sequence[Case]


def fill(
    series: Sequence[Series],
    arms: Sequence[Arm],
    plan: ComparisonPlan,
    undecided: Callable[[Series], SeedRequest],
    work: Work,
    *,
    keep_going: bool = False,
) -> None:
    """Run guests until every case is decided, the plan's seeds are used up, or the budget is.

    undecided: judges a series after each look.
    keep_going: a guest that fails ends its arm in its series, and nothing else.
    """
    with work.progress.task("measuring", 0) as task:
        looks = [plan.seeds] if plan.fixed_seeds else sorted({min(FIRST_LOOK_SEEDS, plan.seeds), plan.seeds})
        if not plan.fixed_seeds:
            looks += [*range(plan.seeds + MORE_SEEDS, plan.max_seeds, MORE_SEEDS), plan.max_seeds]
        seen = 0
        for look in looks:
            wanted = [(one, undecided(one) if seen else SeedRequest(arms, one.cases)) for one in series]
            wanted = [(one, want) for one, want in wanted if want.arms and want.cases]
            if not wanted or (seen and work.out_of_time):
                return
            guests = [
                (one, one.guest(arm, seed, cases))
                for seed in range(seen + 1, look + 1)
                for one, want in wanted
                for cases in one.bench.workload.by_guest(one.cases if look <= plan.seeds else want.cases)
                for arm in (want.arms if seed % 2 else want.arms[::-1])
            ]
            run_all(guests, work, task, keep_going=keep_going)
            seen = look


def run_all(guests: Sequence[tuple[Series, GuestRun]], work: Work, task: Task, *, keep_going: bool = False) -> None:
    """Run all of the guests, some at a time; the first failure stops the rest. What ended is on disk by then."""
    task.grow(len(guests))
    running = RunningGuests()
    jobs = work.executor.guests(guests[0][1].bench) if work.executor and guests else work.jobs
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            futures = [pool.submit(_run, *one, work, running, task, keep_going=keep_going) for one in guests]
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in finished:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop_all()
            raise


def _run(series: Series, guest: GuestRun, work: Work, running: RunningGuests, task: Task, *, keep_going: bool) -> None:
    run = _stored(guest)
    if run is None and not work.out_of_time and not series.failure(guest.arm.name, guest.cases[0]):
        try:
            run = (work.executor or runs).measure(guest, running)
        except GuestFailed as error:
            if not keep_going:
                raise
            series.failed.append((guest, error))
    if run is not None:
        series.done[guest.name] = run
    task.advance()


def _stored(guest: GuestRun) -> Run | None:
    """The run of this very guest that was recorded before the measurement was interrupted."""
    if not guest.record_path.is_file():
        return None
    run = records.load(guest.record_path, Run)
    same = run.kernel == guest.arm.kernel.key and run.fingerprint == guest.bench.fingerprint
    return run if same and run.commands == guest.commands else None
