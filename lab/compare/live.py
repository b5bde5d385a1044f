"""`lab ab --mode live`: both arms in real time, round by round, until every case is decided."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from lab.compare import boots, certificates, live_guests, result_folders, runs, sampling
from lab.compare.boots import GuestSetup, Job
from lab.compare.judge import case_result, metrics_of, with_losses
from lab.compare.live_guests import LiveGuests
from lab.compare.live_results import Counted, Live, LiveRound, ModelCheck
from lab.compare.measurement import Measurement, prepare
from lab.compare.plan import LivePlan, Plan
from lab.compare.results import CaseResult, FailedCase, Finding, ResultEnvironment, mean
from lab.compare.round_runner import RoundRunner
from lab.compare.rounds import ARMS, Covariate, Design, Rounds
from lab.compare.runs import Run
from lab.compare.sampling import Series
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure, HostFailed, LabError
from lab.core.executor import Work
from lab.core.progress import Progress, Task
from lab.core.records import Record
from lab.core.text import plural
from lab.guests import hardware, host, live_machine, perf_record, perf_stat
from lab.guests.perf_record import Difference, Profile
from lab.guests.plugin import Brackets
from lab.guests.run import Arm, RunningGuests
from lab.stats import multiple
from lab.stats.verdict import Comparison, Outcome, compare_metric, percent, primary_of
from lab.workloads import selection
from lab.workloads.spec import Case, Workload


class Narrator:
    """Shows each round as it ends, by a line or a bar for each case. A context manager around the rounds."""

    def __init__(self, runner: RoundRunner, progress: Progress) -> None:
        self._runner = runner
        self._progress = progress
        self._bars: dict[str, Task] = {}
        self._planned = False

    def __enter__(self) -> Self:
        self._runner.on_trouble = self._tell_trouble
        if self._progress.shows_bars:
            for case in self._runner.rounds.metrics:
                self._bars[case] = self._progress.task(case, self._runner.rounds.design.max_blocks)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for bar in self._bars.values():
            bar.close()

    def tell(self, live_round: LiveRound) -> None:
        """Show the state of every case after a round."""
        self._tell_plan()
        primaries = {case: primary_of(found) for case, found in self._runner.rounds.standing().items()}
        if self._bars:
            for case, comparison in primaries.items():
                self._bars[case].advance(1, describe(comparison))
            return
        cases = "; ".join(f"{case} {describe(comparison)}" for case, comparison in primaries.items())
        self._progress.log(f"round {live_round.number}, {live_round.seconds:.0f} s: {cases}{self._left()}")

    def _tell_trouble(self, tried: LiveRound) -> None:
        said = {"repeated": "repeated: ", "died": "a guest died: "}.get(tried.state, "taken although ")
        self._progress.log(f"round {tried.number}: {said}{'; '.join(tried.reasons)}")

    def _tell_plan(self) -> None:
        """Show how many rounds fit into the budget, once that is known."""
        plan = self._runner.rounds.round_plan
        if plan is None or plan.iterations is None or self._planned:
            return
        self._planned = True
        each = plural(plan.iterations, "iteration")
        self._progress.log(f"planned for this budget: {plan.rounds} rounds, {each} a boot")

    def _left(self) -> str:
        """The time that it may still take: for the open cases, or to the end of the rounds."""
        rounds = self._runner.rounds
        undecided = set(rounds.undecided())
        asked = [primary_of(found).more_blocks for case, found in rounds.standing().items() if case in undecided]
        if not asked and not rounds.design.fixed_blocks:
            return ""
        most = rounds.design.max_blocks - len(rounds.blocks)
        more = most if rounds.design.fixed_blocks else min(most, max((most if n is None else n) for n in asked))
        if not more:
            return ""
        return f"; at most {plural(more, 'more round')}, about {more * self._runner.seconds_a_round():.0f} s"


def describe(comparison: Comparison) -> str:
    """A case's change, its interval and verdict, and the number of rounds that are missing for one."""
    if comparison.interval is None:
        return f"{percent(comparison.ratio)}, {comparison.reason}"
    low, high = comparison.interval
    text = f"{percent(comparison.ratio)} [{percent(low)}, {percent(high)}] {comparison.verdict}"
    return f"{text}: {comparison.undecided('round')}" if comparison.verdict == Outcome.UNKNOWN else text


# The time of a boot and of an iteration, before the first round has shown them.
_BOOT_S, _SAMPLE_S = 2.0, 0.5


class _Covariates(Record, frozen=True, kw_only=True):
    """The covariates of a comparison by case, at its beginning: `covariates.json`."""

    schema: int = 1
    covariates: dict[str, Covariate]


def covariates_of(folder: Path, cases: Collection[str], plan: Plan, live: LivePlan, qemu: str) -> dict[str, Covariate]:
    """The covariates of a comparison: the ones in the host's certificates, or none for a certificate itself.

    A comparison that is resumed keeps its own.
    """
    path = folder / "covariates.json"
    if path.is_file():
        return records.load(path, _Covariates).covariates
    found: dict[str, Covariate] = {}
    if not plan.certificate and not (folder / "rounds").exists():
        present = certificates.setup(qemu)
        found = certificates.covariates(cases, present, accelerator=live.accelerator, duet=live.duet)
    records.save(path, _Covariates(covariates=found))
    return found


def rounds_of(setups: Sequence[GuestSetup], plan: Plan, live: LivePlan, covariates: dict[str, Covariate]) -> Rounds:
    """The rounds of a comparison over every case of every workload."""
    metrics = {
        name: [
            *metrics_of(setup.workload, setup.workload.metrics, modelled=False),
            *(event.metric for event in setup.perf),
        ]
        for setup in setups
        for name in setup.case_names
    }
    return Rounds(
        metrics,
        Design(
            threshold=plan.threshold,
            alpha=plan.alpha,
            max_blocks=live.max_rounds,
            seed=live.seed,
            fixed_iterations=live.iterations,
            fixed_blocks=live.fixed_rounds,
        ),
        boot_s=_BOOT_S,
        sample_s=_SAMPLE_S,
        covariates=covariates,
        open_cases={name for setup in setups if setup.workload.open_metrics for name in setup.case_names},
    )


@dataclass(frozen=True, kw_only=True)
class LiveComparison:
    """The guests of both arms, which run in rounds."""

    plan: Plan
    live: LivePlan
    measurement: Measurement
    guests: LiveGuests
    runner: RoundRunner
    facts: list[host.HostFact]

    @classmethod
    def around(cls, arms: tuple[Arm, ...], measurement: Measurement, plan: Plan, live: LivePlan, work: Work) -> Self:
        """The guests around arms; `UserError` if the host cannot have them, or if no case says anything."""
        folder = measurement.folder
        guests = live_guests.prepare(measurement, arms, live, work.progress)
        setups = guests.setups
        names = [name for setup in setups for name in setup.case_names]
        rounds = rounds_of(setups, plan, live, covariates_of(folder, names, plan, live, guests.environment.qemu))
        return cls(
            plan=plan,
            live=live,
            measurement=measurement,
            guests=guests,
            runner=RoundRunner(setups=setups, arms=arms, rounds=rounds, folder=folder, deadline=work.deadline),
            facts=host.survey(sorted({cpu for one in setups for cpu_set in one.cpu_sets for cpu in cpu_set.cpus})),
        )

    @property
    def environment(self) -> ResultEnvironment:
        return self.guests.environment

    def measure(self, work: Work) -> None:
        """Run rounds until every case is decided, or no round or time is left."""
        _announce(self.live, self.guests.setups, self.facts, work.progress)
        with Narrator(self.runner, work.progress) as narrator:
            while (live_round := self.runner.run_round()) is not None:
                narrator.tell(live_round)
                if self.live.perf and live_round.number == 1:
                    work.progress.log(f"perf: {self.runner.counted()}")
        if not self.runner.rounds.blocks:
            reference = result_folders.reference(self.measurement.folder)
            raise HostFailed("no round was measured", hint=f"go on by `lab ab --resume {reference}`")

    def judge(self, work: Work) -> Finding:
        """Judge every case, and all of them together; profiles are recorded first, if requested."""
        plan, rounds = self.plan, self.runner.rounds
        profiles = _profiles(self.guests, work.progress) if self.live.perf_record else {}
        cases, overall = self._judged()
        checks = check_model(plan, self.measurement.folder, cases, work) if self.live.perf else {}
        return Finding(
            seeds=[block.number + 1 for block, _ in rounds.blocks],
            cases=cases,
            overall=overall,
            reproduce=again(plan, self.live),
            live=self._document(profiles, checks),
        )

    def _judged(self) -> tuple[list[CaseResult], multiple.Overall]:
        """Every chosen case, and all of them together; those without numbers, here or in a kernel, are unsupported."""
        standing, lacking = self.runner.rounds.standing(), self.runner.unsupported()
        setups = {setup.workload.name: setup for setup in self.guests.setups}
        verdicts, cases = [], []
        for workload, chosen in self.measurement.selected:
            for case in chosen:
                name = f"{workload.name}:{case.name}"
                if name not in standing:
                    cases.append(_unsupported(workload, case, lacking.get(name, {}), self.plan))
                    continue
                found = multiple.case_verdict(name, standing[name], control=case.control)
                metrics = _measured(standing[name], setups[workload.name])
                verdicts.append(found)
                cases.append(case_result(self.plan, workload, case, verdict=found.verdict, metrics=metrics))
        overall = multiple.overall(verdicts, self.plan.alpha)
        return cases, with_losses(overall, [case.failed for case in cases])

    def _document(self, profiles: dict[str, Difference], checks: Checks) -> Live:
        """The part of the result that only live mode has."""
        plan, guests, rounds = self.live, self.guests, self.runner.rounds
        quote = partial(
            certificates.quote, present=certificates.setup(guests.environment.qemu), accelerator=plan.accelerator,
            duet=plan.duet, rounds=len(rounds.blocks),
        )  # fmt: skip
        return Live(
            accelerator=plan.accelerator,
            virtme_ng=live_machine.vng_version(),
            duet=plan.duet,
            shapes={setup.workload.name: setup.guest.shape for setup in guests.setups},
            cpu_sets={setup.workload.name: list(setup.cpu_sets) for setup in guests.setups},
            hugepage_kb=guests.setups[-1].guest.hugepage_kb,
            commands=guests.commands,
            host=self.facts,
            rounds=self.runner.tried,
            planned_rounds=_planned_rounds(plan, rounds),
            sampling=rounds.sampling(),
            covariates=rounds.covariates,
            certificates={case: said for case in rounds.metrics if (said := quote(case))},
            perf=self.runner.counted() if plan.perf else None,
            model_checks=checks,
            profiles=profiles,
        )


def _announce(plan: LivePlan, setups: Sequence[GuestSetup], facts: Sequence[host.HostFact], progress: Progress) -> None:
    """Show the guests, their CPUs, and the host's sources of noise."""
    cases = sum(len(setup.cases) for setup in setups)
    guests = 2 * sum(len(setup.workload.by_guest(setup.cases)) for setup in setups)
    where = "; ".join(", ".join(map(str, cpu_set.cpus)) for cpu_set in setups[0].cpu_sets)
    most = f"{plan.max_rounds}" if plan.fixed_rounds else f"up to {plan.max_rounds}"
    progress.log(
        f"cases: {cases}; {most} rounds of {guests} guests by {plan.accelerator} on CPUs {where}; "
        "the first round shows how long one takes"
    )
    noisy = [f"{fact.name} {fact.value}" for fact in facts if fact.state == "limited"]
    if noisy:
        progress.log(f"this host adds noise: {', '.join(noisy)}; `lab doctor` names the remedies")


def _unsupported(workload: Workload, case: Case, errors: Mapping[str, str], plan: Plan) -> CaseResult:
    """A case without numbers. errors: by the arms that do not offer it; without any it says nothing in live mode."""
    name = f"{workload.name}:{case.name}"
    if not errors:
        errors = dict.fromkeys(ARMS, f"{name} says nothing in live mode: {workload.only_exact(case)}")
    metrics = metrics_of(workload, workload.metrics, modelled=False)
    arms = [arm for arm in ARMS if arm in errors]
    nothing = [compare_metric(metric, [], [], exact=False) for metric in metrics]
    failed = FailedCase(arms=arms, kind=GuestFailure.UNSUPPORTED, message=errors[arms[0]])
    return case_result(plan, workload, case, verdict=Outcome.UNKNOWN, metrics=nothing, failed=failed)


def _measured(comparisons: Sequence[Comparison], setup: GuestSetup) -> list[Comparison]:
    """Without the events that no guest's PMU has."""
    events = {event.metric.name for event in setup.perf}
    return [c for c in comparisons if c.name not in events or any(v is not None for v in (*c.base, *c.test))]


def _profiles(guests: LiveGuests, progress: Progress) -> dict[str, Difference]:
    """The profiles of both arms by case, from boots that no verdict uses. A boot that fails costs no verdict."""
    progress.log("recording profiles")
    profiles: dict[str, dict[str, Profile]] = {}
    lost: set[str] = set()
    for setup in guests.setups:
        workload, profiled = setup.workload, replace(setup, perf=(), profiled=True)
        for cases in workload.by_guest(setup.cases):
            for arm in guests.arms:
                alone = f"+{cases[0].name}" if workload.isolate else ""
                try:
                    record = boots.boot(
                        profiled, arm, Job(cases=cases, seed=1, iterations=1),
                        name=f"profile-{arm.name}-{workload.name}{alone}", cpu_set=setup.cpu_sets[0],
                        running=RunningGuests(),
                    )  # fmt: skip
                except GuestFailed as error:
                    progress.log(f"no profile: {error.message}")
                    lost |= {f"{workload.name}:{case.name}" for case in cases}
                    continue
                for case in cases:
                    of_case = profiles.setdefault(f"{workload.name}:{case.name}", {})
                    of_case |= {arm.name: record.profiles[case.name]} if case.name in record.profiles else {}
    both = {case: arms for case, arms in profiles.items() if case not in lost}
    return {case: perf_record.difference(arms.get("base"), arms.get("test")) for case, arms in both.items()}


def _planned_rounds(plan: LivePlan, rounds: Rounds) -> int | None:
    """The rounds that are planned. A number that the user fixed can be smaller than any verdict needs."""
    planned = rounds.round_plan.rounds if rounds.round_plan else None
    return min(planned, plan.max_rounds) if planned and plan.fixed_rounds else planned


def again(plan: Plan, live: LivePlan) -> str:
    """The command that measures it once more, with nothing left to another host's defaults."""
    argv = ["lab", "ab", "--mode", "live", "--base", plan.base.spec.text, "--test", plan.test.spec.text]
    argv += ["--suite", plan.suite] if plan.suite else [word for name in plan.workloads for word in ("-w", name)]
    argv += ["--accel", live.accelerator, *(["--duet"] if live.duet else [])]
    argv += [f"--{'' if live.perf else 'no-'}perf", *(["--perf-record"] if live.perf_record else [])]
    valued = {
        "--cpus": "host" if live.mirror else live.vcpus,
        "--numa": live.nodes,
        "--rounds" if live.fixed_rounds else "--max-rounds": live.max_rounds,
        "--iterations": live.iterations,
        "--threshold": f"{100 * plan.threshold:g}%",
        "--base-cc": plan.base.cc,
        "--test-cc": plan.test.cc,
    }
    argv += [word for name, value in valued.items() if value is not None for word in (name, str(value))]
    return shlex.join(argv)


# ---- the model checked by a PMU: instructions that perf counted, beside exact mode's of the same

# perf counts whole programs, with their preparations, so a guest of exact mode is counted from the start of each case
# to its end. Both counts are divided by the operations of the program's measured part, which exact mode counts.

Sides = tuple[float, float]
"""Instructions in user and in kernel mode."""

Checks = dict[str, dict[str, ModelCheck]]
"""By case and arm."""


def check_model(plan: Plan, folder: Path, cases: Sequence[CaseResult], work: Work) -> Checks:
    """The checks of the cases that a PMU counted in both arms; no failure here costs a verdict."""
    counted = {case.name: found for case in cases if len(found := counted_by_perf(case)) == len(ARMS)}
    if not counted:
        return {}
    work.progress.log("counting the same programs in exact mode")
    try:
        modelled = _modelled(plan, folder / "model-check", [case for case in cases if case.name in counted], work)
    except LabError as error:
        work.progress.log(f"the model is not checked: {error.message}")
        return {}
    return {
        name: {arm: _side_by_side(counted[name][arm], *found) for arm, found in arms.items()}
        for name, arms in modelled.items()
    }


_WHOLE = "whole"


def counted_by_perf(case: CaseResult) -> dict[str, Sides]:
    """The instructions of a case's program by arm, as the mean of its boots; only if perf counted both sides."""
    found = {metric.name: metric for metric in case.metrics}
    events = [found.get(perf_stat.metric_name(event)) for event in perf_stat.SIDES]
    if None in events:
        return {}
    arms = {arm: [mean(getattr(event, arm)) for event in events] for arm in ARMS}
    return {arm: (user, kernel) for arm, (user, kernel) in arms.items() if user and kernel}


def _side_by_side(counted: Sides, modelled: Sides, operations: float) -> ModelCheck:
    user, kernel = (
        Counted(perf=perf / operations, model=model / operations, ratio=perf / model)
        for perf, model in zip(counted, modelled, strict=True)
    )
    return ModelCheck(operations=operations, user=user, kernel=kernel)


def _modelled(
    plan: Plan, folder: Path, cases: Sequence[CaseResult], work: Work
) -> dict[str, dict[str, tuple[Sides, float]]]:
    """Exact mode's instructions of one run of a program, and its operations, by case and arm."""
    asked = msgspec.structs.replace(
        plan, workloads=[selection.only(plan.workloads, case.workload, case.case) for case in cases], model="count",
        machine=hardware.DEFAULT,
    )  # fmt: skip
    for place in (folder, folder / _WHOLE):
        (place / "runs").mkdir(parents=True, exist_ok=True)
    ready = prepare(asked, folder, work)
    # With several vCPUs exact mode counts all tasks, and perf those of the program.
    pairs = [(one, _whole(one, folder / _WHOLE)) for one in ready.series if one.bench.workload.vcpus == 1]
    guests = [
        (one, one.guest(arm, runs.PROFILED_SEED, cases_of))
        for pair in pairs
        for one in pair
        for arm in ready.arms
        for cases_of in one.bench.workload.by_guest(one.cases)
    ]
    with work.progress.task("counting", None) as task:
        sampling.run_all(guests, work, task, loss="case")
    found: dict[str, dict[str, tuple[Sides, float]]] = {}
    for pair in pairs:
        for case in pair[0].cases:
            for arm in ready.arms:
                own, whole = (one.run(arm.name, runs.PROFILED_SEED, case) for one in pair)
                if own and whole and case.name in own.costs and case.name in whole.costs:
                    name = f"{pair[0].bench.workload.name}:{case.name}"
                    found.setdefault(name, {})[arm.name] = _of_one_run(own, whole, case.name)
    return found


def _whole(series: Series, folder: Path) -> Series:
    """The same guests, in which a case counts from its start to its end, without its program's windows."""
    bench, instrument = series.bench, series.bench.instrument
    assert instrument is not None  # noqa: S101  (the plan asks for a model)
    # No operation is marked then, so there is none in the middle.
    workload = msgspec.structs.replace(bench.workload, center="mean")
    counting = replace(instrument, brackets=Brackets.CASE)
    return Series(
        bench=replace(bench, folder=folder, workload=workload, instrument=counting),
        cases=series.cases,
        windows=series.windows,
    )


def _of_one_run(own: Run, whole: Run, case: str) -> tuple[Sides, float]:
    """Instructions and operations. Both guests run the case as often, in as many windows or more."""
    times = len(whole.report.outcomes(case))
    costs = whole.costs[case]
    counted = costs["counted_operations"] / times
    sides = costs["user_instructions"] * counted, costs["kernel_instructions"] * counted
    return sides, own.costs[case]["counted_operations"] / len(own.report.outcomes(case))
