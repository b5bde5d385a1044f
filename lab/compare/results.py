"""The documents of a comparison: its arms, its cases, its environment."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from lab import __version__
from lab.compare.cause import Cause
from lab.compare.live_results import Live
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure
from lab.core.records import Record
from lab.core.text import from_to, listed
from lab.guests import costs, model_version
from lab.guests.run import Arm
from lab.kernels import architecture, compilers
from lab.stats.multiple import Overall
from lab.stats.verdict import Comparison, Outcome, distance, numbers, percent, primary_of
from lab.stats.whole import Whole
from lab.workloads.spec import Case, Workload, turns_note

CONTENTION_NOTE = (
    "vCPUs contend by the model: no NUMA nodes, store buffers, hyperthreads, nor moves of lines that overlap"
)
"""Stands beside results of guests whose vCPUs contend."""

BESIDE = ("kernel", "user", "cycles", "instructions")
"""The columns that may stand beside the primary metric, in their order."""


class ArmResult(Record, frozen=True, kw_only=True):
    """One arm in the finished document. tree: the tree of its revision."""

    spec: str
    tree: str | None = None
    commit: str | None
    release: str
    build: str
    subject: str | None = None
    compiler: str | None = None
    settings: dict[str, str]
    note: str | None = None

    @classmethod
    def of(cls, arm: Arm, environment: ResultEnvironment) -> Self:
        """An arm in guests of an environment."""
        kernel, source = arm.kernel, arm.kernel.spec.tree_source
        return cls(
            spec=kernel.spec.text,
            tree=source.tree if source else None,
            commit=kernel.commit,
            release=kernel.release,
            build=kernel.key,
            subject=source.subject if source else None,
            compiler=kernel.compiler(),
            settings={**environment.settings, **arm.settings},
            note=kernel.spec.note,
        )

    def __str__(self) -> str:
        """The arm in one line: spec, commit, subject, release."""
        parts = [self.spec]
        if self.commit and self.commit != self.spec:
            parts.append(self.commit[:12])
        if self.subject:
            parts.append(f'("{self.subject}")')
        return " ".join([*parts, f"Linux {self.release}"])


def compiler_note(arms: Sequence[ArmResult]) -> str | None:
    """The warning that arms are of several compilers; None if one compiler built all, or the lab did."""
    named = {version for arm in arms if (version := compilers.version_in(arm.compiler or ""))}
    # A user who has the lab build with two compilers wants to know their effect.
    if len(named) < 2 or all(arm.commit for arm in arms):
        return None
    return f"another compiler and configuration ({', '.join(sorted(named))}): differences below 10 % mean little"


def notes_on(arms: Sequence[ArmResult]) -> list[str]:
    """The notes of arms and the warning about their compilers, each once."""
    return list(dict.fromkeys(note for note in (*(arm.note for arm in arms), compiler_note(arms)) if note))


def repeat(command: str, metric: str | None) -> str:
    """A command that repeats a result; its plan has the user's choice, which a comment shows."""
    return f"{command} # --metric {metric}" if metric else command


class GuestShape(Record, frozen=True, kw_only=True):
    """The guests of one workload, and the programs in them. Of settings, those beside the machine's.

    contends: its vCPUs took turns by modelled clocks, and contended.
    """

    vcpus: int
    memory_mb: int
    initrd_sha256: str
    fingerprint: str
    model: str = "none"
    contends: bool = False
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    cmdline: list[str] = msgspec.field(default_factory=list)
    env: dict[str, str] = msgspec.field(default_factory=dict)
    setup: list[str] = msgspec.field(default_factory=list)
    commands: dict[str, list[str]] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload, cases: Sequence[Case], machine: Mapping[str, str], **facts: Any) -> Self:
        """The shape of a workload's guests. machine: the settings that every guest has."""
        settings = workload.guest_settings(machine, {})
        return cls(
            settings={name: value for name, value in settings.items() if machine.get(name) != value},
            cmdline=list(workload.cmdline),
            env=dict(workload.env),
            setup=list(workload.setup),
            commands={case.name: workload.command(case) for case in cases},
            contends=workload.contends,
            **facts,
        )


class ResultEnvironment(Record, frozen=True, kw_only=True):
    """Around both arms. Results with different fingerprints are not comparable number by number.

    model_version: of `machines/model.toml`; 0 in results from before there was one.
    """

    fingerprint: str
    qemu: str
    machine: str
    cpu: str
    shift: int
    cmdline: list[str]
    settings: dict[str, str]
    image: str
    lab: str
    guests: dict[str, GuestShape]
    model: str = "none"
    model_version: int = 0

    @classmethod
    def around(cls, guests: dict[str, GuestShape], image: str, **facts: Any) -> Self:
        """The environment of guests of these shapes. image: its SHA-256."""
        fingerprint = records.digest({name: shape.fingerprint for name, shape in guests.items()})[:16]
        version = model_version.current(guests)
        return cls(fingerprint=fingerprint, image=image, lab=__version__, guests=guests, model_version=version, **facts)

    @property
    def turns_note(self) -> str:
        """The line about what exact mode cannot see of guests with several vCPUs; empty without any."""
        note = turns_note(max((guest.vcpus for guest in self.guests.values() if not guest.contends), default=1))
        contend = any(guest.contends and guest.vcpus > 1 for guest in self.guests.values())
        return "; ".join(filter(None, [note, CONTENTION_NOTE if contend else ""]))

    @property
    def guest_size(self) -> str:
        """The CPUs and the memory of the guests, from the smallest to the largest."""
        vcpus, sizes = zip(*((guest.vcpus, guest.memory_mb) for guest in self.guests.values()), strict=True)
        return f"{from_to(min(vcpus), max(vcpus))} vCPU, {from_to(min(sizes), max(sizes))} MiB"


class FailedCase(Record, frozen=True, kw_only=True):
    """The reason why a case has no numbers. arms: the arms in which it failed. log: a file of the result folder."""

    arms: list[str]
    kind: GuestFailure
    message: str
    log: str | None = None

    @classmethod
    def of(cls, failures: Mapping[str, GuestFailed], folder: Path) -> FailedCase:
        """The failures of a case by arm as one: the first error, and the arms that it failed in."""
        first = next(iter(failures.values()))
        log = first.log
        if log is not None and log.is_relative_to(folder):
            log = log.relative_to(folder)
        return cls(arms=list(failures), kind=first.kind, message=first.message, log=str(log) if log else None)

    @property
    def word(self) -> str:
        """`failed`, or `unsupported` if the kernel lacks something that the case needs."""
        return "unsupported" if self.kind == GuestFailure.UNSUPPORTED else "failed"

    @property
    def where(self) -> str:
        return "in both arms" if len(self.arms) > 1 else f"in the {self.arms[0]} arm only"

    def __str__(self) -> str:
        return f"{self.word} {self.where}: {self.message}" + (f" (log: {self.log})" if self.log else "")


class SweepPoint(Record, frozen=True, kw_only=True):
    """The place of a case in a sweep over sizes."""

    name: str
    size: int

    @classmethod
    def of(cls, workload: Workload, case: Case) -> Self | None:
        """The place of a case in a sweep of its workload; None outside of any."""
        at = workload.sweep_of(case)
        return cls(name=at[0], size=at[1]) if at else None


class Robustness(Record, frozen=True, kw_only=True):
    """A verdict at other costs: within the ranges of the machine's file, and on the other machines of the lab.

    low, high: the smallest and the largest change at the corners of the ranges, as ratios.
    depends_on: the costs that turn the verdict, each alone, or else `together`; empty if it survives every corner.
    others: the change with one seed on each other modelled machine; None if the case failed.
    holds_on: the machines on which it is the same verdict, the measured one first.
    """

    low: float
    high: float
    depends_on: list[str] = msgspec.field(default_factory=list)
    together: bool = False
    machine: str
    others: dict[str, float | None] = msgspec.field(default_factory=dict)
    holds_on: list[str]

    @property
    def corners(self) -> str:
        """`survives every corner: +6.1 % to +14.0 %`, or the costs that the verdict depends on."""
        shown, more = self.depends_on[:_MOST_COSTS], len(self.depends_on) - _MOST_COSTS
        costs = listed([*shown, f"{more} more"] if more > 0 else shown, "and" if self.together else "or")
        verdict = f"depends on {costs}{' together' * self.together}" if self.depends_on else "survives every corner"
        return f"{verdict}: {percent(self.low)} to {percent(self.high)}"

    @property
    def machines(self) -> str:
        """`holds on all three machines`, or their names; with the change on each other one."""
        if not self.others:
            return "other machines were not measured"
        changes = {name: "failed" if ratio is None else percent(ratio) for name, ratio in self.others.items()}
        detail = ", ".join(f"{name} {change}" for name, change in changes.items())
        count = 1 + len(self.others)
        if len(self.holds_on) == count:
            return f"holds on {_ALL.get(count, f'all {count}')} machines ({detail})"
        where = f"holds on {listed(self.holds_on, 'and')}" if len(self.holds_on) > 1 else f"only on {self.machine}"
        return f"{where} ({detail})"

    def __str__(self) -> str:
        return f"{self.corners}; {self.machines}"


_MOST_COSTS = 3
_ALL = {2: "both", 3: "all three", 4: "all four", 5: "all five"}


class CaseResult(Record, frozen=True, kw_only=True):
    """One case: its primary metric's verdict, and every metric's raw values.

    group: its group in the suite, else in the workload; empty if it has none.
    guest_clock: the workload's own cost metric, which counts instructions, if a modelled one is the primary.
    failed: the case failed, and has no numbers. notes: differences of the arms besides the metric, a line each.
    sweep: its place in a sweep, if the workload's pattern names one.
    robustness: its verdict at other costs, with `--robust`.
    whole: its whole cost, if a model ran: the caller's, the work that it leaves to others, and its time.
    """

    workload: str
    case: str
    group: str = ""
    control: bool
    verdict: Outcome
    metrics: list[Comparison]
    guest_clock: str | None = None
    holm: bool | None = None
    failed: FailedCase | None = None
    notes: list[str] = msgspec.field(default_factory=list)
    sweep: SweepPoint | None = None
    robustness: Robustness | None = None
    whole: Whole | None = None

    @property
    def word(self) -> str:
        """The verdict, `failed`, or `unsupported`."""
        return self.failed.word if self.failed else str(self.verdict)

    @property
    def contradiction(self) -> str:
        """The first thing in which the case contradicts itself; empty if it does not."""
        decides = [metric for metric in self.metrics if metric.primary]
        if len(decides) != 1:
            return f"{self.name} has {len(decides)} primary metrics"
        if metric := records.repeated(metric.name for metric in self.metrics):
            return f"{self.name} has the metric {metric} twice"
        if self.verdict.is_change and decides[0].verdict != self.verdict:
            return f"{self.name} is called {self.verdict}, and its primary metric {decides[0].verdict}"
        return next((f"{self.name}: {metric.contradiction}" for metric in self.metrics if metric.contradiction), "")

    @property
    def primary(self) -> Comparison:
        """The comparison that the verdict is about."""
        return primary_of(self.metrics)

    @property
    def name(self) -> str:
        return f"{self.workload}:{self.case}"

    @property
    def beside(self) -> dict[str, Comparison]:
        """The comparisons that stand beside the primary one in tables, by the heading of their column.

        If a model ran: the kernel's and the program's share of the modelled cycles, and the instructions; the cycles if
        instructions decide.
        """
        names = {"kernel_cycles": ["kernel"], "user_cycles": ["user"]}
        if other := costs.beside(self.primary.name):
            names[other[1]] = [*names.get(other[1], []), other[0]]
        return {heading: c for c in self.metrics if c.method != "none" for heading in names.get(c.name, [])}

    @property
    def instructions(self) -> Comparison | None:
        """The count of instructions of the same share, if modelled cycles are the primary metric."""
        return self.beside.get("instructions")

    @property
    def is_measured(self) -> bool:
        """True if the case gave numbers that can be compared at all."""
        return self.primary.method != "none"

    @property
    def counts_as_change(self) -> bool:
        """True if its verdict is a change that is beyond chance over all cases."""
        return self.verdict.is_change and self.holm is not False


class Finding(NamedTuple):
    """The finding of a comparison's guests.

    seeds: that both arms ran, or the rounds of live mode. reproduce: the command that measures it again.
    """

    seeds: list[int]
    cases: list[CaseResult]
    overall: Overall
    reproduce: str
    remarks: Sequence[str] = ()
    live: Live | None = None


class AbResult(Record, frozen=True, kw_only=True):
    """`lab ab --json`: the finished document. seeds: in live mode the rounds, whose number is their seed.

    remarks: differences of both arms' guests before any case ran.
    metric: the user's choice of the deciding number, `cycles` or `instructions`; None for each workload's own metric.
    suite: the suite that the cases are of; None if the user named them.
    cause: the functions behind the change of the case that speaks for the result; None if nobody asked.
    """

    schema: str = "lab.ab/1"
    mode: str
    threshold: float
    alpha: float
    base: ArmResult
    test: ArmResult
    environment: ResultEnvironment
    seeds: list[int]
    cases: list[CaseResult]
    verdict: Outcome
    reason: str
    started: records.Time
    seconds: float
    result: str
    reproduce: str
    live: Live | None = None
    remarks: list[str] = msgspec.field(default_factory=list)
    metric: str | None = None
    suite: str | None = None
    cause: Cause | None = None

    @property
    def contradiction(self) -> str:
        """The first thing in which the result contradicts itself; empty if it does not."""
        if (seed := records.repeated(self.seeds)) is not None:
            return f"the {self.pairs} {seed} counts twice"
        if case := records.repeated(case.name for case in self.cases):
            return f"{case} is there twice"
        for case_result in self.cases:
            if found := case_result.contradiction:
                return found
            if (pairs := len(case_result.primary.base)) > len(self.seeds):
                return f"{case_result.name} has {pairs} pairs of numbers, and there are {len(self.seeds)} {self.pairs}s"
        if self.verdict.is_change and all(case.verdict != self.verdict for case in self.cases):
            return f"it is called {self.verdict}, and no case is"
        return "it took less than no time" if self.seconds < 0 else ""

    @property
    def pairs(self) -> str:
        """The noun for a pair of numbers: a seed of exact mode, a round of live mode."""
        return "seed" if self.live is None else "round"

    @property
    def counted_in(self) -> str:
        """The unit that the primary numbers are counted in."""
        if self.live is None:
            return clock(self.environment.model)
        return "real time" if self.live.accelerator == "kvm" else "real time of an emulator"

    @property
    def repeat(self) -> str:
        """The command that repeats it, with a comment about the user's choice of the metric."""
        return repeat(self.reproduce, self.metric)

    @property
    def beside(self) -> list[str]:
        """The headings of the numbers beside the primary metric in any case."""
        return [name for name in BESIDE if any(name in case.beside for case in self.cases)]

    @property
    def notes(self) -> list[str]:
        """Notes about the arms and the guests, each note once."""
        chosen = [f"{self.metric} decide (--metric {self.metric})"] if self.metric in costs.BASES else []
        arms = notes_on([self.base, self.test])
        return [*chosen, *arms, *filter(None, [self.turns_note]), *self.remarks]

    @property
    def turns_note(self) -> str:
        """The line about what exact mode cannot see of guests with several vCPUs; empty without any."""
        return self.environment.turns_note if self.mode == "exact" else ""

    @property
    def failed(self) -> list[CaseResult]:
        """The cases in which something went wrong."""
        return [case for case in self.cases if case.word == "failed"]

    @property
    def headline(self) -> CaseResult | None:
        """The case that speaks for the result: the largest movement among the cases that its verdict rests on."""
        cases = [case for case in self.cases if case.counts_as_change and case.verdict == self.verdict]
        cases = [case for case in cases if not case.control] or cases
        return max(cases, key=lambda case: movement(case.primary), default=None)

    @property
    def is_mixed(self) -> bool:
        """True if some cases are worse and others better."""
        words = {case.verdict for case in self.cases if case.counts_as_change and not case.control}
        return {Outcome.REGRESSION, Outcome.IMPROVEMENT} <= words

    def why(self, case: CaseResult) -> str:
        """The reason why a case's verdict is open or weak, or about gaps of its numbers; empty for a plain one."""
        if case.failed:
            return str(case.failed)
        primary = case.primary
        if case.verdict == Outcome.UNKNOWN:
            counters = counter_evidence(case.metrics) if self.live else ""
            return "; ".join(filter(None, [primary.undecided(self.pairs), counters]))
        if case.verdict == Outcome.SAME and "below threshold" in primary.reason:
            return primary.reason
        return "not beyond chance over all cases" if case.holm is False else primary.remark


# ---- live mode

# Counters of events (faults, mappings) scatter little between boots of one kernel. A change of them is not a verdict on
# time, but evidence beside an `unknown`.
_STEADY = 0.01
_MOST_COUNTERS = 3


def steady_changes(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The secondary metrics that scatter by 1 % at most in each arm, and have a verdict of their own."""
    return [
        c
        for c in comparisons
        if not c.primary and c.is_change and c.survived is not False
        if _is_steady(c.base) and _is_steady(c.test)
    ]


def _is_steady(values: Sequence[float | None]) -> bool:
    numbers = [value for value in values if value is not None]
    return len(numbers) == len(values) > 0 and max(numbers) - min(numbers) <= _STEADY * abs(max(numbers))


def counter_evidence(comparisons: Sequence[Comparison]) -> str:
    """The steady changes as text: `its counters say regression: vmas x14.0`; empty without any."""
    changes = steady_changes(comparisons)
    parts = []
    for outcome in (Outcome.REGRESSION, Outcome.IMPROVEMENT):
        shown = [f"{c.name} {percent(c.ratio)}" for c in changes if c.verdict == outcome][:_MOST_COUNTERS]
        if shown:
            parts.append(f"{outcome}: {', '.join(shown)}")
    return f"its counters say {'; '.join(parts)}" if parts else ""


def differing(environments: Sequence[ResultEnvironment], aside: Collection[str] = ("lab",)) -> list[str]:
    """The names of the differences around several results; empty if their numbers compare one by one."""
    if len({environment.fingerprint for environment in environments}) < 2:
        return []
    first, *others = map(records.plain, environments)
    names = [name for name in first if name not in ("fingerprint", *aside)]
    return [name for name in names if any(other[name] != first[name] for other in others)] or ["fingerprint"]


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are numbers; None without any."""
    present = numbers(values)
    return math.fsum(present) / len(present) if present else None


def movement(comparison: Comparison) -> float:
    """The distance that a comparison moved: |log ratio|, or the growth of its events if zeros forbid that."""
    if comparison.ratio:
        return distance(comparison.ratio)
    base, test = mean(comparison.base), mean(comparison.test)
    return 0.0 if base is None or test is None else growth(base, test)


def growth(base: float, test: float) -> float:
    """|log of (test + 1) / (base + 1)|: events are whole, so from 0 to 1 is less than from 10 to 400, yet finite."""
    return abs(math.log1p(max(test, 0)) - math.log1p(max(base, 0)))


def clock(model: str) -> str:
    """The unit of exact mode's primary numbers; a modelled unit says so, and names the machine."""
    if model.startswith("count "):
        return f"counted instructions ({model})"
    return "guest clock (instructions)" if model == "none" else f"modelled cycles ({architecture.experiment(model)})"
