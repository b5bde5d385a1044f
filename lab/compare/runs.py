"""One run: one guest, one arm, one seed, all chosen cases of a workload. Its record is never thrown away."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from lab.core import cpio, paths, records
from lab.core.errors import GuestFailed, GuestFailure
from lab.core.records import Record
from lab.guests import channel, costs, exact, output, run
from lab.guests.channel import GuestReport
from lab.guests.exact import Environment, ExactGuest, Qemu
from lab.guests.plugin import COSTS, Instrument, by_case
from lab.guests.run import INITRD, Arm, RunningGuests
from lab.kernels.kernel import MachineType
from lab.workloads.spec import Case, Workload

# The job follows the root in the initrd, always this large: its length must not move what lies behind it.
_JOB_BYTES = 16 << 10
_PAGE = 4096

# The cost model's output, profile included, is kept of one seed, from which `lab explain` says why.
PROFILED_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The guests of one workload: what all of its runs share.

    packed_root: the root that they unpack.
    fingerprint: of all that their numbers depend on besides kernel, settings and seed.
    """

    qemu: Qemu
    machine: MachineType
    workload: Workload
    packed_root: Path
    timeout_s: float
    folder: Path
    instrument: Instrument | None = None
    fingerprint: str = ""

    def guest(self, settings: Mapping[str, str]) -> ExactGuest:
        """The guest of an arm with these settings."""
        return ExactGuest(
            qemu=self.qemu,
            machine=self.machine,
            vcpus=self.workload.vcpus,
            memory_mb=self.workload.memory_mb,
            cmdline=exact.cmdline(self.workload.arguments(settings)),
            instrument=self.instrument,
        )

    def environment(self) -> Environment:
        """Everything that the numbers depend on besides kernel, settings and seed."""
        return self.guest({}).environment(
            settings=self.workload.guest_settings(exact.exact_machine().settings, {}),
            env=self.workload.env,
            initrd_sha256=records.file_digest(self.packed_root),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestRun:
    """One guest of a measurement: an arm with a seed, and the cases that it runs."""

    bench: Bench
    arm: Arm
    seed: int
    cases: Sequence[Case]

    @property
    def name(self) -> str:
        """The name of its run."""
        return run_name(self.bench.workload, self.arm.name, self.seed, self.cases)

    @property
    def record_path(self) -> Path:
        """The file of its run's record."""
        return run_path(self.bench.folder, self.name)

    @property
    def folder(self) -> Path:
        """The guest's folder: its console, its report, and what the cost model wrote."""
        return guest_folder(self.bench.folder, self.name)

    @property
    def commands(self) -> dict[str, list[str]]:
        """The command of each case in the guest."""
        return {case.name: self.bench.workload.command(case) for case in self.cases}

    def argv(self) -> list[str]:
        """QEMU's argument list."""
        kernel = self.arm.kernel.image(self.bench.machine)
        return self.bench.guest(self.arm.settings).argv(
            kernel=kernel, folder=self.folder, root=self.bench.packed_root
        )  # fmt: skip

    def job(self) -> bytes:
        """The bytes behind the root in the guest's initrd: the job, and the padding behind it."""
        workload = self.bench.workload
        job = channel.encode_job(
            seed=self.seed,
            cases=[(case.name, workload.command(case)) for case in shuffled(self.cases, self.seed)],
            settings=workload.guest_settings(exact.exact_machine().settings, self.arm.settings),
            env=workload.environment(self.arm.settings),
            setup=workload.setup,
        )
        if len(job) > _JOB_BYTES:
            raise GuestFailed(
                GuestFailure.MALFORMED, f"the job is {len(job)} bytes long, more than {_JOB_BYTES}; choose fewer cases"
            )
        packed = cpio.entry("job", 0o100444, job.ljust(_JOB_BYTES, b"\0")) + cpio.trailer()
        return packed + padding(self.bench.packed_root.stat().st_size + len(packed))


class Run(Record, frozen=True, kw_only=True):
    """The record of one run: `runs/<name>.json`. commands: of each case in the guest."""

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

    def metrics(self, case: str) -> dict[str, float]:
        """The numbers of one case: the workload's own, and the modelled ones where a model was run."""
        return GuestOutput(self.report, self.costs, self.wall_s).metrics(case)


def run_name(workload: Workload, arm: str, seed: int, cases: Sequence[Case]) -> str:
    """The name of a run: `<workload>-<arm>-<seed>`, or `<workload>+<case>-<arm>-<seed>` with a guest to itself."""
    alone = f"+{cases[0].name}" if workload.isolate else ""
    return f"{workload.name}{alone}-{arm}-{seed:04d}"


def run_path(folder: Path, name: str) -> Path:
    """The file of a run's record."""
    return folder / "runs" / f"{name}.json"


def load_all(folder: Path) -> list[Run]:
    """The records of all runs in a result folder, by name."""
    return [records.load(path, Run) for path in sorted((folder / "runs").glob("*.json"))]


def guest_folder(folder: Path, name: str) -> Path:
    """The folder of a run's guest."""
    return folder / "guests" / name


def measure(guest: GuestRun, running: RunningGuests) -> Run:
    """Boot one guest, run the cases, save the record.

    Raises `GuestFailed` naming the arm, the seed and the way it died. The guest's folder stays for reading.
    """
    make_folder(guest)
    return save_run(guest, boot(guest, running))


def make_folder(guest: GuestRun) -> None:
    """Make the guest's folder, empty."""
    shutil.rmtree(guest.folder, ignore_errors=True)
    guest.folder.mkdir(parents=True)


def boot(guest: GuestRun, running: RunningGuests) -> GuestOutput:
    """Boot the guest in its folder, and read its output."""
    bench, initrd = guest.bench, guest.folder / INITRD
    with paths.writing(initrd):
        initrd.write_bytes(bench.packed_root.read_bytes() + guest.job())
    try:
        return boot_and_read(
            guest.argv(), guest.folder, bench.workload, guest.seed, guest.cases,
            modelled=bench.instrument is not None, timeout_s=bench.timeout_s, running=running,
        )  # fmt: skip
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
        argv=guest.argv(),
        report=output.report,
        costs=output.costs,
    )
    if guest.seed != PROFILED_SEED:
        (guest.folder / COSTS).unlink(missing_ok=True)
    records.save(guest.record_path, run)
    return run


class GuestOutput(NamedTuple):
    """The report of one guest with every case's metrics, and the modelled ones."""

    report: GuestReport
    costs: dict[str, dict[str, float]]
    wall_s: float

    def metrics(self, case: str) -> dict[str, float]:
        """The numbers of one case: the workload's own, and the modelled ones where a model was run."""
        outcome = self.report.case(case)
        return {**(outcome.metrics if outcome else {}), **self.costs.get(case, {})}


def boot_and_read(
    argv: Sequence[str],
    folder: Path,
    workload: Workload,
    seed: int,
    cases: Sequence[Case],
    *,
    modelled: bool,
    timeout_s: float,
    running: RunningGuests,
) -> GuestOutput:
    """Boot the guest whose initrd is in a folder, and read its output.

    The initrd is removed in any case: it is large, and can be made again.
    """
    try:
        ended = run.boot(argv, folder=folder, timeout_s=timeout_s, running=running)
        report = run.read_report(ended)
        output.collect(report, workload, cases, folder)
        modelled_costs = _modelled(folder / COSTS, shuffled(cases, seed), workload, report) if modelled else {}
    except GuestFailed:
        paths.require_space(folder)  # a full disk may have cut the report short, which is not its kernel's fault
        raise
    finally:
        (folder / INITRD).unlink(missing_ok=True)
    return GuestOutput(report, modelled_costs, ended.wall_s)


def _modelled(
    path: Path, order: Sequence[Case], workload: Workload, report: GuestReport
) -> dict[str, dict[str, float]]:
    """The modelled metrics of each case; the plugin knows cases by their order in the boot."""
    windows = by_case(path)
    found = {}
    for number, case in enumerate(order, start=1):
        if number not in windows:
            raise GuestFailed(GuestFailure.NO_REPORT, f"the cost model saw nothing of case {case.name}", log=path)
        found[case.name] = costs.summarize(windows[number], operations_of(workload, report, case.name))
    return found


def operations_of(workload: Workload, report: GuestReport, case: str) -> float | None:
    """The number of operations of a case, where its program counts them in a metric and marks none."""
    outcome = report.case(case)
    return outcome.metrics[workload.operations] if workload.operations and outcome else None


def padding(length: int) -> bytes:
    """The padding of an initrd of so many bytes, so that all of its last page but a few bytes stays untouched.

    QEMU loads it at page alignment as high as memory goes; newer firmware (seen with QEMU 10.0's) keeps the ACPI
    tables of a microvm in that very page, and a full last page would overwrite them.
    """
    return b"\0" * (-length % _PAGE + 4)


def shuffled(cases: Sequence[Case], seed: int) -> list[Case]:
    """The order of the cases in one boot, by seed: what one case leaves to the next is not always the same."""
    place = {name: number for number, name in enumerate(order([case.name for case in cases], seed))}
    return sorted(cases, key=lambda case: place[case.name])


def order(names: Sequence[str], seed: int) -> list[str]:
    """The names of cases as they follow each other in a boot."""
    return sorted(names, key=lambda name: records.digest([seed, name]))
