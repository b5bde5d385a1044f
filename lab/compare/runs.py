"""One run: one guest, one arm, one seed, all chosen cases of a workload. Its record is never thrown away."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from lab.compare import estimates
from lab.core import paths, records
from lab.core.errors import GuestFailed, GuestFailure
from lab.core.executor import Executor, Work
from lab.core.records import Record
from lab.guests import channel, costs, exact, file_systems, initrd, output, run, snapshot
from lab.guests.channel import CaseOutcome, GuestReport
from lab.guests.exact import ExactGuest, ExactMachine, Qemu
from lab.guests.plugin import COSTS, Instrument, Marks, Model, Window, by_case, has_mark
from lab.guests.run import CONSOLE, INITRD, REPORT, Arm, RunningGuests
from lab.guests.snapshot import GoingOn, Keeping, Snapshot, Start
from lab.kernels import architecture
from lab.kernels.architecture import MachineType
from lab.workloads.spec import Case, Workload

# The job follows the root in the initrd, always this large: its length must not move the memory behind it.
_JOB_BYTES = 16 << 10
_PAGE = 4096

# The cost model's output, profile included, is kept of one seed, for `lab explain`.
PROFILED_SEED = 1

TURNS = 8
"""The boots of a guest that QEMU's flags end: each is a few instructions longer."""

_TURN = "lab.turn"
"""A parameter that kernels only read over, at the start and before each level of initcalls."""

USER_CODE = "user-code.json"
"""The part of every seed's profile that is the program's own, in the guest's folder."""

_UNWRITTEN = ("nr_dirty", "nr_writeback")
"""The counters of pages to be written; the values at the case's begin are taken off."""

UserCode = dict[str, list[tuple[int, int, int]]]
"""By case: address, instructions and executions of each block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The guests of one workload: the part that all of its runs share.

    packed_root: the root that they unpack.
    fingerprint: of all inputs of their numbers except kernel, settings and seed.
    snapshots: False for guests that boot each time, even if they could continue from a kept state.
    turns_only: the model ends the turns of vCPUs, and the workload's own numbers decide.
    """

    qemu: Qemu
    machine: MachineType
    workload: Workload
    packed_root: Path
    timeout_s: float
    folder: Path
    instrument: Instrument | None = None
    fingerprint: str = ""
    parameters: ExactMachine = field(default_factory=exact.exact_machine)
    snapshots: bool = True
    turns_only: bool = False

    @property
    def modelled(self) -> bool:
        """True if the model's numbers decide."""
        return self.instrument is not None and not self.turns_only

    @property
    def root_digest(self) -> str:
        return records.sealed_digest(self.packed_root)

    def guest(self, settings: Mapping[str, str], turn: int = 0) -> ExactGuest:
        """The guest of an arm with these settings. turn: how many boots before this one failed by QEMU's flags."""
        arguments = [*self.workload.arguments(settings), *([f"{_TURN}={'+' * turn}"] if turn else [])]
        machine = self.instrument.machine if self.instrument else None
        return ExactGuest(
            qemu=self.qemu,
            machine=self.machine,
            vcpus=self.workload.vcpus,
            memory_mb=self.workload.memory_mb,
            cmdline=exact.believing(exact.cmdline(arguments, self.parameters), machine),
            instrument=self.instrument,
            parameters=self.parameters,
        )

    @property
    def windows(self) -> int:
        """The runs of each case in a guest: several if a model runs and the program marks no windows."""
        if not self.modelled or has_mark(Marks.WINDOW_BEGIN, self.packed_root, architecture.of_machine(self.machine)):
            return 1
        return self.workload.windows

    @property
    def step_ns(self) -> int | None:
        """The guest time of an instruction, if a model runs."""
        return self.parameters.step_ns if self.modelled else None

    def with_fingerprint(self) -> Bench:
        """The bench with its guests' fingerprint as they are now."""
        settings = self.workload.guest_settings(self.parameters.settings, {})
        found = self.guest({}).fingerprint(settings=settings, env=self.workload.env, initrd_sha256=self.root_digest)
        return replace(self, fingerprint=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestRun:
    """One guest of a measurement: an arm with a seed, and the cases that it runs.

    windows: how many times it runs a case, if not once.
    turn: how many of its boots QEMU's flags ended before this one.
    """

    bench: Bench
    arm: Arm
    seed: int
    cases: Sequence[Case]
    windows: Mapping[str, int] = field(default_factory=dict)
    turn: int = 0

    @property
    def name(self) -> str:
        return run_name(self.bench.workload, self.arm.name, self.seed, self.cases)

    @property
    def record_path(self) -> Path:
        return run_path(self.bench.folder, self.name)

    @property
    def folder(self) -> Path:
        """The guest's folder: its console, its report, and the costs."""
        return guest_folder(self.bench.folder, self.name)

    @property
    def commands(self) -> dict[str, list[str]]:
        return {case.name: self.bench.workload.command(case) for case in self.cases}

    def argv(self) -> list[str]:
        """QEMU's argument list."""
        kernel = self.arm.kernel.image(self.bench.machine)
        return self.bench.guest(self.arm.settings, self.turn).argv(
            kernel=kernel, folder=self.folder, root=self.bench.packed_root, system_map=self.arm.kernel.symbols
        )  # fmt: skip

    def preparation(self) -> bytes:
        """The text of /job: how the guest is made ready, for any seed and cases."""
        workload = self.bench.workload
        return channel.encode_job(
            settings=workload.guest_settings(self.bench.parameters.settings, self.arm.settings),
            env=workload.environment(self.arm.settings),
            setups=file_systems.setups(workload, self.arm.settings),
        )

    def cases_text(self) -> bytes:
        """The text of /cases."""
        ordered = [
            (case.name, self.bench.workload.command(case))
            for case in shuffled(self.cases, self.seed)
            for _ in range(self.windows.get(case.name, 1))
        ]
        return channel.encode_cases(self.seed, ordered)

    def job(self) -> bytes:
        """The bytes behind the root in the guest's initrd: the job, and the padding behind it."""
        texts = self.preparation(), self.cases_text()
        if (longest := max(map(len, texts))) > _JOB_BYTES:
            raise GuestFailed(
                GuestFailure.MALFORMED, f"the job is {longest} bytes long, more than {_JOB_BYTES}; choose fewer cases"
            )
        packed = channel.pack_job(*texts, size=_JOB_BYTES)
        return packed + padding(self.bench.packed_root.stat().st_size + len(packed))

    def snapshot(self) -> Snapshot | None:
        """The snapshot that the guest can continue from, or leave; None if it has to boot.

        A guest has to boot if the boot is measured, if no plugin runs that could hold it, if several vCPUs take QEMU's
        own turns (its state does not say whose turn has how much left), and if its init is not the lab's.
        """
        bench = self.bench
        guests = architecture.of_machine(bench.machine)
        if not bench.snapshots or bench.instrument is None:
            return None
        if bench.workload.vcpus > 1 and not bench.workload.contends:
            return None
        entry = snapshot.entry(initrd.init_of(bench.packed_root), guests.pc)
        if entry is None or has_mark(Marks.MEASURES_BOOT, bench.packed_root, guests):
            return None
        guest = bench.guest(self.arm.settings, self.turn)
        facts = [guest.beginning(), bench.root_digest, self.arm.kernel.key, self.preparation().decode()]
        return Snapshot(key=records.digest(facts)[:32], entry=entry)


class Run(Record, frozen=True, kw_only=True):
    """The record of one run: `runs/<name>.json`. commands: of each case in the guest.

    windows: of each case that ran several times, the modelled cycles an operation in each window.
    events: of each case, the counts that the cycles which decide are the sum of (see `costs.events`).
    turn: of the boot that lived.
    """

    schema: int = 1
    arm: str
    workload: str
    seed: int
    cases: list[str]
    commands: dict[str, list[str]] = msgspec.field(default_factory=dict)
    kernel: str
    fingerprint: str
    wall_s: float
    argv: list[str]
    report: GuestReport
    costs: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    windows: dict[str, list[float]] = msgspec.field(default_factory=dict)
    events: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    turn: int = 0

    @property
    def repeats(self) -> dict[str, int]:
        """The runs of each case, if not one."""
        return {case: len(costs) for case, costs in self.windows.items()}

    def metrics(self, case: str) -> dict[str, float]:
        """The numbers of one case: the workload's own, and the modelled ones if a model ran."""
        return GuestOutput(self.report, self.costs, self.wall_s).metrics(case)

    def left_processes(self, case: str) -> float:
        """The processes that a command left behind, which its own program counts (images/command/reaper.c)."""
        return fmean([outcome.metrics.get("left_processes", 0) for outcome in self.report.outcomes(case)] or [0])

    def unwritten_cycles(self, case: str) -> float:
        """An estimate of the cycles an operation that the case leaves for after its end: files' pages to be written."""
        pages = sum(outcome.vmstat.get(name, 0) for outcome in self.report.outcomes(case) for name in _UNWRITTEN)
        operations = self.costs.get(case, {}).get("counted_operations")
        return max(0, pages) * costs.WRITTEN_PAGE / operations if operations else 0.0


def run_name(workload: Workload, arm: str, seed: int, cases: Sequence[Case]) -> str:
    """The name of a run: `<workload>-<arm>-<seed>`, or `<workload>+<case>-<arm>-<seed>` with a guest to itself."""
    alone = f"+{cases[0].name}" if workload.isolate else ""
    return f"{workload.name}{alone}-{arm}-{seed:04d}"


def run_path(folder: Path, name: str) -> Path:
    return folder / "runs" / f"{name}.json"


def load_all(folder: Path) -> list[Run]:
    """The records of all runs in a result folder, by name; an unreadable one is named, and passed over."""
    return [run for _, run in records.load_each(sorted((folder / "runs").glob("*.json")), Run)]


def guest_folder(folder: Path, name: str) -> Path:
    return folder / "guests" / name


@runtime_checkable
class GuestExecutor(Executor, Protocol):
    """Other machines that run guests."""

    def machines(self, bench: Bench) -> int:
        """The number of machines whose guests give the same numbers as this machine's."""

    def guests(self, bench: Bench) -> int:
        """The number of guests that all of them run at a time."""

    def measure(self, guest: GuestRun, running: RunningGuests) -> Run:
        """Run a guest. Its record is saved, and its folder filled, on this machine."""


def executor_of(work: Work) -> GuestExecutor | None:
    """The other machines that run a command's guests; None if this machine runs them."""
    return work.executor if isinstance(work.executor, GuestExecutor) else None


def measure(guest: GuestRun, running: RunningGuests) -> Run:
    """Boot one guest, run the cases, save the record. A case that fails costs itself: the record has its failure.

    Raises `GuestFailed` naming the arm, the seed and the way it died. The guest's folder stays for reading.
    """
    make_folder(guest)
    began = time.thread_time()
    output = boot(guest, running)
    run = save_run(guest, output)
    usual, workload = exact.exact_machine(), guest.bench.workload
    if guest.bench.parameters == (usual.for_contention(workload.vcpus) if workload.contends else usual):
        estimates.learn(
            workload,
            guest.cases,
            output.cpu_s + time.thread_time() - began,
            built=guest.arm.kernel.spec.tree_source is not None,
            model=guest.bench.instrument.model if guest.bench.instrument else "none",
            booted=output.booted,
        )
    return run


def failure_of(bench: Bench, run: Run, case: Case) -> GuestFailed | None:
    """The error of a case that failed in a guest which ran to its end."""
    outcome = run.report.case(case.name)
    if outcome is None or (failed := outcome.failure) is None:
        return None
    folder = guest_folder(bench.folder, run_name(bench.workload, run.arm, run.seed, [case]))
    log = folder / failed.log if failed.log else None
    message = f"{run.arm} arm, seed {run.seed}: {failed.message}"
    return GuestFailed(failed.kind, message, hint=failed.hint, log=log, case=case.name)


def make_folder(guest: GuestRun) -> None:
    """Make the guest's folder, empty."""
    shutil.rmtree(guest.folder, ignore_errors=True)
    guest.folder.mkdir(parents=True)


def boot(guest: GuestRun, running: RunningGuests) -> GuestOutput:
    """Boot the guest in its folder, and read its output; if QEMU's flags end it, again, a few instructions longer.

    The same guest dies in the same way everywhere, so the surviving guest is the same everywhere, too.
    """
    for turn in range(TURNS - 1):
        try:
            return _boot(replace(guest, turn=turn), running)
        except GuestFailed as error:
            if not error.wrong_flags:
                raise
            make_folder(guest)
    return _boot(replace(guest, turn=TURNS - 1), running)


def _boot(guest: GuestRun, running: RunningGuests) -> GuestOutput:
    """Boot a guest, or have it continue from the state that an earlier one left; a useless state is made again."""
    kept = guest.snapshot()
    if kept is None:
        return _run(guest, running, None)
    if (output := _go_on(guest, running, kept)) is not None:
        return output
    # If several vCPUs run, QEMU on a busy host does not quite go on where it stopped: such a guest starts anew.
    with Keeping(kept, guest.folder, ends=guest.bench.workload.contends) as keeping:
        try:
            return _run(guest, running, keeping)
        except GuestFailed:
            if keeping.error is None and not keeping.has_ended:
                raise
    make_folder(guest)
    output = _go_on(guest, running, kept) if keeping.has_ended else None
    return output or _run(guest, running, None)


def _go_on(guest: GuestRun, running: RunningGuests, kept: Snapshot) -> GuestOutput | None:
    """Have a guest continue from a kept state; None if there is none that QEMU can use."""
    if not (state := kept.load()):
        return None
    for name, said in ((CONSOLE, state.console), (REPORT, state.report)):
        with paths.writing(guest.folder / name):
            (guest.folder / name).write_bytes(said)
    with GoingOn(kept, guest.cases_text()) as going_on:
        try:
            return _run(guest, running, going_on)._replace(booted=False)
        except GuestFailed:
            if not going_on.is_refused:
                raise
    kept.discard()
    make_folder(guest)
    return None


def _run(guest: GuestRun, running: RunningGuests, start: Start | None) -> GuestOutput:
    bench, archive = guest.bench, guest.folder / INITRD
    with paths.writing(archive):
        archive.write_bytes(bench.packed_root.read_bytes() + guest.job())
    try:
        found = boot_and_read(
            guest.argv(), guest.folder, bench.workload, guest.cases,
            step_ns=bench.step_ns, timeout_s=bench.timeout_s, running=running, start=start,
        )  # fmt: skip
        return found.on(bench.machine, bench.instrument.model if bench.instrument else None)._replace(turn=guest.turn)
    except GuestFailed as error:
        error.message = f"{guest.arm.name} arm ({guest.arm.kernel.spec.text}), seed {guest.seed}: {error.message}"
        raise


def save_run(guest: GuestRun, output: GuestOutput) -> Run:
    """Save a guest's output as the record of its run."""
    run = Run(
        arm=guest.arm.name,
        workload=guest.bench.workload.name,
        seed=guest.seed,
        cases=[case.name for case in guest.cases],
        commands=guest.commands,
        kernel=guest.arm.kernel.key,
        fingerprint=guest.bench.fingerprint,
        wall_s=output.wall_s,
        argv=replace(guest, turn=output.turn).argv(),
        report=output.report,
        costs=output.costs,
        windows=output.windows,
        events=output.events,
        turn=output.turn,
    )
    if guest.seed != PROFILED_SEED:
        (guest.folder / COSTS).unlink(missing_ok=True)
    elif (guest.folder / COSTS).exists():
        records.seal(guest.folder / COSTS)
    records.save(guest.record_path, run)
    return run


class GuestOutput(NamedTuple):
    """The report of one guest with every case's metrics, and the modelled ones. booted: not from a kept state."""

    report: GuestReport
    costs: dict[str, dict[str, float]]
    wall_s: float
    cpu_s: float = 0.0
    windows: dict[str, list[float]] = {}  # noqa: RUF012  (never written to)
    events: dict[str, dict[str, float]] = {}  # noqa: RUF012
    turn: int = 0
    booted: bool = True

    def on(self, machine: MachineType, model: Model | None) -> GuestOutput:
        """The output of a guest on a kind of machine: if it was only counted, without a model's metrics."""
        if architecture.of_machine(machine).modelled or model != Model.COUNT:
            return self
        return self._replace(costs={case: costs.counts(values) for case, values in self.costs.items()}, events={})

    def metrics(self, case: str) -> dict[str, float]:
        """The numbers of one case: the workload's own, and the modelled ones if a model ran."""
        return {**_means([outcome.metrics for outcome in self.report.outcomes(case)]), **self.costs.get(case, {})}


def _means(metrics: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """The metrics of a case, on average if it ran several times."""
    if len(metrics) < 2:
        return metrics[0] if metrics else {}
    names = [name for name in metrics[0] if all(name in other for other in metrics)]
    return {name: fmean(one[name] for one in metrics) for name in names}


def boot_and_read(
    argv: Sequence[str],
    folder: Path,
    workload: Workload,
    cases: Sequence[Case],
    *,
    step_ns: int | None,
    timeout_s: float,
    running: RunningGuests,
    start: Start | None = None,
) -> GuestOutput:
    """Boot the guest whose initrd is in a folder, and read its output.

    step_ns: the guest time of an instruction; None without a model.
    start: the snapshot to make or to use.
    The initrd is removed in any case: it is large, and can be made again.
    """
    words, begin, fds = (start.changed(argv), start.begin, start.fds) if start else (argv, None, ())
    try:
        with run.needing_disk(folder):
            ended = run.boot(
                [*words, *exact.sandbox(argv[0])], folder=folder, timeout_s=timeout_s, running=running,
                file_max=run.FILE_MAX, on_start=begin, fds=fds,
            )  # fmt: skip
            report = run.read_report(ended)
            output.collect_some(report, workload, cases, folder)
            found = GuestOutput(report, {}, ended.wall_s, ended.cpu_s)
            return _modelled(found, folder / COSTS, workload, step_ns) if step_ns else found
    finally:
        (folder / INITRD).unlink(missing_ok=True)


def _modelled(found: GuestOutput, path: Path, workload: Workload, step_ns: int) -> GuestOutput:
    """A guest's output with the plugin's by case. The plugin knows cases by their order in the boot."""
    report, by_number = found.report, by_case(path)
    costs_of, each, code, events = {}, {}, UserCode(), {}
    for name in dict.fromkeys(outcome.name for outcome in report.cases):
        outcomes = [(number, one) for number, one in enumerate(report.cases, start=1) if one.name == name]
        if any(outcome.failure for _, outcome in outcomes):
            continue
        if any(number not in by_number for number, _ in outcomes):
            raise GuestFailed(GuestFailure.NO_REPORT, f"the cost model saw nothing of case {name}", log=path)
        windows = [by_number[number] for number, _ in outcomes]
        whole = [window for one in windows for window in one]
        count = operations_of(workload, report, name)
        elapsed = _elapsed_ns(workload, [outcome for _, outcome in outcomes], whole)
        costs_of[name] = {
            **costs.summarize(whole, count, center=workload.center),
            **costs.guest_times(whole, count, step_ns=step_ns, elapsed_ns=elapsed),
        }
        events[name] = costs.events(whole, count, measures=workload.measures, center=workload.center)
        if len(windows) > 1:
            counted = [outcome.metrics.get(workload.operations) for _, outcome in outcomes]
            each[name] = [costs.summarize(*one)["cycles_per_op"] for one in zip(windows, counted, strict=True)]
        blocks = [block for window in whole for block in window.blocks if not block.kernel]
        code[name] = [(block.address, block.instructions, block.executions) for block in blocks]
    records.write_atomic(path.with_name(USER_CODE), records.sealed(msgspec.json.encode(code)))
    return found._replace(costs=costs_of, windows=each, events=events)


def _elapsed_ns(workload: Workload, outcomes: Sequence[CaseOutcome], windows: Sequence[Window]) -> float | None:
    """The guest time of a case's windows: by init around whole cases, else by the workload's metric of an operation."""
    own = any(window.own for window in windows)
    times = [one.metrics.get(workload.elapsed) if own else one.usage.get("elapsed_ns") for one in outcomes]
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return None
    return sum(known) if not own else fmean(known) * sum(len(window.operations) for window in windows)


def user_code(folder: Path, name: str) -> UserCode:
    """The program's own code in a run, from its guest's folder; empty if that was not kept."""
    return records.find(guest_folder(folder, name) / USER_CODE, UserCode) or {}


def operations_of(workload: Workload, report: GuestReport, case: str) -> float | None:
    """The number of operations of a case, if its program counts them in a metric and marks none."""
    outcomes = report.outcomes(case)
    return sum(one.metrics[workload.operations] for one in outcomes) if workload.operations and outcomes else None


def padding(length: int) -> bytes:
    """The padding of an initrd of so many bytes, so that all of its last page but a few bytes stays untouched.

    QEMU loads it at page alignment as high as memory goes; newer firmware (seen with QEMU 10.0's) keeps the ACPI
    tables of a microvm in that very page, and a full last page would overwrite them.
    """
    return b"\0" * (-length % _PAGE + 4)


def shuffled(cases: Sequence[Case], seed: int) -> list[Case]:
    """The order of the cases in one boot, by seed: a case can leave traces to the next."""
    place = {name: number for number, name in enumerate(order([case.name for case in cases], seed))}
    return sorted(cases, key=lambda case: place[case.name])


def order(names: Sequence[str], seed: int) -> list[str]:
    """The names of cases as they follow each other in a boot."""
    return sorted(names, key=lambda name: records.digest([seed, name]))
