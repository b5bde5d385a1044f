"""Taking samples: which seeds, in which order, on how many cores, until what is known.

Seeds are the blocks of exact mode: each is run by all arms. Guests do not disturb each other's numbers, so
they run side by side on all cores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import NamedTuple

from lab.compare import runs
from lab.compare.runs import Bench, Run
from lab.core import records
from lab.core.errors import GuestFailed
from lab.core.executor import Work
from lab.core.progress import Task
from lab.guests.run import Arm, Running
from lab.stats.defaults import FIRST_LOOK_SEEDS, MORE_SEEDS
from lab.workloads.spec import Case, Metric


class Failure(NamedTuple):
    """A guest that died: whose it was, and what was in it."""

    arm: str
    seed: int
    cases: Sequence[Case]
    error: GuestFailed


@dataclass(kw_only=True)
class Series:
    """One workload of a comparison: its bench, its cases, and the runs so far, by `runs.run_name`.

    failed: the guests that died, where the others go on without them.
    """

    bench: Bench
    cases: Sequence[Case]
    fingerprint: str
    done: dict[str, Run] = field(default_factory=dict)
    failed: list[Failure] = field(default_factory=list)

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
        """What the workload declares, and where it is open to them, the numbers that every run printed beside."""
        declared = list(self.bench.workload.metrics)
        if not self.bench.workload.open_metrics:
            return declared
        printed = [run.report.case(case.name) for run in self.done.values() if case.name in run.cases]
        names = [set(outcome.metrics) for outcome in printed if outcome]
        more = sorted(set.intersection(*names) - {metric.name for metric in declared}) if names else []
        return [*declared, *(_undeclared(name) for name in more)]

    def failure(self, arm: str, case: Case) -> GuestFailed | None:
        """How an arm's guest with this case in it failed first, by seed."""
        died = [one for one in self.failed if one.arm == arm and case in one.cases]
        return min(died, key=lambda one: one.seed).error if died else None


def _undeclared(name: str) -> Metric:
    return Metric(name=name, unit="as printed", better="neither", description="printed, and not declared")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Numbers of seeds, and what ends them. fixed: exactly `seeds`, decided or not.

    keep_going: a guest that fails ends its arm in its series, and nothing else.
    """

    seeds: int
    max_seeds: int
    fixed: bool
    keep_going: bool = False


class Wanted(NamedTuple):
    """What of a series is to be run: all of these arms with all of these cases."""

    arms: Sequence[Arm]
    cases: Sequence[Case]


def sample(
    series: Sequence[Series],
    arms: Sequence[Arm],
    limits: Limits,
    undecided: Callable[[Series], Wanted],
    work: Work,
) -> None:
    """Fill the series with runs until every case is decided, the seeds are used up, or the budget is.

    undecided: which arms and cases of a series need more seeds, judged after each look.
    """
    with work.progress.task("measuring", 0) as task:
        looks = [limits.seeds] if limits.fixed else sorted({min(FIRST_LOOK_SEEDS, limits.seeds), limits.seeds})
        if not limits.fixed:
            looks += [*range(limits.seeds + MORE_SEEDS, limits.max_seeds, MORE_SEEDS), limits.max_seeds]
        seen = 0
        for look in looks:
            wanted = [(one, undecided(one) if seen else Wanted(arms, one.cases)) for one in series]
            wanted = [(one, want) for one, want in wanted if want.arms and want.cases]
            if not wanted or (seen and work.out_of_time):
                return
            samples = [
                (one, arm, seed, cases)
                for seed in range(seen + 1, look + 1)
                for one, want in wanted
                for cases in one.bench.workload.by_guest(one.cases if look <= limits.seeds else want.cases)
                for arm in (want.arms if seed % 2 else want.arms[::-1])
            ]
            run_all(samples, work, task, keep_going=limits.keep_going)
            seen = look


Sample = tuple[Series, Arm, int, Sequence[Case]]


def run_all(samples: Sequence[Sample], work: Work, task: Task, *, keep_going: bool = False) -> None:
    """Take all of the samples, some at a time; the first failure stops the rest. What ended is on disk by then."""
    task.grow(len(samples))
    running = Running()
    jobs = work.executor.guests(samples[0][0].bench) if work.executor and samples else work.jobs
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            futures = [pool.submit(_take, *sample, work, running, task, keep_going) for sample in samples]
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            _raise_first(finished)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop_all()
            raise


def _raise_first(futures: set[Future[None]]) -> None:
    for future in futures:
        if (error := future.exception()) is not None:
            raise error


def _take(
    series: Series,
    arm: Arm,
    seed: int,
    cases: Sequence[Case],
    work: Work,
    running: Running,
    task: Task,
    keep_going: bool,
) -> None:
    run = _stored(series, arm, seed, cases)
    if run is None and not work.out_of_time and not series.failure(arm.name, cases[0]):
        try:
            measure = work.executor.measure if work.executor else runs.measure
            run = measure(series.bench, arm, seed, cases, series.fingerprint, running)
        except GuestFailed as error:
            if not keep_going:
                raise
            series.failed.append(Failure(arm.name, seed, cases, error))
    if run is not None:
        series.done[runs.run_name(series.bench.workload, arm.name, seed, cases)] = run
    task.advance()


def _stored(series: Series, arm: Arm, seed: int, cases: Sequence[Case]) -> Run | None:
    """A run of this very measurement that was recorded before it was interrupted."""
    workload = series.bench.workload
    path = runs.run_path(series.bench.folder, runs.run_name(workload, arm.name, seed, cases))
    if not path.is_file():
        return None
    run = records.load(path, Run)
    same = run.kernel == arm.kernel.key and run.fingerprint == series.fingerprint
    return run if same and run.commands == {case.name: workload.command(case) for case in cases} else None
