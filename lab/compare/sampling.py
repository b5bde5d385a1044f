"""Sampling in exact mode: the seeds to run, their order, and the end of it.

Seeds are the blocks of exact mode: all arms run each seed. Guests do not disturb each other's numbers, so they run side
by side on all cores. Each run is exact, and a seed is one draw of things that should not matter: three equal seeds
leave room for two thirds of all seeds to differ, six for two fifths.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from typing import Literal, NamedTuple

from msgspec.structs import replace as replace_fields

from lab.compare import beliefs, estimates, runs, state
from lab.compare.beliefs import Belief
from lab.compare.plan import ArmPlan, ComparisonPlan
from lab.compare.runs import Bench, GuestRun, Run
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure
from lab.core.executor import Work
from lab.core.progress import Task
from lab.core.text import from_to, plural
from lab.guests import costs
from lab.guests.run import Arm, RunningGuests
from lab.stats import verdict, whole
from lab.stats.defaults import FIRST_LOOK_SEEDS, MIN_PAIRS, MORE_SEEDS
from lab.stats.verdict import Comparison, Outcome, numbers, percent
from lab.stats.whole import FEW, MAD_TO_SD, Whole
from lab.workloads.spec import WINDOWS_MAX, Case, Metric, Workload

Loss = Literal["all", "arm", "case"]
"""The loss by a case that fails: all measuring, the case in the arm that it failed in, or the case in every arm."""

Chosen = Sequence[tuple[Workload, Sequence[Case]]]
"""Workloads, each with some of its cases."""

Pair = tuple[str, str]
"""The names of two arms, the one first that the other is compared with."""

BOTH: Pair = ("base", "test")

FAR = 6
"""Robust standard deviations from the median beyond which the change of a seed is not that of the others."""


class BothArms(NamedTuple):
    """The metrics of a case in the runs of two arms, which have the same seeds."""

    base: list[dict[str, float]]
    test: list[dict[str, float]]

    def values(self, metric: str) -> tuple[list[float], list[float]]:
        """The values of one metric in each arm; NaN for a run that lacks it."""
        return [run.get(metric, math.nan) for run in self.base], [run.get(metric, math.nan) for run in self.test]


@dataclass(kw_only=True)
class Series:
    """One workload of a comparison: its bench, its cases, and the runs so far by name.

    died: the dead guests; the others continue without the cases that this cost.
    windows: how often a guest runs a case whose program marks no windows.
    """

    bench: Bench
    cases: Sequence[Case]
    done: dict[str, Run] = field(default_factory=dict)
    died: list[tuple[GuestRun, GuestFailed]] = field(default_factory=list)
    windows: dict[str, int] = field(default_factory=dict)

    def guest(self, arm: Arm, seed: int, cases: Sequence[Case], windows: Mapping[str, int] | None = None) -> GuestRun:
        """A guest to run. windows: how often each case; None for as often as its scatter needs."""
        chosen = self.windows if windows is None else windows
        return GuestRun(
            bench=self.bench, arm=arm, seed=seed, cases=cases,
            windows={case.name: chosen[case.name] for case in cases if chosen.get(case.name, 1) > 1},
        )  # fmt: skip

    def widen(self) -> None:
        """Let later guests run a case more often, if its windows scatter in the guests so far."""
        for case in self.cases:
            found = [run.windows[case.name] for run in self.done.values() if case.name in run.windows]
            if found:
                self.windows[case.name] = max(self.windows.get(case.name, 1), windows_wanted(found))

    def windows_agree(self, case: Case, threshold: float) -> bool:
        """True unless the windows of a case are further apart than the threshold in some guest."""
        found = [run.windows[case.name] for run in self.done.values() if case.name in run.windows]
        return all(max(costs) <= min(costs) * (1 + threshold) for costs in found)

    def run(self, arm: str, seed: int, case: Case) -> Run | None:
        """The run of one arm and seed that had this case in it."""
        run = self.done.get(runs.run_name(self.bench.workload, arm, seed, [case]))
        return run if run is not None and case.name in run.cases else None

    def runs_of(self, arm: str, case: Case) -> dict[int, Run]:
        """An arm's runs of a case by seed, in the order of the seeds."""
        found = {seed: self.run(arm, seed, case) for seed in sorted({run.seed for run in self.done.values()})}
        return {seed: run for seed, run in found.items() if run is not None}

    def values(self, arm: str, case: Case, metric: str) -> dict[int, float]:
        """A metric of a case by seed; NaN if it is missing."""
        return {seed: run.metrics(case.name).get(metric, float("nan")) for seed, run in self.runs_of(arm, case).items()}

    def paired(self, case: Case, arms: Pair = BOTH) -> list[tuple[Run, Run]]:
        """The runs of both arms with each seed that both ran this case with."""
        base, test = (self.runs_of(arm, case) for arm in arms)
        return [(base[seed], test[seed]) for seed in base if seed in test]

    def both(self, case: Case, arms: Pair = BOTH) -> BothArms:
        """All metrics of a case in both arms, with the seeds that both ran this case with."""
        pairs = [(base.metrics(case.name), test.metrics(case.name)) for base, test in self.paired(case, arms)]
        return BothArms([base for base, _ in pairs], [test for _, test in pairs])

    def pairs(self, case: Case, metric: str, arms: Pair = BOTH) -> tuple[list[float], list[float]]:
        """A metric's values with the seeds that both arms ran this case with; NaN if it is missing."""
        return self.both(case, arms).values(metric)

    def change(self, case: Case, metric: str, arms: Pair = BOTH) -> float | None:
        """The change of a case, in the middle of its seeds; None without any."""
        pairs = zip(*self.pairs(case, metric, arms), strict=True)
        ratios = [test / base for base, test in pairs if base > 0 and test > 0]
        return median(ratios) if ratios else None

    def events(self, case: Case, arms: Pair = BOTH) -> tuple[list[dict[str, float]], list[dict[str, float]]] | None:
        """The counts that the modelled cycles of each pair are the sum of; None unless they are known of all pairs."""
        pairs = [(base.events.get(case.name), test.events.get(case.name)) for base, test in self.paired(case, arms)]
        known = [(b, t) for b, t in pairs if b and t]
        return ([b for b, _ in known], [t for _, t in known]) if known and len(known) == len(pairs) else None

    def seeds(self) -> list[int]:
        """All seeds that both arms have run; none while a case has no seed."""
        cases = [case for case in self.cases if not self.failures(case)]
        found = [self.runs_of("base", case).keys() & self.runs_of("test", case).keys() for case in cases]
        return sorted(set().union(*found)) if all(found) else []

    def metrics(self, case: Case) -> list[Metric]:
        """The declared metrics of the workload, and if it is open to them, further numbers that every run printed."""
        declared = list(self.bench.workload.metrics)
        if not self.bench.workload.open_metrics:
            return declared
        printed = [run.report.case(case.name) for run in self.done.values() if case.name in run.cases]
        names = [set(outcome.metrics) for outcome in printed if outcome]
        more = sorted(set.intersection(*names) - {metric.name for metric in declared}) if names else []
        return [*declared, *(_undeclared(name) for name in more)]

    def equal(self, case: Case, arms: Pair) -> bool:
        """True if all numbers of both arms are equal with every seed that both ran this case with."""
        pairs = self.paired(case, arms)
        return bool(pairs) and all(base.metrics(case.name) == test.metrics(case.name) for base, test in pairs)

    def failure(self, arm: str, case: Case) -> GuestFailed | None:
        """The error of an arm's first guest, by seed, in which this case failed or which it ended."""
        found = [(guest.seed, error) for guest, error in self.died if guest.arm.name == arm and case in guest.cases]
        for seed, run in self.runs_of(arm, case).items():
            if (error := runs.failure_of(self.bench, run, case)) is not None:
                found.append((seed, error))
        return min(found, key=lambda one: one[0])[1] if found else None

    def failures(self, case: Case, arms: Sequence[str] = BOTH) -> dict[str, GuestFailed]:
        """The errors of a case, by the arms that it failed in."""
        found = {arm: self.failure(arm, case) for arm in arms}
        return {arm: error for arm, error in found.items() if error is not None}


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
    loss: Loss = "all",
) -> None:
    """Run guests until every case is decided, the plan's seeds are used up, or the budget is.

    undecided: judges a series after each look.
    loss: of a case that fails. It is not run again after the look in which it did.
    """
    with work.progress.task("measuring", None) as task:
        looks = [plan.seeds] if plan.fixed_seeds else sorted({min(FIRST_LOOK_SEEDS, plan.seeds), plan.seeds})
        if not plan.fixed_seeds:
            looks += [*range(plan.seeds + MORE_SEEDS, plan.max_seeds, MORE_SEEDS), plan.max_seeds]
        seen = announced = 0
        for look in looks:
            wanted = [(one, undecided(one) if seen else SeedRequest(arms, one.cases)) for one in series]
            wanted = [(one, want) for one, want in wanted if want.arms and want.cases]
            if not wanted or (seen and work.out_of_time):
                return
            guests = [
                (one, guest)
                for seed in range(seen + 1, look + 1)
                for one, want in wanted
                for guest in _guests(one, seed, want.arms, one.cases if look <= plan.seeds else want.cases, loss)
            ]
            if not seen:
                # The first look may decide for one kernel under equal settings.
                alike = all((arm.kernel.key, arm.settings) == (arms[0].kernel.key, arms[0].settings) for arm in arms)
                announced = look if alike else plan.seeds
                task.expect(len(guests) * announced // look)
            elif look > announced:
                task.expect(len(guests), f"measuring, {plural(look - seen, 'more seed')}")
            run_all(guests, work, task, loss=loss)
            if not seen:
                for one in series:
                    one.widen()
            seen = look


def _guests(one: Series, seed: int, arms: Sequence[Arm], cases: Sequence[Case], loss: Loss) -> Iterator[GuestRun]:
    """The guests of one seed, the arms in turn, without the cases that failed."""
    failed = {case.name: one.failures(case, [arm.name for arm in arms]) for case in cases}
    for together in one.bench.workload.by_guest(cases):
        for arm in arms if seed % 2 else arms[::-1]:
            kept = [
                case
                for case in together
                if not failed[case.name] or (loss == "arm" and arm.name not in failed[case.name])
            ]
            if kept:
                yield one.guest(arm, seed, kept)


class _Ran(NamedTuple):
    """The way of a guest: the cases that it began with, the guests that died on it, and the run of the last one."""

    began: list[Case]
    died: list[tuple[GuestRun, GuestFailed]]
    run: Run | None


def run_all(guests: Sequence[tuple[Series, GuestRun]], work: Work, task: Task, *, loss: Loss = "all") -> None:
    """Run all of the guests, some at a time; an error stops the rest. Guests that ended are on disk by then.

    A case in which a guest died is left out of the later guests in the list, in any order of running: a guest that had
    the case already runs again. So no number depends on how many guests run at a time.
    loss: of a case that fails: its error is raised only if it ends everything.
    """
    task.expect(len(guests))
    running = RunningGuests()
    executor = runs.executor_of(work)
    jobs = executor.guests(guests[0][1].bench) if executor and guests else work.jobs
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        early: dict[int, list[GuestRun]] = {}

        def start(number: int) -> Future[_Ran]:
            return pool.submit(_run, guests, number, early, work, running, task, loss)

        try:
            futures = [start(number) for number in range(len(guests))]
            settled, pending = 0, {*futures}
            while settled < len(guests):
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                while settled < len(guests) and futures[settled].done():
                    (series, guest), ran = guests[settled], futures[settled].result()
                    if ran.began != _alive(series, guest, loss):
                        for _, error in ran.died:
                            shutil.rmtree(_kept(guest, error), ignore_errors=True)
                        task.expect(1)
                        futures[settled] = start(settled)
                        pending.add(futures[settled])
                        break
                    series.died += ran.died
                    if ran.run is not None:
                        series.done[guest.name] = ran.run
                    settled += 1
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop_all()
            raise


def _run(
    guests: Sequence[tuple[Series, GuestRun]], number: int, early: dict[int, list[GuestRun]],
    work: Work, running: RunningGuests, task: Task, loss: Loss,
) -> _Ran:  # fmt: skip
    """Run one guest; if it dies in a case, once more without that case.

    early: by number, the dead guests, even if their place in the list is not settled yet.
    """
    series, guest = guests[number]
    early[number] = []
    dying = [one for before in range(number) if guests[before][0] is series for one in early.get(before, [])]
    began = cases = [case for case in _alive(series, guest, loss) if not _has_died(dying, case, guest, loss)]
    died: list[tuple[GuestRun, GuestFailed]] = []
    run, known = None, False
    while cases and run is None:
        guest = replace(guest, cases=cases)
        run = _stored(guest)
        known = run is not None
        if run is None and work.out_of_time:
            break
        try:
            run = run or (runs.executor_of(work) or runs).measure(guest, running)
        except GuestFailed as error:
            if loss == "all" or (loss == "case" and error.kind.blames in ("host", "request")):
                raise
            died.append(_cost(guest, error))
            early[number] = [one for one, _ in died]
            cases = [case for case in cases if not _has_died(early[number], case, guest, loss)]
    if run is not None and loss == "all":
        for case in guest.cases:
            if (failed := runs.failure_of(guest.bench, run, case)) is not None:
                raise failed
    task.advance(known=known)
    return _Ran(began, died, run)


def _alive(series: Series, guest: GuestRun, loss: Loss) -> list[Case]:
    """The cases of a guest that no guest died with."""
    died = [one for one, _ in series.died]
    return [case for case in guest.cases if not _has_died(died, case, guest, loss)]


def _has_died(died: Sequence[GuestRun], case: Case, guest: GuestRun, loss: Loss) -> bool:
    """True if one of these died with a case that this costs a guest, too."""
    return any(case in one.cases and (loss == "case" or one.arm.name == guest.arm.name) for one in died)


def _cost(guest: GuestRun, error: GuestFailed) -> tuple[GuestRun, GuestFailed]:
    """A dead guest with the cases that this costs: the case that ran, else all."""
    running = [case for case in guest.cases if case.name == error.case]
    if running and len(guest.cases) > 1:
        # The guest without this case has the same folder.
        kept = _kept(guest, error)
        shutil.rmtree(kept, ignore_errors=True)
        if guest.folder.is_dir():
            guest.folder.rename(kept)
            error.log = kept / error.log.name if error.log else None
    return replace(guest, cases=running or guest.cases), error


def _kept(guest: GuestRun, error: GuestFailed) -> Path:
    """The folder that is kept of a guest that died in a case."""
    return guest.folder.with_name(f"{guest.name}-{error.case}")


def _stored(guest: GuestRun) -> Run | None:
    """The run of this very guest that was recorded before the measurement was interrupted, unless a case failed."""
    if (run := records.find(guest.record_path, Run)) is None:
        return None
    same = run.kernel == guest.arm.kernel.key and run.fingerprint == guest.bench.fingerprint
    failed = any(outcome.failure and outcome.failure.kind != GuestFailure.UNSUPPORTED for outcome in run.report.cases)
    same = same and all(guest.windows.get(case) == times for case, times in run.repeats.items())
    return run if same and run.commands == guest.commands and not failed else None


WINDOW_SD = 0.005
"""The standard deviation that the mean of a guest's windows should have at most."""


def windows_wanted(costs: Sequence[Sequence[float]]) -> int:
    """The windows that a guest needs, by those of some guests.

    The level of a guest's cost comes from the seed. The cost of a window by its place, above all the first one's, is
    the same in every guest. Neither is scatter.
    """
    fewest = min(map(len, costs))
    if fewest < 2 or not all(map(sum, costs)):
        return 0
    shares = [[cost / fmean(one[:fewest]) for cost in one[:fewest]] for one in costs]
    centers = [median(place) for place in zip(*shares, strict=True)]
    squares = [(share - center) ** 2 for one in shares for share, center in zip(one, centers, strict=True)]
    variance = fmean(squares) * fewest / (fewest - 1)
    return min(WINDOWS_MAX, math.ceil(variance / WINDOW_SD**2))


# ---- the reach of seeds


def weigh(primary: Comparison, *, three_decide: bool, threshold: float, max_seeds: int) -> Comparison:
    """A case's primary metric: `unknown` if its seeds do not carry its verdict, with the reason.

    three_decide: the arms are one kernel under equal settings, or all of their counters are equal.
    """
    return _hopeless(_odd(_provisional(primary, three_decide=three_decide), threshold), max_seeds)


def weigh_fully(
    primary: Comparison, beside: Sequence[Comparison], one: Series, case: Case, plan: ComparisonPlan,
    arms: Pair = BOTH, *, alike: bool,
) -> tuple[Comparison, Whole | None]:  # fmt: skip
    """A case's primary metric as everything beside it allows, and the whole cost of the case; None if no model ran.

    beside: other metrics of the same runs. alike: the arms are one kernel under equal settings.
    """
    weighed = weigh_case(primary, beside, one, case, plan, arms, alike=alike)
    weighed = weigh_strings(weighed, one, case, plan, arms)
    if one.bench.workload.contends:  # the caller's cost has its waits in it, and other vCPUs are not deferred work
        return weighed, None
    return weigh_whole(weighed, beside, one, case, plan, arms)


def weigh_case(
    primary: Comparison, beside: Sequence[Comparison], one: Series, case: Case, plan: ComparisonPlan,
    arms: Pair = BOTH, *, alike: bool,
) -> Comparison:  # fmt: skip
    """A case's primary metric as its seeds, the count of instructions and the CPU that kernels believe in allow."""
    three_decide = (alike or one.equal(case, arms)) and one.windows_agree(case, plan.threshold)
    weighed = weigh(primary, three_decide=three_decide, threshold=plan.threshold, max_seeds=plan.max_seeds)
    # A task that waits executes more instructions or fewer, at any cost of these.
    if not one.bench.workload.contends and not plan.metric and (count := count_beside(primary, beside)):
        weighed = verdict.beside_count(weighed, count, plan.threshold)
    return weigh_left(weigh_belief(weighed, one, case, arms), one, case, plan, arms)


def weigh_left(primary: Comparison, one: Series, case: Case, plan: ComparisonPlan, arms: Pair = BOTH) -> Comparison:
    """A case's primary metric: `unknown` if one arm leaves more processes behind, unless the user chose the metric."""
    if plan.metric:
        return primary
    return state.beside_left(primary, state.left_behind(case.name, *(one.runs_of(arm, case) for arm in arms)))


def weigh_belief(primary: Comparison, one: Series, case: Case, arms: Pair) -> Comparison:
    """A case's primary metric, limited by the CPU that its guests' kernels believe in. Seeds of an arm are alike."""
    if one.bench.instrument is None:
        return primary
    first = {arm: run for arm in arms for run in list(one.runs_of(arm, case).values())[:1]}
    machine = one.bench.instrument.machine
    return beliefs.weigh(primary, {arm: Belief.of(run.report.settings, machine) for arm, run in first.items()})


def count_beside(primary: Comparison, beside: Iterable[Comparison]) -> Comparison | None:
    """The count of instructions beside the modelled cycles that decide. beside: other metrics of the same runs."""
    name = costs.count_of(primary.name)
    return next((other for other in beside if other.name == name), None)


def weigh_strings(primary: Comparison, one: Series, case: Case, plan: ComparisonPlan, arms: Pair) -> Comparison:
    """A case's primary metric: `unknown` if it rests on the starts of strings, unless the user chose the metric."""
    instrument = one.bench.instrument
    if instrument is None or plan.metric or not primary.is_change or costs.count_of(primary.name) is None:
        return primary
    if (events := one.events(case, arms)) is None:
        return primary
    prices = costs.without_string_starts(costs.prices_of(instrument.machine))
    base, test = ([costs.cycles(each, prices) for each in arm] for arm in events)
    again = verdict.compare_again(primary, base, test, threshold=plan.threshold, alpha=plan.alpha)
    return verdict.beside_strings(primary, again, plan.threshold)


def weigh_whole(
    primary: Comparison, beside: Sequence[Comparison], one: Series, case: Case, plan: ComparisonPlan, arms: Pair = BOTH
) -> tuple[Comparison, Whole | None]:
    """A case's primary metric, limited by the whole cost of the case, and that cost; None if no model ran.

    beside: other metrics of the same runs.
    """
    if costs.beside(primary.name) is None:
        return primary, None
    parts = {comparison.name: comparison for comparison in beside}
    if deferred := parts.get("deferred_cycles"):
        parts[deferred.name] = _with_unwritten(deferred, one.paired(case, arms), case.name)
    found, cost = whole.weigh(
        primary, *map(parts.get, costs.WHOLE),
        threshold=plan.threshold, alpha=plan.alpha, chosen=plan.metric is not None,
    )  # fmt: skip
    return (_hopeless(found, plan.max_seeds) if found.more_blocks and found is not primary else found), cost


def announced(
    plan: ComparisonPlan, arms: Mapping[str, ArmPlan], folder: Path, chosen: Chosen, work: Work, *, three_decide: bool
) -> tuple[str, float]:
    """The seeds and guests of a measurement in words, and the processor seconds that the fewest seeds take.

    arms: by their names in the records. three_decide: so many seeds are enough if equal.
    """
    least, most = plan.seed_range(three_decide=three_decide)
    shared = [(workload, together) for workload, cases in chosen for together in workload.by_guest(cases)]
    guests, seconds = _left(plan, arms, folder, shared, range(1, least + 1))
    _, longer = _left(plan, arms, folder, shared, range(least + 1, most + 1))
    said = estimates.announced(guests, len(arms) * least * len(shared) - guests, seconds, longer, work)
    return f"{from_to(least, most)} seed{'s' * (most > 1)}: {said}", seconds


def _left(
    plan: ComparisonPlan, arms: Mapping[str, ArmPlan], folder: Path, shared: Chosen, seeds: Sequence[int]
) -> tuple[int, float]:
    """The number of guests of some seeds that have no record yet, and the processor seconds that they take.

    shared: the cases of each kind of guest.
    """
    count, seconds = 0, 0.0
    for workload, together in shared:
        for name, arm in arms.items():
            paths = [runs.run_path(folder, runs.run_name(workload, name, seed, together)) for seed in seeds]
            missing = sum(not path.is_file() for path in paths)
            count += missing
            seconds += estimates.planned_seconds(plan, workload, together, arm.spec, missing)
    return count, seconds


def _with_unwritten(deferred: Comparison, pairs: Sequence[tuple[Run, Run]], case: str) -> Comparison:
    """The comparison of deferred work, with the writing that the runs of a case leave for after its end."""
    left = [(base.unwritten_cycles(case), test.unwritten_cycles(case)) for base, test in pairs]
    if len(deferred.base) != len(left) or not any(map(any, left)):
        return deferred
    base, test = (
        [None if cycles is None else cycles + more for cycles, more in zip(values, arm, strict=True)]
        for values, arm in zip((deferred.base, deferred.test), zip(*left, strict=True), strict=True)
    )
    return replace_fields(deferred, base=base, test=test)


def can_be_settled(primary: Comparison, max_seeds: int) -> bool:
    """True unless six seeds or more say that twice the most seeds would not settle an `unknown`."""
    seeds = len(primary.base)
    if primary.verdict != Outcome.UNKNOWN or seeds < MIN_PAIRS:
        return True
    return primary.more_blocks is not None and seeds + primary.more_blocks <= 2 * max_seeds


def _provisional(primary: Comparison, *, three_decide: bool) -> Comparison:
    """Take back words that rest on fewer than six seeds."""
    seeds = len(primary.base)
    if three_decide or seeds >= MIN_PAIRS or primary.verdict in (None, Outcome.UNKNOWN):
        return primary
    return primary.unknown(f"{primary.verdict} in {seeds} of {seeds} seeds, {MIN_PAIRS} decide", MIN_PAIRS - seeds)


def _odd(primary: Comparison, threshold: float) -> Comparison:
    """Name the few seeds whose change is another than that of all others: no average of them is the same."""
    if primary.verdict not in (Outcome.SAME, Outcome.UNKNOWN) or not (odd := odd_seeds(primary, threshold)):
        return primary
    sizes = dict.fromkeys(percent(math.exp(size)) for size in (min(odd), max(odd)))
    said = f"{len(odd)} of {len(primary.base)} seeds: {' to '.join(sizes)}"
    if primary.verdict == Outcome.SAME:
        return primary.unknown(said)
    return replace_fields(primary, reason=f"{said}; {primary.reason}")


def odd_seeds(comparison: Comparison, threshold: float) -> list[float]:
    """The log ratios of the seeds that are further than the threshold, and than noise explains, from all others."""
    base, test = numbers(comparison.base), numbers(comparison.test)
    if len(base) != len(test) or len(base) < FEW or min(*base, *test) <= 0:
        return []
    logs = [math.log(t / b) for b, t in zip(base, test, strict=True)]
    center = median(logs)
    scatter = MAD_TO_SD * median(abs(x - center) for x in logs)
    odd = [x for x in logs if abs(x - center) > max(math.log1p(threshold), FAR * scatter)]
    return odd if len(odd) * FEW <= len(logs) else []


def _hopeless(primary: Comparison, max_seeds: int) -> Comparison:
    """Say that a case cannot be settled, as soon as six seeds show it."""
    if can_be_settled(primary, max_seeds):
        return primary
    return replace_fields(primary, reason=f"{primary.reason}; {max_seeds} seeds cannot settle it")
