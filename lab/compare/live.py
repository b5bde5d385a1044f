"""`lab ab --mode live`: both arms in real time, round by round, until every case is decided.

How a comparison in live mode is going, in words: a line a round, or a bar for each case as its interval narrows.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.compare import boots, certificates, exact, live_guests, results
from lab.compare.live_guests import Ready
from lab.compare.plan import LivePlan, Plan
from lab.compare.results import AbResult, CaseResult, Live, LiveRound
from lab.compare.round_runner import Stand, Taking
from lab.compare.rounds import Rounds
from lab.core import records
from lab.core.errors import GuestFailed, HostFailed
from lab.core.executor import Work
from lab.core.progress import Progress, Task
from lab.guests import exact as guest_exact
from lab.guests import host, live_machine, perf_record
from lab.guests.live_machine import live_parameters
from lab.guests.perf_record import Difference, Profile
from lab.guests.run import RunningGuests
from lab.stats import multiple
from lab.stats.multiple import CaseVerdict
from lab.stats.verdict import Comparison, Outcome, percent, primary_of
from lab.workloads import selection


class Narrator:
    """Tells of every round that is over. Use as a context manager around the rounds."""

    def __init__(self, taking: Taking, progress: Progress) -> None:
        self._taking = taking
        self._progress = progress
        self._bars: dict[str, Task] = {}
        self._told = 0
        self._planned = False

    def __enter__(self) -> Self:
        if self._progress.shows_bars:
            for case in self._taking.rounds.metrics:
                self._bars[case] = self._progress.task(case, self._taking.rounds.max_blocks)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for bar in self._bars.values():
            bar.close()

    def tell(self, one: LiveRound) -> None:
        """A round is over: what went wrong on the way to it, and how every case stands."""
        for other in self._taking.tried[self._told :]:
            if other.reasons:
                self._progress.log(f"round {other.number}: {_trouble(other)}")
        self._told = len(self._taking.tried)
        self._tell_plan()
        standing = {case: primary_of(found) for case, found in self._taking.rounds.standing().items()}
        if self._bars:
            for case, comparison in standing.items():
                self._bars[case].advance(1, in_words(comparison))
            return
        cases = "; ".join(f"{case} {in_words(comparison)}" for case, comparison in standing.items())
        self._progress.log(f"round {one.number}, {one.seconds:.0f} s: {cases}{self._left()}")

    def _tell_plan(self) -> None:
        """How many rounds fit into the budget, once that is known; without one the options have said it."""
        horizon = self._taking.rounds.horizon
        if horizon is None or horizon.iterations is None or self._planned:
            return
        self._planned = True
        each = f"{horizon.iterations} iteration{'s' * (horizon.iterations != 1)} a boot"
        self._progress.log(f"planned for this budget: {horizon.rounds} rounds, {each}")

    def _left(self) -> str:
        """How long it may still take: what the open cases ask for, or the end of the rounds."""
        rounds = self._taking.rounds
        undecided = set(rounds.undecided())
        asked = [primary_of(found).more_blocks for case, found in rounds.standing().items() if case in undecided]
        if not asked and not rounds.fixed_blocks:
            return ""
        most = rounds.max_blocks - len(rounds.blocks)
        more = most if rounds.fixed_blocks else min(most, max((most if n is None else n) for n in asked))
        if not more:
            return ""
        return f"; at most {more} more round{'s' * (more != 1)}, about {more * self._taking.seconds_a_round():.0f} s"


def in_words(comparison: Comparison) -> str:
    """How a case stands: its change, the interval, the verdict, and what would be needed for one."""
    if comparison.interval is None:
        return f"{percent(comparison.ratio)}, {comparison.reason}"
    low, high = comparison.interval
    words = f"{percent(comparison.ratio)} [{percent(low)}, {percent(high)}] {comparison.verdict}"
    if comparison.verdict != Outcome.UNKNOWN:
        return words
    return f"{words}: {comparison.undecided('round')}"


def _trouble(one: LiveRound) -> str:
    reasons = "; ".join(one.reasons)
    match one.state:
        case "repeated":
            return f"repeated: {reasons}"
        case "died":
            return f"repeated, a guest died: {reasons}"
    return f"taken although {reasons}"


# What a boot and an iteration take, before the first round has shown it.
_BOOT_S, _SAMPLE_S = 2.0, 0.5


def rounds_of(stands: Sequence[Stand], plan: Plan) -> Rounds:
    """The rounds of a comparison over every case of every workload."""
    assert plan.live is not None  # noqa: S101
    measured = {
        f"{stand.bench.workload.name}:{case.name}": [
            *exact.metrics_of(stand.bench.workload.metrics, modelled=False),
            *(event.metric for event in stand.bench.perf),
        ]
        for stand in stands
        for case in stand.bench.cases
    }
    return Rounds(
        measured,
        threshold=plan.threshold,
        alpha=plan.alpha,
        max_blocks=plan.live.max_rounds,
        seed=plan.live.seed,
        boot_s=_BOOT_S,
        sample_s=_SAMPLE_S,
        fixed_iterations=plan.live.iterations,
        fixed_blocks=plan.live.fixed_rounds,
    )


def measure(plan: Plan, folder: Path, work: Work) -> AbResult:
    """Do what a plan says, in its result folder; what is already there is not done again."""
    assert plan.live is not None  # noqa: S101
    started, clock = datetime.now(UTC), time.monotonic()
    selection.require_unchanged(plan.files)
    chosen = selection.select_all(plan.workloads)
    qemu = guest_exact.find_qemu(plan.qemu)
    ready = live_guests.prepare(
        exact.obtain_arms(plan, work), chosen, plan.live, folder, qemu=qemu, timeout_s=plan.guest_timeout_s,
        progress=work.progress,
    )  # fmt: skip
    facts = host.survey(sorted({cpu for stand in ready.stands for cpu_set in stand.cpu_sets for cpu in cpu_set.cpus}))
    taking = Taking(
        stands=ready.stands,
        arms=ready.arms,
        rounds=rounds_of(ready.stands, plan),
        folder=folder,
        deadline=work.deadline,
    )
    _announce(plan.live, ready.stands, facts, work.progress)
    with Narrator(taking, work.progress) as narrator:
        while (one := taking.take()) is not None:
            narrator.tell(one)
            if plan.live.perf and one.number == 1:
                work.progress.log(f"perf: {taking.counted()}")
    profiles = _profiles(ready, work.progress) if plan.live.perf_record else {}
    name = results.reference(folder)
    if not taking.rounds.blocks:
        raise HostFailed("no round was measured", hint=f"go on by `lab ab --resume {name}`")
    cases, overall = judge(taking.rounds, ready.stands, plan)
    result = AbResult(
        mode=plan.mode,
        threshold=plan.threshold,
        alpha=plan.alpha,
        base=exact.arm_result(ready.arms[0], live_parameters().settings),
        test=exact.arm_result(ready.arms[1], live_parameters().settings),
        environment=ready.environment,
        seeds=[block.number + 1 for block, _ in taking.rounds.blocks],
        cases=cases,
        verdict=overall.verdict,
        reason=overall.reason,
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 3),
        result=name,
        reproduce=again(plan, plan.live),
        live=_live(plan.live, ready, taking, facts, profiles),
    )
    records.save(folder / "result.json", result)
    return result


def _announce(plan: LivePlan, stands: Sequence[Stand], facts: Sequence[host.HostFact], progress: Progress) -> None:
    """Say what will be run and where, and what about the host makes it noisier than it need be."""
    cases = sum(len(stand.bench.cases) for stand in stands)
    guests = 2 * sum(len(stand.bench.workload.by_guest(stand.bench.cases)) for stand in stands)
    where = "; ".join(", ".join(map(str, cpu_set.cpus)) for cpu_set in stands[0].cpu_sets)
    most = f"{plan.max_rounds}" if plan.fixed_rounds else f"up to {plan.max_rounds}"
    progress.log(
        f"cases: {cases}; {most} rounds of {guests} guests by {plan.accelerator} on CPUs {where}; "
        "the first round shows how long one takes"
    )
    noisy = [f"{fact.name} {fact.value}" for fact in facts if fact.state == "limited"]
    if noisy:
        progress.log(f"this host adds noise: {', '.join(noisy)}; `lab doctor` says what to do about it")


def judge(rounds: Rounds, stands: Sequence[Stand], plan: Plan) -> tuple[list[CaseResult], multiple.Overall]:
    """Every case as it stands, and the verdict over all of them."""
    standing = rounds.standing()
    cases = [
        CaseResult(
            workload=stand.bench.workload.name,
            case=case.name,
            control=case.control,
            verdict=_decided(standing[f"{stand.bench.workload.name}:{case.name}"]),
            metrics=_there(standing[f"{stand.bench.workload.name}:{case.name}"], stand),
        )
        for stand in stands
        for case in stand.bench.cases
    ]
    overall = multiple.overall(
        [
            CaseVerdict(name=name, verdict=_decided(found), p_value=primary_of(found).p_value)
            for name, found in standing.items()
        ],
        plan.alpha,
    )
    return cases, overall


def _there(found: Sequence[Comparison], stand: Stand) -> list[Comparison]:
    """Without the events that no guest's PMU has."""
    events = {event.metric.name for event in stand.bench.perf}
    return [one for one in found if one.name not in events or any(v is not None for v in (*one.base, *one.test))]


def _decided(found: Sequence[Comparison]) -> Outcome:
    outcome = primary_of(found).verdict
    assert outcome is not None  # noqa: S101
    return outcome


def _profiles(ready: Ready, progress: Progress) -> dict[str, Difference]:
    """Each case's profiles of both arms, from a boot of each that is in no verdict. One that fails costs no verdict."""
    progress.log("recording profiles")
    found: dict[str, dict[str, Profile]] = {}
    lost: set[str] = set()
    for stand in ready.stands:
        workload = stand.bench.workload
        bench = replace(stand.bench, perf=(), profiled=True)
        for cases in workload.by_guest(stand.bench.cases):
            for arm in ready.arms:
                alone = f"+{cases[0].name}" if workload.isolate else ""
                try:
                    record = boots.boot(
                        bench, arm, cases, name=f"profile-{arm.name}-{workload.name}{alone}", seed=1, iterations=1,
                        cpu_set=stand.cpu_sets[0], running=RunningGuests(),
                    )  # fmt: skip
                except GuestFailed as error:
                    progress.log(f"no profile: {error.message}")
                    lost |= {f"{workload.name}:{case.name}" for case in cases}
                    continue
                for case in cases:
                    of_case = found.setdefault(f"{workload.name}:{case.name}", {})
                    of_case |= {arm.name: record.profiles[case.name]} if case.name in record.profiles else {}
    both = {case: arms for case, arms in found.items() if case not in lost}
    return {case: perf_record.difference(arms.get("base"), arms.get("test")) for case, arms in both.items()}


def _live(
    plan: LivePlan,
    ready: Ready,
    taking: Taking,
    facts: list[host.HostFact],
    profiles: dict[str, Difference],
) -> Live:
    return Live(
        accelerator=plan.accelerator,
        virtme_ng=live_machine.vng_version(),
        duet=plan.duet,
        shapes={name: layout.shape for name, layout in ready.shapes.items()},
        cpu_sets={name: layout.cpu_sets for name, layout in ready.shapes.items()},
        hugepage_kb=ready.hugepage_kb,
        commands=ready.commands,
        host=facts,
        rounds=taking.tried,
        planned_rounds=taking.rounds.horizon.rounds if taking.rounds.horizon else None,
        sampling=taking.rounds.sampling(),
        certificates=_quotes(plan, ready, taking),
        perf=taking.counted() if plan.perf else None,
        profiles=profiles,
    )


def _quotes(plan: LivePlan, ready: Ready, taking: Taking) -> dict[str, str]:
    """What this host's noise certificates say to the cases."""
    present = certificates.setup(ready.environment.qemu)
    rounds = len(taking.rounds.blocks)
    found = {
        case: certificates.quote(case, present, accelerator=plan.accelerator, duet=plan.duet, rounds=rounds)
        for case in taking.rounds.metrics
    }
    return {case: told for case, told in found.items() if told}


def again(plan: Plan, how: LivePlan) -> str:
    """The command that measures it once more, with nothing left to another host's defaults."""
    words = ["lab", "ab", "--mode", "live", "--base", plan.base.spec.text, "--test", plan.test.spec.text]
    words += [word for name in plan.workloads for word in ("-w", name)]
    words += ["--accel", how.accelerator, *(["--duet"] if how.duet else [])]
    words += [f"--{'' if how.perf else 'no-'}perf", *(["--perf-record"] if how.perf_record else [])]
    valued = {
        "--cpus": "host" if how.mirror else how.vcpus,
        "--numa": how.nodes,
        "--rounds" if how.fixed_rounds else "--max-rounds": how.max_rounds,
        "--iterations": how.iterations,
        "--threshold": f"{100 * plan.threshold:g}%",
        "--base-cc": plan.base.cc,
        "--test-cc": plan.test.cc,
    }
    words += [word for name, value in valued.items() if value is not None for word in (name, str(value))]
    return shlex.join(words)
