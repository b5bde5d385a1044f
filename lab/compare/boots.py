"""One boot: a guest of one arm that runs every case a number of times. Its record is never thrown away."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from lab.compare import runs
from lab.core import cpio, paths, records
from lab.core.errors import GuestFailed
from lab.core.records import Record
from lab.guests import channel, live_machine, output, perf_record, perf_stat, pinning, run
from lab.guests.channel import GuestReport
from lab.guests.live_machine import LiveGuest, live_parameters
from lab.guests.perf_record import Profile
from lab.guests.perf_stat import Event, PerfSummary
from lab.guests.run import Arm, RunningGuests
from lab.guests.topology import CpuSet
from lab.kernels.kernel import MachineType
from lab.workloads.spec import Case, Workload

_LEAST_FREE = 32 << 20
"""Bytes: a report that a full disk cut short would read as a guest that died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBench:
    """What all boots of a workload share. guest: without the CPUs and the arm's part of the command line.

    perf: the events that `perf stat` counts around every case; none: it is not run. profiled: `perf record` is.
    """

    guest: LiveGuest
    machine: MachineType
    workload: Workload
    cases: Sequence[Case]
    packed_root: Path
    root: Path
    timeout_s: float
    folder: Path
    fingerprint: str
    perf: Sequence[Event] = ()
    profiled: bool = False

    def guest_of(self, arm: Arm, cpu_set: CpuSet) -> LiveGuest:
        """An arm's guest on its CPUs."""
        arguments = [*self.guest.arguments, *self.workload.arguments(arm.settings)]
        return msgspec.structs.replace(self.guest, cpu_set=cpu_set, arguments=arguments)


class BootRecord(Record, frozen=True, kw_only=True):
    """The record of one boot: `boots/<name>.json`.

    values: by case and metric, the value of each iteration in order; NaN where an optional one was not printed.
    cpus: the host CPU of each vCPU. boot_s: wall time without the iterations. vng, argv: the commands that made and
    started the guest. failure: why it died, in which case nothing else is known of it.
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
    report: GuestReport | None = None
    perf: PerfSummary | None = None
    profiles: dict[str, Profile] = msgspec.field(default_factory=dict)
    failure: str | None = None

    def reading(self) -> dict[str, dict[str, list[float]]]:
        """The values as numbers: JSON has no NaN."""
        return {
            case: {metric: [math.nan if v is None else v for v in found] for metric, found in metrics.items()}
            for case, metrics in self.values.items()
        }


def record_path(folder: Path, name: str) -> Path:
    """Where a boot's record is."""
    return folder / "boots" / f"{name}.json"


def boot(
    bench: LiveBench,
    arm: Arm,
    cases: Sequence[Case],
    *,
    name: str,
    seed: int,
    iterations: int,
    cpu_set: CpuSet,
    running: RunningGuests,
) -> BootRecord:
    """Boot one guest, run every case so often, save the record.

    A guest that dies leaves a record with the reason, and raises `GuestFailed`. Its folder stays for reading.
    """
    folder = runs.guest_folder(bench.folder, name)
    shutil.rmtree(folder, ignore_errors=True)
    paths.require_space(bench.folder, _LEAST_FREE, "a guest")
    folder.mkdir(parents=True)
    record_path(bench.folder, name).parent.mkdir(exist_ok=True)
    composed, argv = live_machine.compose(bench.guest_of(arm, cpu_set), arm.kernel.image(bench.machine), bench.root)
    record = BootRecord(
        name=name,
        arm=arm.name,
        workload=bench.workload.name,
        cases=[case.name for case in cases],
        iterations=iterations,
        seed=seed,
        kernel=arm.kernel.key,
        fingerprint=bench.fingerprint,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        cpus=cpu_set.cpus,
        others=cpu_set.others,
        vng=composed,
        argv=argv,
    )
    try:
        record = _measured(record, bench, arm, cases, folder, running, cpu_set)
    except GuestFailed as error:
        error.message = f"{arm.name} arm ({arm.kernel.spec.text}), {name}: {error.message}"
        records.save(record_path(bench.folder, name), msgspec.structs.replace(record, failure=error.message))
        raise
    records.save(record_path(bench.folder, name), record)
    return record


def _measured(
    record: BootRecord,
    bench: LiveBench,
    arm: Arm,
    cases: Sequence[Case],
    folder: Path,
    running: RunningGuests,
    cpu_set: CpuSet,
) -> BootRecord:
    live_machine.link_files(folder, arm.kernel.image(bench.machine), bench.root)
    initrd = folder / run.INITRD
    initrd.write_bytes(_initrd(bench, arm, cases, record.seed, record.iterations))
    try:
        ended = run.boot(
            record.argv,
            folder=folder,
            timeout_s=bench.timeout_s,
            running=running,
            on_start=lambda process: pinning.pin_and_start(process, folder, cpu_set),
        )
        report = run.read_report(ended)
        counted = _take_events(report) if bench.perf else []
        profiles = _take_profiles(report) if bench.profiled else {}
        values = collect(report, bench.workload, cases, record.iterations, folder, counted)
    except GuestFailed:
        paths.require_space(folder)  # what it said may be lost, and that is not its kernel's doing
        raise
    finally:
        initrd.unlink(missing_ok=True)
        (folder / live_machine.QMP).unlink(missing_ok=True)
    spent_s = sum(one.end_ns - one.begin_ns for one in report.cases if one.end_ns is not None) / 1e9
    return msgspec.structs.replace(
        record, wall_s=ended.wall_s, boot_s=max(0.0, ended.wall_s - spent_s), values=values, report=report,
        perf=perf_stat.summarize(counted) if bench.perf else None, profiles=profiles,
    )  # fmt: skip


def _take_events(report: GuestReport) -> list[perf_stat.Reading]:
    """What perf counted in each case of a boot, in order; taken out of what the case's program said."""
    found = []
    for outcome in report.cases:
        one = perf_stat.read(outcome.stderr)
        outcome.stderr = list(one.rest)
        found.append(one)
    return found


def _take_profiles(report: GuestReport) -> dict[str, Profile]:
    """What perf recorded of each case; taken out of what the case's program said."""
    found = {}
    for outcome in report.cases:
        profile, outcome.stderr = perf_record.read(outcome.stderr)
        if profile is not None:
            found[outcome.name] = profile
    return found


def _initrd(bench: LiveBench, arm: Arm, cases: Sequence[Case], seed: int, iterations: int) -> bytes:
    """The guest's whole root, the one that exact mode boots, and its job: every case in turn, so often."""
    once = [(case.name, _command(bench, case)) for case in runs.shuffled(cases, seed)]
    job = channel.encode_job(
        seed=seed,
        cases=once * iterations,
        settings=bench.workload.guest_settings(live_parameters().settings, arm.settings),
        env=bench.workload.environment(arm.settings),
        setup=bench.workload.setup,
    )
    archive = bench.packed_root.read_bytes() + cpio.entry("job", 0o100444, job) + cpio.trailer()
    return archive + runs.padding(len(archive))


def _command(bench: LiveBench, case: Case) -> list[str]:
    command = bench.workload.command(case)
    if bench.profiled:
        return perf_record.wrap(command)
    return perf_stat.wrap(command, bench.perf) if bench.perf else command


def collect(
    report: GuestReport,
    workload: Workload,
    cases: Sequence[Case],
    iterations: int,
    guest: Path,
    counted: Sequence[perf_stat.Reading] = (),
) -> dict[str, dict[str, list[float | None]]]:
    """Each metric of each iteration, from a report that has every case so often; `GuestFailed` if one is missing.

    counted: what perf counted in each case of the report, where it was run.
    """
    events = {id(outcome): one for outcome, one in zip(report.cases, counted, strict=False)}
    values: dict[str, dict[str, list[float | None]]] = {case.name: {} for case in cases}
    by_case = {case.name: [one for one in report.cases if one.name == case.name] for case in cases}
    for turn in range(iterations):
        outcomes = [found[turn] for found in by_case.values() if turn < len(found)]
        output.collect(GuestReport(cases=outcomes), workload, cases, guest)
        for outcome in outcomes:
            if (one := events.get(id(outcome))) is not None:
                outcome.metrics |= {perf_stat.metric_name(name): value for name, value in one.values.items()}
            for metric, value in outcome.metrics.items():
                column = values[outcome.name].setdefault(metric, [])
                column += [None] * (turn - len(column))
                column.append(value)
    for metrics in values.values():
        for column in metrics.values():
            column += [None] * (iterations - len(column))
    return values
