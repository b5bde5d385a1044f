"""Taking samples: which seeds, in which order, on how many cores, until what is known.

Seeds are the blocks of exact mode: each is run by both arms. Guests do not disturb each other's numbers, so
they run side by side on all cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from lab import records, runs
from lab.guests import Running
from lab.progress import Meter, Task
from lab.runs import Arm, Bench, Run
from lab.workload import Case, Metric

# Numbers without spread are decided by three seeds; all others need six to be able to (see docs/verdict.md).
_FIRST_LOOK = 3
_MORE = 2


@dataclass(kw_only=True)
class Series:
    """One workload of a comparison: its bench, its cases, and the runs so far, by `runs.run_name`."""

    bench: Bench
    cases: Sequence[Case]
    fingerprint: str
    done: dict[str, Run] = field(default_factory=dict)

    def run(self, arm: str, seed: int, case: Case) -> Run | None:
        """The run of one arm and seed that had this case in it."""
        run = self.done.get(runs.run_name(self.bench.workload, arm, seed, [case]))
        return run if run is not None and case.name in run.cases else None

    def pairs(self, case: Case, metric: str) -> tuple[list[int], list[float], list[float]]:
        """Seeds that both arms ran this case with, and the metric's values in them; NaN where it is missing."""
        seeds, base, test = [], [], []
        for seed, one, other in self._both(case):
            seeds.append(seed)
            base.append(one.metrics(case.name).get(metric, float("nan")))
            test.append(other.metrics(case.name).get(metric, float("nan")))
        return seeds, base, test

    def _both(self, case: Case) -> Iterator[tuple[int, Run, Run]]:
        for seed in sorted({run.seed for run in self.done.values()}):
            base, test = self.run("base", seed, case), self.run("test", seed, case)
            if base is not None and test is not None:
                yield seed, base, test

    def seeds(self) -> list[int]:
        """All seeds that both arms have run; none as long as there is a case without any."""
        found = [{seed for seed, _, _ in self._both(case)} for case in self.cases]
        return sorted(set().union(*found)) if all(found) else []

    def metrics(self, case: Case) -> list[Metric]:
        """What the workload declares, and where it is open to them, the numbers that every run printed beside."""
        declared = list(self.bench.workload.metrics)
        if not self.bench.workload.open_metrics:
            return declared
        printed = [run.report.case(case.name) for _, base, test in self._both(case) for run in (base, test)]
        names = [set(outcome.metrics) for outcome in printed if outcome]
        more = sorted(set.intersection(*names) - {metric.name for metric in declared}) if names else []
        return [*declared, *(_undeclared(name) for name in more)]


def _undeclared(name: str) -> Metric:
    return Metric(name=name, unit="as printed", better="neither", description="printed, and not declared")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How far to go. `deadline` is on the monotonic clock, None without a budget."""

    seeds: int
    max_seeds: int
    fixed: bool
    jobs: int
    deadline: float | None

    def over(self) -> bool:
        """Whether the budget is used up."""
        return self.deadline is not None and time.monotonic() > self.deadline


def sample(
    series: Sequence[Series],
    arms: tuple[Arm, Arm],
    limits: Limits,
    undecided: Callable[[Series], Sequence[Case]],
    meter: Meter,
) -> None:
    """Fill the series with runs until every case is decided, the seeds are used up, or the budget is.

    undecided: which cases of a series need more seeds, judged after each look.
    """
    with meter.task("measuring", 0) as task:
        looks = [limits.seeds] if limits.fixed else sorted({min(_FIRST_LOOK, limits.seeds), limits.seeds})
        if not limits.fixed:
            looks += [*range(limits.seeds + _MORE, limits.max_seeds, _MORE), limits.max_seeds]
        seen = 0
        for look in looks:
            wanted = [(one, one.cases if look <= limits.seeds else list(undecided(one))) for one in series]
            if seen:
                wanted = [(one, cases) for one, cases in wanted if undecided(one)]
            if not any(cases for _, cases in wanted) or (seen and limits.over()):
                return
            work = [
                (one, arm, seed, cases)
                for seed in range(seen + 1, look + 1)
                for one, chosen in wanted
                for cases in one.bench.workload.by_guest(chosen)
                for arm in (arms if seed % 2 else arms[::-1])
                if cases
            ]
            run_all(work, limits, task)
            seen = look


Work = tuple[Series, Arm, int, Sequence[Case]]


def run_all(work: Sequence[Work], limits: Limits, task: Task) -> None:
    """Do all of the work, some at a time; the first failure stops the rest. What ended is on disk by then."""
    task.grow(len(work))
    running = Running()
    with ThreadPoolExecutor(max_workers=limits.jobs) as pool:
        futures = [pool.submit(_one, *item, limits, running, task) for item in work]
        try:
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            _raise_first(finished)
        except BaseException:
            running.stop_all()
            for future in futures:
                future.cancel()
            raise


def _raise_first(futures: set[Future[None]]) -> None:
    for future in futures:
        if (error := future.exception()) is not None:
            raise error


def _one(
    series: Series, arm: Arm, seed: int, cases: Sequence[Case], limits: Limits, running: Running, task: Task
) -> None:
    run = _stored(series, arm, seed, cases)
    if run is None and not limits.over():
        run = runs.measure(series.bench, arm, seed, cases, series.fingerprint, running)
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
