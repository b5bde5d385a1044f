"""One run: one guest, one arm, one seed, all chosen cases of a workload. Its record is never thrown away."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from lab import channel, costs, cpio, exact, guests, records
from lab.channel import CaseOutcome, GuestReport
from lab.errors import GuestFailed
from lab.exact import MachineType, Qemu
from lab.guests import Running
from lab.instrument import Instrument, by_case
from lab.kernels import Kernel
from lab.records import Record
from lab.workloads import Case, Workload

# The job follows the root in the initrd, always this large: its length must not move what lies behind it.
_JOB_BYTES = 16 << 10
_PAGE = 4096

# What the cost model wrote, profile included; kept of one seed, from which `lab explain` says why.
COSTS = "costs.jsonl"
PROFILED_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """`base` or `test`: a kernel and what is set in its guest."""

    name: str
    kernel: Kernel
    settings: Mapping[str, str]

    @property
    def arguments(self) -> list[str]:
        """What the arm adds to the kernel command line (`@cmdline.NAME=VALUE`; an empty value is a bare word)."""
        chosen = {k.removeprefix("cmdline."): v for k, v in self.settings.items() if k.startswith("cmdline.")}
        return [f"{name}={value}" if value else name for name, value in chosen.items()]

    @property
    def guest_settings(self) -> dict[str, str]:
        """What init applies: the machine's settings, overridden by the arm's."""
        mine = {k: v for k, v in self.settings.items() if not k.startswith("cmdline.")}
        return {**exact.exact_machine().settings, **mine}


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
    """The record of one run: `runs/<workload>-<arm>-<seed>[-more].json`."""

    schema: int = 1
    arm: str
    workload: str
    seed: int
    cases: list[str]
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


def run_path(folder: Path, workload: str, arm: str, seed: int) -> Path:
    """Where a run's record is."""
    return folder / "runs" / f"{workload}-{arm}-{seed:04d}.json"


def measure(bench: Bench, arm: Arm, seed: int, cases: Sequence[Case], fingerprint: str, running: Running) -> Run:
    """Boot one guest, run the cases, save the record.

    Raises `GuestFailed` naming the arm, the seed and the way it died. The guest's folder stays for reading.
    """
    name = f"{bench.workload.name}-{arm.name}-{seed:04d}"
    guest = bench.folder / "guests" / name
    shutil.rmtree(guest, ignore_errors=True)
    guest.mkdir(parents=True)
    initrd = guest / "initrd.cpio"
    _write_initrd(initrd, bench, arm, seed, cases)
    argv = exact.argv(
        bench.qemu,
        bench.machine,
        kernel=arm.kernel.image(bench.machine),
        initrd=initrd,
        arguments=exact.cmdline(arm.arguments),
        vcpus=bench.workload.vcpus,
        memory_mb=bench.workload.memory_mb,
        console=guest / "console.log",
        report=guest / "report.jsonl",
    )
    if bench.instrument:
        argv += bench.instrument.arguments(bench.slice, guest / COSTS)
    try:
        ended = guests.boot(argv, folder=guest, timeout_s=bench.timeout_s, running=running)
        report = guests.judge(ended)
        for case in cases:
            _require_delivered(report.case(case.name), case, bench.workload, guest)
        modelled = _modelled(guest / COSTS, shuffled(cases, seed)) if bench.instrument else {}
    except GuestFailed as error:
        error.message = f"{arm.name} arm ({arm.kernel.spec.text}), seed {seed}: {error.message}"
        raise
    finally:
        initrd.unlink(missing_ok=True)
    run = Run(
        arm=arm.name,
        workload=bench.workload.name,
        seed=seed,
        cases=[case.name for case in cases],
        kernel=arm.kernel.key,
        fingerprint=fingerprint,
        wall_s=ended.wall_s,
        argv=argv,
        report=report,
        costs=modelled,
    )
    if seed != PROFILED_SEED:
        (guest / COSTS).unlink(missing_ok=True)
    records.save(run_path(bench.folder, bench.workload.name, arm.name, seed), run)
    return run


def _modelled(path: Path, order: Sequence[Case]) -> dict[str, dict[str, float]]:
    """The modelled metrics of each case; the plugin knows cases by their order in the boot."""
    found = {}
    for number, windows in by_case(path).items():
        if number <= len(order):
            found[order[number - 1].name] = costs.of_windows(windows)
    for case in order:
        if case.name not in found:
            raise GuestFailed("no-report", f"the cost model saw nothing of case {case.name}", log=path)
    return found


def _write_initrd(path: Path, bench: Bench, arm: Arm, seed: int, cases: Sequence[Case]) -> None:
    job = channel.encode_job(
        seed=seed,
        cases=[(case.name, bench.workload.command(case)) for case in shuffled(cases, seed)],
        settings=arm.guest_settings,
    )
    if len(job) > _JOB_BYTES:
        raise GuestFailed("malformed", f"the job is {len(job)} bytes long, more than {_JOB_BYTES}; choose fewer cases")
    archive = bench.slice.read_bytes()
    archive += cpio.entry("job", 0o100444, job.ljust(_JOB_BYTES, b"\0")) + cpio.trailer()
    path.write_bytes(clear_of_tables(archive))


def clear_of_tables(archive: bytes) -> bytes:
    """Pad an initrd so that all of its last page but a few bytes stays untouched.

    QEMU loads it at page alignment as high as memory goes; newer firmware (seen with QEMU 10.0's) keeps the ACPI
    tables of a microvm in that very page, and a full last page would overwrite them.
    """
    return archive + b"\0" * (-len(archive) % _PAGE + 4)


def shuffled(cases: Sequence[Case], seed: int) -> list[Case]:
    """The order of the cases in one boot, by seed: what one case leaves to the next is not always the same."""
    return sorted(cases, key=lambda case: records.digest([seed, case.name]))


def _require_delivered(outcome: CaseOutcome | None, case: Case, workload: Workload, guest: Path) -> None:
    log = guest / "report.jsonl"
    name = f"{workload.name}:{case.name}"
    if outcome is None or not outcome.ended:
        raise GuestFailed("no-report", f"{name} never ended", log=log)
    last = outcome.stderr[-1] if outcome.stderr else "it printed no error"
    if outcome.oom_kills:
        raise GuestFailed(
            "oom",
            f"{name} was killed because the guest ran out of memory ({workload.memory_mb} MiB)",
            hint="choose a smaller case, or raise memory_mb in its workload.toml",
            log=guest / "console.log",
        )
    if outcome.error:
        raise GuestFailed("workload", f"{name} could not be started: {outcome.error}", log=log)
    if outcome.signal:
        raise GuestFailed("workload", f"{name} was killed by signal {outcome.signal}: {last}", log=log)
    if outcome.status:
        raise GuestFailed("workload", f"{name} exited with status {outcome.status}: {last}", log=log)
    if workload.primary.name not in outcome.metrics:
        raise GuestFailed("workload", f"{name} never reported its metric {workload.primary.name}", log=log)
