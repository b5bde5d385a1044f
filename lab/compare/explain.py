"""The difference of two arms by function: the cost of each in both arms, and its part of the difference.

All sums are integers, so the rows add up to the measured total, to the last digit. Fractions appear only per
operation, and are exact too; nothing is rounded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import msgspec

from lab.compare import profiles, result_folders, runs, sampling
from lab.compare.counters import Mechanism, explaining, kernel_counters, mechanisms
from lab.compare.lines import FalseSharing, MetLine, met, moved_for_nothing
from lab.compare.measurement import Measurement, prepare
from lab.compare.plan import ArmPlan, MeasureOptions, Plan
from lab.compare.profiles import ASYNC, OUTSIDE, ArmProfile, Call
from lab.compare.results import AbResult, CaseResult
from lab.core import process, records
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.records import Record
from lab.guests import exact, hardware, image
from lab.kernels import alternatives, architecture
from lab.kernels.alternatives import CpuChoices
from lab.kernels.kernel import Kernel
from lab.kernels.symbols import KERNEL_HALF, LEVELS, base_name
from lab.workloads import selection

Arm = Literal["base", "test"]
ARMS: tuple[Arm, Arm] = ("base", "test")
Cost = Literal["cycles", "instructions"]
Space = Literal["kernel", "user"]

MILLI = 1000
"""The plugin counts thousandths of a modelled cycle, because those are integers."""

LEAST = Fraction(1, 200)
"""The least share of the whole movement for which a difference has a line of its own."""


class FunctionRow(Record, frozen=True, kw_only=True):
    """The cost of one function in each arm: whole sums over all operations, exact.

    cycles: in the explanation's unit.
    calls: entries at its first instruction; 0 if it did not run, None if it ran without such an entry (it was running
    already, or only a piece ran that the compiler split off).
    """

    name: str
    space: Space
    base_instructions: int = 0
    test_instructions: int = 0
    base_cycles: int = 0
    test_cycles: int = 0
    base_calls: int | None = 0
    test_calls: int | None = 0

    def cost(self, arm: Arm, cost: Cost) -> int:
        if cost == "cycles":
            return self.base_cycles if arm == "base" else self.test_cycles
        return self.base_instructions if arm == "base" else self.test_instructions

    def calls(self, arm: Arm) -> int | None:
        return self.base_calls if arm == "base" else self.test_calls


class Initcall(Record, frozen=True, kw_only=True):
    """One of the kernel's initcalls: microseconds of guest time in each arm, None if the kernel lacks it."""

    name: str
    base: int | None
    test: int | None
    level: str = ""
    """Such as `subsys`; `async` for calls beside the initcalls; empty if the kernel does not name it."""

    @property
    def delta(self) -> int:
        """Test minus base."""
        return (self.test or 0) - (self.base or 0)


class Explanation(Record, frozen=True, kw_only=True):
    """All functions of both arms, the largest part of the difference first.

    cycle_units: how many of the rows' units make one modelled cycle.
    """

    schema: int = 1
    base_operations: int
    test_operations: int
    cycle_units: int = MILLI
    rows: list[FunctionRow]

    def operations(self, arm: Arm) -> int:
        return self.base_operations if arm == "base" else self.test_operations

    def per_operation(self, row: FunctionRow, arm: Arm, cost: Cost = "cycles") -> Fraction:
        """One arm's modelled cycles, or instructions, per operation."""
        unit = self.cycle_units if cost == "cycles" else 1
        return Fraction(row.cost(arm, cost), self.operations(arm) * unit)

    def costs(self, row: FunctionRow, cost: Cost = "cycles") -> tuple[Fraction, Fraction]:
        """Modelled cycles, or instructions, per operation of base and test."""
        return self.per_operation(row, "base", cost), self.per_operation(row, "test", cost)

    def calls_per_operation(self, row: FunctionRow, arm: Arm) -> Fraction | None:
        """One arm's calls per operation, None if no entry was seen."""
        calls = row.calls(arm)
        return None if calls is None else Fraction(calls, self.operations(arm))

    def call_ratios(self) -> dict[FunctionKey, float]:
        """The calls of each function in the test arm by those in the base arm, if both have some."""
        found = {}
        for row in self.rows:
            base, test = (self.calls_per_operation(row, arm) for arm in ARMS)
            if base and test:
                found[row.space, row.name] = float(test / base)
        return found

    def delta(self, row: FunctionRow, cost: Cost = "cycles") -> Fraction:
        """Test minus base, per operation: positive if the test kernel costs more."""
        return self.per_operation(row, "test", cost) - self.per_operation(row, "base", cost)

    def share(self, row: FunctionRow, cost: Cost = "cycles") -> Fraction | None:
        """A row's part of the whole difference; negative if it works against it, None without a difference."""
        whole = self.delta(total(self.rows), cost)
        return self.delta(row, cost) / whole if whole else None

    def movement(self, cost: Cost = "cycles") -> Fraction:
        """All that moved, per operation, up and down alike, before gains and losses cancel out."""
        return sum((abs(self.delta(row, cost)) for row in self.rows), Fraction())


@dataclass(slots=True)
class FunctionSum:
    """The cost of one function in one arm, over all operations. entered: its first instruction was executed."""

    instructions: int = 0
    cycles: int = 0
    entries: int = 0
    entered: bool = False


FunctionKey = tuple[Space, str]
"""A function: the space in which it runs, and its name in the source."""


def explain(base: ArmProfile, test: ArmProfile, *, cost: Cost = "cycles") -> Explanation:
    """Both profiles by function, sorted by each function's part of the difference of `cost` per operation.

    Functions meet by their name in the source (see `symbols.base_name`); functions of one name in one space
    are one row. Code that no table knows is a row of its own, so the rows' sums are the profiles' sums.
    """
    sums = {"base": by_function(base), "test": by_function(test)}
    rows = [_row(key, sums["base"].get(key), sums["test"].get(key)) for key in sums["base"].keys() | sums["test"]]
    found = Explanation(base_operations=base.operations, test_operations=test.operations, rows=rows)
    return msgspec.structs.replace(found, rows=by_cost(found, cost))


def by_function(profile: ArmProfile) -> dict[FunctionKey, FunctionSum]:
    """A profile's sums by function."""
    sums: dict[FunctionKey, FunctionSum] = {}
    for block in profile.blocks:
        key, entry = place(block.address, profile)
        found = sums.setdefault(key, FunctionSum())
        found.instructions += block.instructions
        found.cycles += block.cycles
        if entry:
            found.entered = True
            found.entries += block.executions
    return sums


def place(address: int, profile: ArmProfile) -> tuple[FunctionKey, bool]:
    """The function that an address belongs to, and whether code there is its entry."""
    space: Space = "kernel" if address >= KERNEL_HALF else "user"
    table, symbol = profile.symbol(address)
    if table is None or symbol is None:
        return (space, f"[unknown {space}]"), False
    return (space, base_name(symbol.name)), table.entry(address)


def _row(key: FunctionKey, base: FunctionSum | None, test: FunctionSum | None) -> FunctionRow:
    b, t = base or FunctionSum(entered=True), test or FunctionSum(entered=True)
    return FunctionRow(
        space=key[0],
        name=key[1],
        base_instructions=b.instructions,
        test_instructions=t.instructions,
        base_cycles=b.cycles,
        test_cycles=t.cycles,
        base_calls=b.entries if b.entered else None,
        test_calls=t.entries if t.entered else None,
    )


def by_cost(explanation: Explanation, cost: Cost) -> list[FunctionRow]:
    """The rows by |delta| per operation, compared as products of integers; equal ones by size, then by name."""

    def rank(row: FunctionRow) -> tuple[int, int, Space, str]:
        base = row.cost("base", cost) * explanation.test_operations
        test = row.cost("test", cost) * explanation.base_operations
        return -abs(test - base), -max(base, test), row.space, row.name

    return sorted(explanation.rows, key=rank)


def total(rows: Iterable[FunctionRow], *, name: str = "total") -> FunctionRow:
    """The sum of rows as a row; its calls are None, because calls of different functions are not one thing."""
    many = list(rows)
    return FunctionRow(
        name=name,
        space="kernel",
        base_instructions=sum(row.base_instructions for row in many),
        test_instructions=sum(row.test_instructions for row in many),
        base_cycles=sum(row.base_cycles for row in many),
        test_cycles=sum(row.test_cycles for row in many),
        base_calls=None,
        test_calls=None,
    )


def differing(explanation: Explanation, cost: Cost = "cycles", *, least: Fraction = LEAST) -> list[FunctionRow]:
    """Only the rows that differ, by at least that share of the movement; none if the arms are the same."""
    bound = least * explanation.movement(cost)
    return [
        row for row in by_cost(explanation, cost) if (delta := abs(explanation.delta(row, cost))) > 0 and delta >= bound
    ]


def initcalls(base: Mapping[Call, int], test: Mapping[Call, int]) -> list[Initcall]:
    """The initcalls of both arms, the largest change first; the rest of the boot last."""
    rows = [
        Initcall(name=call.name, level=call.level, base=base.get(call), test=test.get(call))
        for call in base.keys() | test
    ]
    return sorted(rows, key=lambda row: (row.name == OUTSIDE, -abs(row.delta), row.name, row.level))


def largest_initcalls(rows: Sequence[Initcall], most: int = 10) -> list[Initcall]:
    """The initcalls that moved most, then the sum of the others, the rest of the boot, and the sum of all.

    An asynchronous call is in no sum: initcalls wait for it, or it runs while they do.
    """
    if not rows:
        return []
    inside = [row for row in rows if row.name != OUTSIDE]
    moved = [row for row in inside if row.delta][:most]
    others = [row for row in inside if row not in moved and row.level != ASYNC]
    rest = [_summed(f"[{len(others)} others]", others)] if others else []
    whole = [row for row in rows if row.level != ASYNC]
    return [*moved, *rest, *(row for row in rows if row.name == OUTSIDE), _summed("total", whole)]


def initcalls_by_level(rows: Iterable[Initcall]) -> list[Initcall]:
    """The sums of the levels that are named, in the order in which the kernel runs them; `async` last."""
    by_level: dict[str, list[Initcall]] = defaultdict(list)
    for row in rows:
        if row.level:
            by_level[row.level].append(row)
    return [_summed(level, by_level[level]) for level in (*LEVELS, ASYNC) if level in by_level]


def _summed(name: str, rows: Iterable[Initcall]) -> Initcall:
    many = list(rows)
    return Initcall(name=name, base=sum(row.base or 0 for row in many), test=sum(row.test or 0 for row in many))


class StoredExplanation(Record, frozen=True, kw_only=True):
    """An explanation, stored beside its result, so that reports can show it without a guest."""

    schema: int = 1
    workload: str
    case: str
    machine: str
    model: str
    cost: Cost
    explanation: Explanation
    initcalls: list[Initcall] = msgspec.field(default_factory=list)
    lines: list[MetLine] = msgspec.field(default_factory=list)


def remember(folder: Path, found: StoredExplanation) -> None:
    """Keep an explanation; a newer one of the same case takes its place."""
    path = _remembered_path(folder, found.workload, found.case)
    path.parent.mkdir(exist_ok=True)
    records.save(path, found)


def remembered(folder: Path, case: CaseResult) -> StoredExplanation | None:
    """The explanation of a case that was made last, if any."""
    return records.find(_remembered_path(folder, case.workload, case.case), StoredExplanation)


def _remembered_path(folder: Path, workload: str, case: str) -> Path:
    return folder / "explain" / f"{workload}-{case}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseExplanation:
    """The explanation of one case. machine, model: of the modelled cycles. lines: that vCPUs took from each other."""

    result: AbResult
    case: CaseResult
    explanation: Explanation
    mechanisms: list[Mechanism]
    machine: str
    model: str
    cost: Cost
    initcalls: Sequence[Initcall] = ()
    lines: Sequence[MetLine] = ()

    @property
    def title(self) -> str:
        """The case and its arms in words."""
        return f"{self.case.workload}:{self.case.case}, {self.result.base.spec} against {self.result.test.spec}"

    def document(self) -> dict[str, Any]:
        """The answer as `lab explain --json` prints it."""
        return {
            **records.plain(self.explanation),
            "schema": "lab.explain/1",
            "result": self.result.result,
            "workload": self.case.workload,
            "case": self.case.case,
            "machine": self.machine,
            "model": self.model,
            "mechanisms": records.plain(self.mechanisms),
            **({"lines": records.plain(list(self.lines))} if self.lines else {}),
            **({"initcalls": records.plain(list(self.initcalls))} if self.initcalls else {}),
        }


def find(
    folder: Path,
    result: AbResult,
    work: Work,
    case: str | None = None,
    *,
    machine: str | None = None,
    model: str | None = None,
    cost: Cost = "cycles",
) -> CaseExplanation:
    """Explain one case of a finished result: the named one, else the one with the largest change.

    machine, model: the cost model's; None for the result's, or the whole model.
    """
    chosen = profiles.choose(result, case)
    found = profiles.collect(folder, chosen, work, machine=machine, model=model)
    cost = "instructions" if found.model == "count" else cost
    explanation = explain(found.base, found.test, cost=cost)
    kept = StoredExplanation(
        workload=chosen.workload,
        case=chosen.case,
        machine=found.machine,
        model=found.model,
        cost=cost,
        explanation=explanation,
        initcalls=initcalls(*found.initcalls) if found.initcalls else [],
        lines=met(found.base, found.test),
    )
    remember(folder, kept)
    counted = [*chosen.metrics, *kernel_counters(runs.load_all(folder), chosen)]
    return CaseExplanation(
        result=result,
        case=chosen,
        explanation=explanation,
        mechanisms=mechanisms(explaining(chosen, counted, result.threshold)),
        machine=found.machine,
        model=found.model,
        cost=cost,
        initcalls=kept.initcalls,
        lines=kept.lines,
    )


# ---- the kernels' choices by CPUID


def cpu_of_result(
    folder: Path, result: AbResult, work: Work, case: str | None = None, *, machine: str | None = None
) -> CpuChoices:
    """The CPU that a result's guests saw, and the features that its kernels ask for. machine: another's."""
    if result.live is not None:
        raise UserError(
            f"{result.result} was measured in live mode, in which guests see the host's CPU",
            hint="give --base and --test in place of a result",
        )
    plan = result_folders.load_plan(folder)
    chosen = profiles.choose(result, case)
    cost = {}
    if profiles.kept(folder, chosen, plan.machine, None):
        rows = find(folder, result, work, case).explanation.rows
        cost = {row.name: row.base_cycles + row.test_cycles for row in rows if row.space == "kernel"}
    cpu = None if machine else result.environment.cpu
    kernels = [arm.kernel for arm in Measurement.of(plan, folder, plan.base.spec).arms(plan.planned, work)]
    found = cpu_choices(machine or plan.machine, kernels, qemu=plan.qemu, cpu=cpu, cost=cost)
    return msgspec.structs.replace(found, case=f"{chosen.workload}:{chosen.case}" if cost else None)


def cpu_choices(
    machine: str | None,
    kernels: Sequence[Kernel] = (),
    *,
    qemu: str = exact.QEMU,
    cpu: str | None = None,
    cost: Mapping[str, int] | None = None,
) -> CpuChoices:
    """The features that kernels look for in the CPU of a machine's guests, or in another (QEMU's `-cpu`)."""
    architecture.require_default("--cpu", [kernel.architecture for kernel in kernels])
    emulator, modelled = exact.find_qemu(qemu), hardware.load(machine or hardware.DEFAULT)
    own = modelled.guest.cpu if modelled.guest else exact.exact_machine().cpu
    seen = exact.cpuid(emulator, cpu or own)
    guest = alternatives.features(seen.words)
    lacks, off = (modelled.guest.lacks, modelled.guest.off) if modelled.guest else ([], {})
    there = alternatives.features(exact.cpuid(emulator, own).words) if cpu not in (None, own) else guest
    tables = [alternatives.of_kernel(kernel) for kernel in kernels]
    return CpuChoices(
        machine=modelled.name,
        cpu=cpu or own,
        qemu=emulator.version,
        features=sorted(guest),
        lacks=lacks,
        off=off,
        refused=sorted(alternatives.features(seen.refused)),
        base=kernels[0].spec.text if kernels else None,
        test=kernels[-1].spec.text if len(kernels) > 1 else None,
        choices=alternatives.choices(tables, guest, {*there, *lacks, *off}, cost) if tables else [],
    )


# ---- a lint of one kernel: the lines that its vCPUs move for nothing, by the members in them


class CaseLint(Record, frozen=True, kw_only=True):
    """The false sharing in one case."""

    case: str
    lines: list[FalseSharing]


def lint(kernel: str, options: MeasureOptions, work: Work) -> list[CaseLint]:
    """The false sharing of a kernel in each case, from one guest of each workload.

    `UserError` for workloads whose vCPUs do not contend.
    """
    for workload, _ in selection.select_all(options.workload):
        if not workload.contends or workload.vcpus < 2:
            raise UserError(
                f"{workload.name}: one vCPU shares no line", hint=f"name more of them: {workload.name.split('@')[0]}@4"
            )
    options.require()
    (spec,) = options.resolve([kernel], work.progress)
    arm = ArmPlan(spec=spec, cc=options.cc)
    found = []
    with process.scratch("lab-lint-") as folder:
        (folder / "runs").mkdir()
        ready = prepare(Plan.of(options.for_kernels([spec]), base=arm, test=arm), folder, work)
        guests = [(one, one.guest(ready.arms[0], runs.PROFILED_SEED, one.cases)) for one in ready.series]
        with work.progress.task("looking at lines", None) as task:
            sampling.run_all(guests, work.until(None), task)
        for one, guest in guests:
            _, made = image.obtain(work.progress, packages=one.bench.workload.packages)
            for name, profile in profiles.of_guest(guest, made / "root").items():
                found.append(CaseLint(case=f"{one.bench.workload.name}:{name}", lines=moved_for_nothing(profile)))
    return found
