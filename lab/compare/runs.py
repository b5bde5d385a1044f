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
from lab.guests.exact import ExactGuest, Qemu
from lab.guests.plugin import COSTS, Instrument, by_case
from lab.guests.run import INITRD, Arm, Running
from lab.kernels.kernel import MachineType
from lab.workloads.spec import Case, Workload

# The job follows the root in the initrd, always this large: its length must not move what lies behind it.
_JOB_BYTES = 16 << 10
_PAGE = 4096

# The cost model's output, profile included, is kept of one seed, from which `lab explain` says why.
PROFILED_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all runs of a workload share."""

    qemu: Qemu
    machine: MachineType
    workload: Workload
    slice: Path
    timeout_s: float
    folder: Path
    instrument: Instrument | None = None


class Run(Record, frozen=True, kw_only=True):
    """The record of one run: `runs/<name>.json`, with the name that `run_name` gives.

    commands: what each case was in the guest. metrics: see `metrics()`.
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

    def metrics(self, case: str) -> dict[str, float]:
        """The numbers of one case: the workload's own, and the modelled ones where a model was run."""
        outcome = self.report.case(case)
        return {**(outcome.metrics if outcome else {}), **self.costs.get(case, {})}


def run_name(workload: Workload, arm: str, seed: int, cases: Sequence[Case]) -> str:
    """What a run is called: `<workload>-<arm>-<seed>`, or `<workload>+<case>-<arm>-<seed>` with a guest to itself."""
    alone = f"+{cases[0].name}" if workload.isolate else ""
    return f"{workload.name}{alone}-{arm}-{seed:04d}"


def run_path(folder: Path, name: str) -> Path:
    """Where a run's record is."""
    return folder / "runs" / f"{name}.json"


def load_all(folder: Path) -> list[Run]:
    """The records of all runs in a result folder, by name."""
    return [records.load(path, Run) for path in sorted((folder / "runs").glob("*.json"))]


def guest_folder(folder: Path, name: str) -> Path:
    """Where a run's guest had its console, its report, and what the cost model wrote."""
    return folder / "guests" / name


def measure(bench: Bench, arm: Arm, seed: int, cases: Sequence[Case], fingerprint: str, running: Running) -> Run:
    """Boot one guest, run the cases, save the record.

    Raises `GuestFailed` naming the arm, the seed and the way it died. The guest's folder stays for reading.
    """
    guest = fresh_folder(bench, arm, seed, cases)
    argv = arguments(bench, arm, guest)
    got = execute(argv, guest, bench, arm, seed, cases, running)
    return keep(argv, guest, got, bench, arm, seed, cases, fingerprint)


def fresh_folder(bench: Bench, arm: Arm, seed: int, cases: Sequence[Case]) -> Path:
    """An empty folder for a run's guest."""
    guest = guest_folder(bench.folder, run_name(bench.workload, arm.name, seed, cases))
    shutil.rmtree(guest, ignore_errors=True)
    guest.mkdir(parents=True)
    return guest


def arguments(bench: Bench, arm: Arm, guest: Path) -> list[str]:
    """QEMU's argument list for a guest in a folder."""
    kernel = arm.kernel.image(bench.machine)
    return guest_of(bench, arm.settings).argv(kernel=kernel, folder=guest, root=bench.slice)


def guest_of(bench: Bench, settings: Mapping[str, str]) -> ExactGuest:
    """The guest of an arm with these settings."""
    return ExactGuest(
        qemu=bench.qemu,
        machine=bench.machine,
        vcpus=bench.workload.vcpus,
        memory_mb=bench.workload.memory_mb,
        cmdline=exact.cmdline(bench.workload.arguments(settings)),
        instrument=bench.instrument,
    )


def execute(
    argv: Sequence[str], guest: Path, bench: Bench, arm: Arm, seed: int, cases: Sequence[Case], running: Running
) -> Got:
    """Boot the guest of a folder, and take what it gives."""
    with paths.writing(guest / INITRD):
        (guest / INITRD).write_bytes(bench.slice.read_bytes() + job_part(bench, arm, seed, cases))
    try:
        return conduct(
            argv, guest, bench.workload, seed, cases,
            modelled=bench.instrument is not None, timeout_s=bench.timeout_s, running=running,
        )  # fmt: skip
    except GuestFailed as error:
        error.message = f"{arm.name} arm ({arm.kernel.spec.text}), seed {seed}: {error.message}"
        raise


def keep(
    argv: list[str], guest: Path, got: Got, bench: Bench, arm: Arm, seed: int, cases: Sequence[Case], fingerprint: str
) -> Run:
    """Save what a guest gave as the record of its run."""
    run = Run(
        arm=arm.name,
        workload=bench.workload.name,
        seed=seed,
        cases=[case.name for case in cases],
        commands={case.name: bench.workload.command(case) for case in cases},
        kernel=arm.kernel.key,
        fingerprint=fingerprint,
        wall_s=got.wall_s,
        argv=argv,
        report=got.report,
        costs=got.costs,
    )
    if seed != PROFILED_SEED:
        (guest / COSTS).unlink(missing_ok=True)
    records.save(run_path(bench.folder, run_name(bench.workload, arm.name, seed, cases)), run)
    return run


class Got(NamedTuple):
    """What one guest gave: its report with every case's metrics, and the modelled ones."""

    report: GuestReport
    costs: dict[str, dict[str, float]]
    wall_s: float


def conduct(
    argv: Sequence[str],
    guest: Path,
    workload: Workload,
    seed: int,
    cases: Sequence[Case],
    *,
    modelled: bool,
    timeout_s: float,
    running: Running,
) -> Got:
    """Boot the guest whose initrd is in a folder, and read all that it delivers.

    Whatever comes of it, the initrd is removed: it is large, and can be made again.
    """
    try:
        ended = run.boot(argv, folder=guest, timeout_s=timeout_s, running=running)
        report = run.read_report(ended)
        output.collect(report, workload, cases, guest)
        found = _modelled(guest / COSTS, shuffled(cases, seed), workload, report) if modelled else {}
    except GuestFailed:
        paths.require_space(guest)  # what it said may be lost, and that is not its kernel's doing
        raise
    finally:
        (guest / INITRD).unlink(missing_ok=True)
    return Got(report, found, ended.wall_s)


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
    """How many operations a case did, where its program counts them in a metric and marks none."""
    outcome = report.case(case)
    return outcome.metrics[workload.operations] if workload.operations and outcome else None


def job_part(bench: Bench, arm: Arm, seed: int, cases: Sequence[Case]) -> bytes:
    """What follows the slice in a guest's initrd: the job, and the padding behind it."""
    job = channel.encode_job(
        seed=seed,
        cases=[(case.name, bench.workload.command(case)) for case in shuffled(cases, seed)],
        settings=bench.workload.guest_settings(exact.exact_machine().settings, arm.settings),
        env=bench.workload.environment(arm.settings),
        setup=bench.workload.setup,
    )
    if len(job) > _JOB_BYTES:
        raise GuestFailed(
            GuestFailure.MALFORMED, f"the job is {len(job)} bytes long, more than {_JOB_BYTES}; choose fewer cases"
        )
    packed = cpio.entry("job", 0o100444, job.ljust(_JOB_BYTES, b"\0")) + cpio.trailer()
    return packed + padding(bench.slice.stat().st_size + len(packed))


def padding(length: int) -> bytes:
    """What an initrd of so many bytes is padded by, so that all of its last page but a few bytes stays untouched.

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
