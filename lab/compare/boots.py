"""Boots of live mode: a guest of one arm that runs every case several times. Records are never thrown away."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from lab.compare import runs
from lab.compare.live_results import Command
from lab.core import paths, records
from lab.core.errors import GuestFailed
from lab.core.records import Record
from lab.guests import channel, file_systems, live_machine, output, perf_record, perf_stat, run
from lab.guests.channel import GuestReport
from lab.guests.live_machine import LiveGuest, live_parameters
from lab.guests.perf_record import Profile
from lab.guests.perf_stat import Event, PerfSummary
from lab.guests.run import Arm, RunningGuests
from lab.guests.topology import CpuSet
from lab.kernels.architecture import MachineType
from lab.workloads.spec import Case, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSetup:
    """The guests of one workload: the part that all of its boots share.

    guest: that of every boot, except for its cpu_set and an arm's own settings.
    packed_root: the root that guests unpack; root: the folder that virtme-ng takes for one.
    cpu_sets: one set that the arms take in turn, or one for each arm.
    perf: the events that `perf stat` counts around every case; without any it is not run.
    profiled: `perf record` runs around every case.
    """

    guest: LiveGuest
    machine: MachineType
    workload: Workload
    cases: Sequence[Case]
    packed_root: Path
    root: Path
    cpu_sets: Sequence[CpuSet]
    timeout_s: float
    folder: Path
    fingerprint: str
    perf: Sequence[Event] = ()
    profiled: bool = False

    @property
    def case_names(self) -> list[str]:
        """The cases as `WORKLOAD:CASE`."""
        return [f"{self.workload.name}:{case.name}" for case in self.cases]

    def guest_of(self, arm: Arm, cpu_set: CpuSet) -> LiveGuest:
        """An arm's guest on a cpu_set: everything that its command line depends on."""
        arguments = [*self.guest.arguments, *self.workload.arguments(arm.settings)]
        return msgspec.structs.replace(self.guest, cpu_set=cpu_set, arguments=arguments)

    def command(self, arm: Arm, cpu_set: CpuSet) -> Command:
        """The commands that make and start an arm's guest on a cpu_set."""
        guest, kernel = self.guest_of(arm, cpu_set), arm.kernel.image(self.machine)
        vng, qemu = live_machine.compose(guest, kernel, self.root, self.timeout_s)
        return Command(vng=vng, qemu=qemu)


class BootRecord(Record, frozen=True, kw_only=True):
    """The record of one boot: `boots/<name>.json`.

    boot_s: wall time without the iterations.
    cpus: the host CPU of each vCPU; others: for QEMU's other threads.
    vng, argv: the commands that made and started the guest.
    values: by case and metric, of each iteration in order; None if an optional metric was not printed.
    unsupported: the errors of the cases that the kernel does not offer.
    failure: the reason why the guest died; then nothing else is known of it.
    """

    schema: int = 1
    name: str
    arm: str
    workload: str
    cases: list[str]
    iterations: int
    seed: int
    kernel: str
    fingerprint: str
    started: str
    wall_s: float = 0.0
    boot_s: float = 0.0
    cpus: list[int]
    others: list[int]
    vng: list[str]
    argv: list[str]
    values: dict[str, dict[str, list[float | None]]] = msgspec.field(default_factory=dict)
    unsupported: dict[str, str] = msgspec.field(default_factory=dict)
    report: GuestReport | None = None
    perf: PerfSummary | None = None
    profiles: dict[str, Profile] = msgspec.field(default_factory=dict)
    failure: str | None = None

    def reading(self) -> dict[str, dict[str, list[float]]]:
        """The values as numbers: JSON has no NaN."""
        return {
            case: {metric: [math.nan if v is None else v for v in values] for metric, values in metrics.items()}
            for case, metrics in self.values.items()
        }


def record_path(folder: Path, name: str) -> Path:
    return folder / "boots" / f"{name}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The work of one guest: every case that many times, in an order that the seed gives.

    may_lack: a case that the kernel lacks is recorded as such, and is not a failure of the guest.
    """

    cases: Sequence[Case]
    seed: int
    iterations: int
    may_lack: bool = False


def boot(setup: GuestSetup, arm: Arm, job: Job, *, name: str, cpu_set: CpuSet, running: RunningGuests) -> BootRecord:
    """Boot one guest, have it do its job, save the record.

    Raises `GuestFailed` for a guest that dies; its record has the reason, and its folder stays for reading.
    """
    folder = runs.guest_folder(setup.folder, name)
    shutil.rmtree(folder, ignore_errors=True)
    # QEMU makes its control socket by the umask: no other user may come near it.
    folder.mkdir(mode=0o700, parents=True)
    record_path(setup.folder, name).parent.mkdir(exist_ok=True)
    command = setup.command(arm, cpu_set)
    record = BootRecord(
        name=name,
        arm=arm.name,
        workload=setup.workload.name,
        cases=[case.name for case in job.cases],
        iterations=job.iterations,
        seed=job.seed,
        kernel=arm.kernel.key,
        fingerprint=setup.fingerprint,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        cpus=cpu_set.cpus,
        others=cpu_set.others,
        vng=command.vng,
        argv=command.qemu,
    )
    try:
        record = _run(record, setup, arm, job, running, cpu_set)
    except GuestFailed as error:
        error.message = f"{arm.name} arm ({arm.kernel.spec.text}), {name}: {error.message}"
        records.save(record_path(setup.folder, name), msgspec.structs.replace(record, failure=error.message))
        raise
    records.save(record_path(setup.folder, name), record)
    return record


def _run(
    record: BootRecord, setup: GuestSetup, arm: Arm, job: Job, running: RunningGuests, cpu_set: CpuSet
) -> BootRecord:
    folder = runs.guest_folder(setup.folder, record.name)
    live_machine.link_files(folder, arm.kernel.image(setup.machine), setup.root)
    initrd = folder / run.INITRD
    with paths.writing(initrd):
        initrd.write_bytes(_initrd(setup, arm, job))

    def start(process: subprocess.Popen[bytes]) -> None:
        live_machine.pin_and_start(process, folder, cpu_set, timeout_s=setup.timeout_s)

    try:
        with run.needing_disk(folder):
            ended = run.boot(
                record.argv,
                folder=folder,
                timeout_s=setup.timeout_s,
                running=running,
                file_max=(setup.workload.memory_mb << 20) + run.FILE_MAX,
                on_start=start,
            )
            report = run.read_report(ended)
            counted = _take_events(report) if setup.perf else []
            profiles = _take_profiles(report) if setup.profiled else {}
            lacking = _lacking(report, setup.workload) if job.may_lack else {}
            offered = [case for case in job.cases if case.name not in lacking]
            values = collect(report, setup.workload, offered, job.iterations, folder, counted)
    finally:
        initrd.unlink(missing_ok=True)
        (folder / live_machine.QMP).unlink(missing_ok=True)
    spent_s = sum(outcome.end_ns - outcome.begin_ns for outcome in report.cases if outcome.end_ns is not None) / 1e9
    return msgspec.structs.replace(
        record, wall_s=ended.wall_s, boot_s=max(0.0, ended.wall_s - spent_s), values=values, unsupported=lacking,
        report=report,
        perf=perf_stat.merge(reading.summary for reading in counted) if setup.perf else None, profiles=profiles,
    )  # fmt: skip


def _lacking(report: GuestReport, workload: Workload) -> dict[str, str]:
    """The errors of the cases that the kernel does not offer, by case."""
    found = ((outcome.name, output.unsupported(outcome, workload)) for outcome in report.cases)
    return {name: error for name, error in found if error}


def _take_events(report: GuestReport) -> list[perf_stat.Reading]:
    """Move perf's counts out of the stderr of each case of a boot."""
    readings = []
    for outcome in report.cases:
        reading = perf_stat.read(outcome.stderr)
        outcome.stderr = list(reading.rest)
        readings.append(reading)
    return readings


def _take_profiles(report: GuestReport) -> dict[str, Profile]:
    """Move perf's profiles out of the stderr of each case."""
    profiles = {}
    for outcome in report.cases:
        profile, outcome.stderr = perf_record.read(outcome.stderr)
        if profile is not None:
            profiles[outcome.name] = profile
    return profiles


def _initrd(setup: GuestSetup, arm: Arm, job: Job) -> bytes:
    """The guest's root, which exact mode boots too, and its job: every case in turn, that many times."""
    once = [(case.name, _command(setup, case)) for case in runs.shuffled(job.cases, job.seed)]
    encoded = channel.encode_job(
        settings=setup.workload.guest_settings(live_parameters().settings, arm.settings),
        env=setup.workload.environment(arm.settings),
        setups=file_systems.setups(setup.workload, arm.settings),
    )
    cases = channel.encode_cases(job.seed, once * job.iterations)
    archive = setup.packed_root.read_bytes() + channel.pack_job(encoded, cases)
    return archive + runs.padding(len(archive))


def _command(setup: GuestSetup, case: Case) -> list[str]:
    command = setup.workload.command(case)
    if setup.profiled:
        return perf_record.wrap(command)
    return perf_stat.wrap(command, setup.perf) if setup.perf else command


def collect(
    report: GuestReport,
    workload: Workload,
    cases: Sequence[Case],
    iterations: int,
    guest: Path,
    counted: Sequence[perf_stat.Reading] = (),
) -> dict[str, dict[str, list[float | None]]]:
    """Each metric of each iteration, from a report with that many of every case; `GuestFailed` if one is missing.

    counted: by perf in each case of the report, if it ran.
    """
    events = {id(outcome): reading for outcome, reading in zip(report.cases, counted, strict=False)}
    values: dict[str, dict[str, list[float | None]]] = {case.name: {} for case in cases}
    by_case = {case.name: [outcome for outcome in report.cases if outcome.name == case.name] for case in cases}
    for turn in range(iterations):
        outcomes = [of_case[turn] for of_case in by_case.values() if turn < len(of_case)]
        output.collect(GuestReport(cases=outcomes), workload, cases, guest)
        for outcome in outcomes:
            if (reading := events.get(id(outcome))) is not None:
                outcome.metrics |= {perf_stat.metric_name(name): value for name, value in reading.values.items()}
            for metric, value in outcome.metrics.items():
                column = values[outcome.name].setdefault(metric, [])
                column += [None] * (turn - len(column))
                column.append(value)
    for metrics in values.values():
        for column in metrics.values():
            column += [None] * (iterations - len(column))
    return values
