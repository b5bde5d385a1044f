"""Profiles of a stored result's arms: the stored ones of seed 1, or new ones from guests that run for them.

Some explanations come from guests that run for this alone, because they cost time that no number of the measurement
has: the initcalls of a boot from the kernel's own log, and the addresses of loaded modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from lab.compare import result_folders, runs, sampling
from lab.compare.measurement import ExactGuests, prepare
from lab.compare.results import AbResult, CaseResult
from lab.compare.runs import Bench, GuestRun, Run
from lab.compare.sampling import Series
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure, UserError
from lab.core.executor import Work
from lab.guests import exact, file_systems, hardware, image, initrd, plugin
from lab.guests.plugin import COSTS, Block, Window
from lab.kernels import architecture, places, symbols
from lab.kernels.places import Places
from lab.kernels.symbols import KERNEL_HALF, Symbol, SymbolTable
from lab.stats.verdict import distance
from lab.workloads import selection
from lab.workloads.spec import Metric, Workload

OUTSIDE = "[outside initcalls]"
"""The part of the boot before, between and after them, with the messages of the log."""

ASYNC = "async"
"""The level of functions that the kernel runs beside its initcalls (kernel/async.c)."""

# Kernels with CONFIG_DYNAMIC_DEBUG also log asynchronous ones.
_LOG_INITCALLS = ("initcall_debug", "log_buf_len=4M", "async.dyndbg=+p")
_LOG = f"{initrd.BUSYBOX} dmesg"
# The kernel of one arm alone may load modules: grep would call no line a failure.
_MODULES = f"{initrd.BUSYBOX} sed -n /]/p /proc/kallsyms"
# Bounded, because a kernel may print anything: numbers that no int holds, words of megabytes.
_TIMED = r"\[ *(\d{1,9})\.(\d{6})\] "
_CALLING = re.compile(rf"{_TIMED}calling  (\S{{1,512}}?)\+0x")
_RETURNED = re.compile(rf"{_TIMED}initcall (\S{{1,512}}?)\+0x\S{{1,64}} returned (?:-?\d+ )?after (\d{{1,12}}) usecs")
_ASYNC_NAME = re.compile(r"\d+_(.+)")
_CLOCK = "clocksource: Switched to clocksource"
_INIT = re.compile(rf"{_TIMED}Run /init as init process")


class Call(NamedTuple):
    """A function of the boot. level: of its initcall, such as `subsys`; `async`; or empty if nothing names it."""

    name: str
    level: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmProfile:
    """The code that one arm executed, and the names for it.

    operations: of the workload, in the same window or windows as the blocks; several runs are one profile if
    blocks and operations of all are given. kernel, user: asked in this order, so the measured program comes
    first; addresses alone cannot tell two programs apart that lie at the same place.
    windows: those of the blocks, with call chains and moved lines if there are any. places: names of the lines.
    """

    blocks: Sequence[Block]
    operations: int
    kernel: Sequence[SymbolTable]
    user: Sequence[SymbolTable] = ()
    windows: Sequence[Window] = ()
    places: Places | None = None

    def symbol(self, address: int) -> tuple[SymbolTable | None, Symbol | None]:
        """The symbol that an address is in, and the table that has it; None for an address that no table knows."""
        for table in self.kernel if address >= KERNEL_HALF else self.user:
            if (found := table.find(address)) is not None:
                return table, found
        return None, None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Both arms of one case, and their model."""

    base: ArmProfile
    test: ArmProfile
    machine: str
    model: str
    initcalls: Sequence[dict[Call, int]] = field(default_factory=list)
    """Microseconds of guest time of each initcall in both arms, if the case is a boot."""


def choose(result: AbResult, case: str | None) -> CaseResult:
    """The case to explain: the named one, else the case that speaks for the result, else the largest change."""
    if case is not None:
        name = case.rpartition(":")[2]
        for one in result.cases:
            if one.case == name and case in (name, f"{one.workload}:{name}"):
                return one
        raise UserError(
            f"{result.result} has no case {case!r}", hint=f"it has {', '.join(one.case for one in result.cases)}"
        )
    if result.headline is not None:
        return result.headline
    changed = [one for one in result.cases if one.verdict.is_change]
    return max(changed or result.cases, key=lambda case: distance(case.primary.ratio))


def collect(
    folder: Path, case: CaseResult, work: Work, *, machine: str | None, model: str | None, chains: bool = False
) -> Profiles:
    """Both arms' profiles of one case, by a machine and a model; None: those it was measured with.

    A measurement keeps the profiles of its first seed. If that seed had no model, or another model or call chains are
    requested, one guest of each arm is run again, once.
    """
    asked = result_folders.load_plan(folder)
    guests = architecture.load(asked.base.spec.architecture)
    if not guests.modelled and (machine or model):
        raise UserError(
            f"{guests.name} guests have no cost model but one that they were measured with",
            hint="leave out --machine and --model",
        )
    own = kept(folder, case, machine or asked.machine, model)
    plan = msgspec.structs.replace(
        asked,
        workloads=[selection.only(asked.workloads, case.workload, case.case)],
        machine=machine or asked.machine or hardware.DEFAULT,
        model=model or own or ("full" if guests.modelled else "count"),
    )
    place, aside = folder, folder / "explain"
    anew = chains or plan.model != own
    if anew:
        place = aside / f"{case.case}-{plan.model}-{Path(plan.machine or '').stem}{'-chains' * chains}"
        (place / "runs").mkdir(parents=True, exist_ok=True)
    ready = prepare(plan, place, work)
    (series,) = ready.series
    if chains:
        series.bench = _with_chains(series.bench)
    if anew:
        again = [(series, series.guest(arm, runs.PROFILED_SEED, series.cases)) for arm in ready.arms]
        with work.progress.task("profiling", None) as task:
            sampling.run_all(again, work.until(None), task)
    packages = series.bench.workload.packages
    root = image.obtain(work.progress, packages=packages, guests=guests.name)[1] / "root"
    base, test = (
        of_guest(series.guest(arm, runs.PROFILED_SEED, [series.bench.workload.case(case.case)]), root)[case.case]
        for arm in ready.arms
    )
    if any(file_systems.loads_modules(series.bench.workload, arm) for arm in ready.arms):
        loaded = map(symbols.of_modules, _printed(ready, aside / f"{case.case}-modules", _MODULES, work))
        base, test = (
            replace(profile, kernel=[*profile.kernel, names])
            for profile, names in zip((base, test), loaded, strict=True)
        )
    return Profiles(
        base=base,
        test=test,
        machine=hardware.load(plan.machine or hardware.DEFAULT).name,
        model=plan.model,
        initcalls=_initcalls(ready, aside / f"{case.case}-initcalls", work),
    )


def kept(folder: Path, case: CaseResult, machine: str | None, model: str | None) -> str | None:
    """The model whose profiles the measurement itself kept, if it is the requested one."""
    shape = result_folders.load_result(folder).environment.guests[case.workload]
    stored = shape.model
    kind = stored.partition(" ")[0]
    if model not in (None, kind):
        return None
    wanted = plugin.load_instrument(machine, kind)
    wanted = wanted and wanted.of(case.workload)
    needed = exact.exact_machine().contention
    if wanted is not None and needed is not None and shape.contends:
        wanted = wanted.contending(needed.quantum)
    return kind if wanted is not None and wanted.identity == stored else None


def of_guest(guest: GuestRun, root: Path) -> dict[str, ArmProfile]:
    """The profiles that a guest of the profiled seed left, by case. root: of the guest image."""
    workload, kernel = guest.bench.workload, guest.arm.kernel
    run, path = records.load(guest.record_path, Run), guest.folder / COSTS
    records.require_unchanged(path)
    # The plugin knows cases by their order in the boot.
    by_number = plugin.by_case(path)
    found = {}
    own = initrd.own_files(workload, kernel.architecture)
    program = own.get(workload.program, root / workload.program.lstrip("/"))
    names = symbols.kernel_symbols(kernel.vmlinux or kernel.bzimage, kernel.symbols), symbols.from_elf(program)
    image_of = kernel.vmlinux or kernel.bzimage
    for case in guest.cases:
        numbers = [number for number, outcome in enumerate(run.report.cases, start=1) if outcome.name == case.name]
        windows = [window for number in numbers for window in by_number.get(number, [])]
        if not windows:
            raise GuestFailed(GuestFailure.NO_REPORT, f"the cost model saw nothing of case {case.name}", log=path)
        counted = runs.operations_of(workload, run.report, case.name)
        found[case.name] = ArmProfile(
            blocks=[block for window in windows for block in window.blocks],
            operations=sum(len(window.operations) for window in windows) or round(counted or len(windows)),
            kernel=[names[0]],
            user=[names[1]],
            windows=windows,
            places=places.of_kernel(image_of, kernel.symbols)
            if image_of and any(window.lines for window in windows)
            else None,
        )
    return found


def _with_chains(bench: Bench) -> Bench:
    """The bench of guests whose profile has call chains."""
    guests = architecture.of_machine(bench.machine)
    if bench.instrument is None or guests.name != architecture.DEFAULT or bench.workload.vcpus > 1:
        raise UserError(
            f"{bench.workload.name} has no call chains: they are of {architecture.DEFAULT} guests with one vCPU",
            hint="leave out --folded, --flame-graph and --speedscope",
        )
    return replace(bench, instrument=replace(bench.instrument, chains=True))


# ---- the initcalls of a boot


def _initcalls(ready: ExactGuests, folder: Path, work: Work) -> list[dict[Call, int]]:
    """The initcalls of both arms; none if the case is not a boot."""
    (series,) = ready.series
    guests = architecture.of_machine(series.bench.machine)
    if not plugin.has_mark(plugin.Marks.MEASURES_BOOT, series.bench.packed_root, guests):
        return []
    logs = _printed(ready, folder, _LOG, work, _LOG_INITCALLS)
    kernels = (arm.kernel for arm in ready.arms)
    levels = (symbols.initcall_levels(kernel.vmlinux or kernel.bzimage, kernel.symbols) for kernel in kernels)
    return [initcalls_of(log, own) for log, own in zip(logs, levels, strict=True)]


def _printed(
    ready: ExactGuests, folder: Path, command: str, work: Work, cmdline: Sequence[str] = ()
) -> list[Sequence[str]]:
    """The lines that a command prints in a guest of each arm. cmdline: more words for its kernel."""
    (series,) = ready.series
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    asked = Series(bench=_printing(series.bench, folder, command, work, cmdline), cases=series.cases)
    guests = [(asked, asked.guest(arm, runs.PROFILED_SEED, asked.cases)) for arm in ready.arms]
    with work.progress.task("asking the guests", 0) as task:
        sampling.run_all(guests, work.until(None), task)
    return [records.load(guest.record_path, Run).report.cases[0].stdout for _, guest in guests]


def _printing(bench: Bench, folder: Path, command: str, work: Work, cmdline: Sequence[str]) -> Bench:
    """The same guest without a model, in which busybox runs a command in place of the workload's program."""
    asked = bench.workload
    elapsed = Metric(
        name="elapsed", unit="ns", better="lower", description="of the program", primary=True, parse="guest",
        field="elapsed_ns",
    )  # fmt: skip
    workload: Workload = msgspec.structs.replace(
        asked,
        program=initrd.BUSYBOX,
        argv=("sh", "-c", command),
        cmdline=(*asked.cmdline, *cmdline),
        metrics=(elapsed,),
        parse="guest",
    )
    guests = architecture.of_machine(bench.machine).name
    root = initrd.pack_initrd(image.obtain(work.progress, packages=asked.packages, guests=guests), workload)
    return replace(bench, folder=folder, workload=workload, packed_root=root, instrument=None)


def initcalls_of(log: Iterable[str], levels: Mapping[str, str]) -> dict[Call, int]:
    """Microseconds of each initcall, and of all else until init is started, by a kernel's log with `initcall_debug`.

    The kernel's own figures are in ticks until it takes a clock source; the times of its messages are not, and have
    the first message with them. Two functions of one name are one. An asynchronous one is not part of the rest: it
    runs while initcalls wait for it, or beside them.
    """
    found: dict[Call, int] = {}
    clock, began = False, dict[str, int]()
    for line in log:
        clock = clock or _CLOCK in line
        if match := _CALLING.search(line):
            began[match[3]] = _microseconds(match)
        elif match := _RETURNED.search(line):
            now = _microseconds(match)
            took = int(match[4]) if clock else now - began.get(match[3], now)
            beside = _ASYNC_NAME.fullmatch(match[3])
            call = Call(beside[1], ASYNC) if beside else Call(match[3], levels.get(match[3], ""))
            found[call] = found.get(call, 0) + took
        elif match := _INIT.search(line):
            inside = sum(took for call, took in found.items() if call.level != ASYNC)
            return {**found, Call(OUTSIDE): _microseconds(match) - inside}
    return found


def _microseconds(match: re.Match[str]) -> int:
    return int(match[1]) * 1_000_000 + int(match[2])
